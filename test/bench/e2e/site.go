package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/test/controlplane"
	"github.com/tranche-dev/tranche/test/testenv"
)

// A site is a control plane of its own with fake nodes and queues, on which the manager runs with its default limits for requests.
type site struct {
	// name is that of its directory.
	name  string
	nodes []controlplane.NodePool
	// auditPolicy is that of controlplane.Config.
	auditPolicy string
	// queues are created in this order.
	queues []client.Object
}

// run starts everything, calls a function, and stops everything.
func (s *site) run(ctx context.Context, o *options, do func(context.Context, *run) error) (err error) {
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	config := controlplane.Config{NodePools: s.nodes, AuditPolicy: s.auditPolicy}
	if o.workDir != "" {
		config.WorkDir = filepath.Join(o.workDir, s.name)
	}
	w, err := testenv.Start(ctx, config)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Stop()) }()
	for _, object := range s.queues {
		if err := w.Admin.Create(ctx, object); err != nil {
			return fmt.Errorf("create %T %s: %w", object, object.GetName(), err)
		}
	}
	manager, err := w.StartManager(ctx, testenv.ManagerOptions{Settings: map[string]any{"clientConnection": map[string]any{}}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, manager.Stop()) }()
	r := &run{world: w}
	if err := errors.Join(r.connect(), r.awaitQueues(ctx, func(q *kueue.ClusterQueue) bool {
		return apimeta.IsStatusConditionTrue(q.Status.Conditions, kueue.ClusterQueueActive)
	})); err != nil {
		return err
	}
	return do(ctx, r)
}

// whenDue calls a function for each of a number of times when it has come, or at once if everything is submitted at once.
func (o *options) whenDue(ctx context.Context, due []time.Duration, submit func(int) error) error {
	began := time.Now()
	for i := range due {
		if !o.atOnce {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(time.Until(began.Add(due[i]))):
			}
		}
		if err := submit(i); err != nil {
			return err
		}
	}
	return nil
}
