// Package takeover makes the engine admit in cohort trees that their administrators have taken over from Kueue's manager, and stop when they hand them
// back (decision 37). It runs in the mode Beside.
//
// A cohort tree changes its engine in steps, each of which can be repeated after a crash:
//
//	Kueue admits    -> the ClusterQueues ask for Tranche and are held, and Kueue's manager reports that it has seen this
//	locked          -> the ConfigMap tranche-takeover names them: from here on the API server rejects admissions by Kueue and the end of the hold
//	read again      -> all quota Workloads are read past the cache: what Kueue has admitted last is charged
//	Tranche admits  -> until a ClusterQueue no longer asks for Tranche
//	none admits     -> what the engine has decided is written
//	unlocked        -> the API server rejects admissions by Tranche, and lets Kueue admit when the hold ends
package takeover

import (
	"errors"

	k8sevents "k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/controllers/engine"
	"github.com/tranche-dev/tranche/controllers/internal/fairqueue"
)

// A Config configures the controller.
type Config struct {
	// Runner owns the admission engine.
	Runner *engine.Runner
	// Client writes, and Live reads past the cache.
	Client client.Client
	Live   client.Reader
	// Recorder emits the Events about ClusterQueues.
	Recorder k8sevents.EventRecorder
}

func (c *Config) validate() error {
	if c.Runner == nil || c.Client == nil || c.Live == nil || c.Recorder == nil {
		return errors.New("takeover.Config: all fields are required")
	}
	return nil
}

// SetupWithManager starts the controller.
func SetupWithManager(mgr ctrl.Manager, config Config) error {
	if err := config.validate(); err != nil {
		return err
	}
	r := &reconciler{config: config, lock: lock{client: config.Client, live: config.Live}, told: map[string]string{}}
	return ctrl.NewControllerManagedBy(mgr).
		Named("takeover").
		// It reports each ClusterQueue once at the start, and whenever the engine has observed that something about it has changed.
		WatchesRawSource(engine.Changes(config.Runner, engine.ClusterQueues)).
		WithOptions(fairqueue.Options(1, nil)).
		Complete(r)
}
