package main

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	ctrl "sigs.k8s.io/controller-runtime"

	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	"github.com/tranche-dev/tranche/controllers/apiwatch"
	"github.com/tranche-dev/tranche/controllers/events"
)

// configInterval is how often a replica reads its configuration file again.
const configInterval = 10 * time.Second

// A configWatch ends the manager when its configuration file has changed, so that it is restarted with the new one. All state is in the API objects, and
// a leader decides first, so that a restart evicts nothing. While the manager would not start with the new file, it continues with the old one.
type configWatch struct {
	path    string
	running *configapi.Configuration
	// check returns why the manager would not start with a configuration, although it is valid.
	check func(context.Context, *configapi.Configuration) error
}

// watchConfig adds a configWatch to a manager, and reports while the file cannot be used. A manager without a file keeps its configuration.
func watchConfig(mgr ctrl.Manager, path string, running *configapi.Configuration, check func(context.Context, *configapi.Configuration) error) error {
	if path == "" {
		return nil
	}
	w := &configWatch{path, running.DeepCopy(), check}
	find := func(ctx context.Context) (events.Event, error) {
		if _, err := w.changed(ctx); err != nil {
			return events.ConfigurationInvalid(err), nil
		}
		return events.Event{}, nil
	}
	if err := mgr.Add(&apiwatch.ProblemWatch{Find: find, Recorder: mgr.GetEventRecorder("tranche")}); err != nil {
		return fmt.Errorf("set up the reports about the configuration: %w", err)
	}
	return mgr.Add(w)
}

// NeedLeaderElection makes each replica read its own file.
func (*configWatch) NeedLeaderElection() bool { return false }

// Start returns when the context ends, or with an error when the file has changed. It must contain the same twice, because it may be read while it is written,
// and an empty one is valid.
func (w *configWatch) Start(ctx context.Context) error {
	ticker := time.NewTicker(configInterval)
	defer ticker.Stop()
	var last *configapi.Configuration
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		changed, err := w.changed(ctx)
		if err == nil && changed != nil && last != nil && equality.Semantic.DeepEqual(changed, last) {
			return fmt.Errorf("the configuration %s has changed: the manager ends, to be restarted with it", w.path)
		}
		last = changed
	}
}

// changed returns the configuration in the file if it is another one than that of the running manager, or nil. It returns an error if the manager would not
// start with it.
func (w *configWatch) changed(ctx context.Context) (*configapi.Configuration, error) {
	config, err := configapi.Load(w.path)
	if err != nil {
		return nil, err
	}
	if equality.Semantic.DeepEqual(config, w.running) {
		return nil, nil //nolint:nilnil // nothing has changed
	}
	return config, w.check(ctx, config)
}
