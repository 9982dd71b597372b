package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/test/controlplane"
	"github.com/tranche-dev/tranche/test/testenv"
)

// A site is a control plane of its own with queues.
type site struct {
	// name is that of its directory, if it is not empty.
	name string
	// nodes are fake. Without any there are no pods either: then only the JobSet controller runs, because its webhooks are needed to install Tranche.
	nodes []controlplane.NodePool
	// kueue is that of controlplane.Config.
	kueue *controlplane.KueueOptions
	// isAudited is whether requests are to be counted.
	isAudited bool
	// queues are created in this order.
	queues []client.Object
}

// open starts everything but a manager, calls a function, and stops everything.
func (s *site) open(ctx context.Context, o *options, do func(*run) error) (err error) {
	config := controlplane.Config{NodePools: s.nodes, Kueue: s.kueue}
	if o.workDir != "" {
		config.WorkDir = filepath.Join(o.workDir, s.name)
	}
	if len(s.nodes) == 0 {
		config.Without = []string{controlplane.ControllerManager, controlplane.Scheduler, controlplane.Kwok}
	}
	if s.isAudited {
		if config.AuditPolicy, err = writeAuditPolicy(); err != nil {
			return err
		}
		defer os.Remove(config.AuditPolicy) //nolint:errcheck // it is in the directory of temporary files
	}
	w, err := testenv.Start(ctx, config)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Stop()) }()
	scheme, err := testenv.Scheme()
	if err != nil {
		return err
	}
	a, err := newAPI(w.Plane.AdminConfig(), scheme)
	if err != nil {
		return err
	}
	if err := createAll(ctx, w.Admin, s.queues); err != nil {
		return err
	}
	return do(&run{world: w, api: a, metrics: a.clients[0], apiserver: w.Plane.PID(controlplane.APIServer), etcd: w.Plane.PID(controlplane.Etcd)})
}

// run does the same with a manager that has its default limits for requests, as soon as all queues are active.
func (s *site) run(ctx context.Context, o *options, do func(context.Context, *run) error) error {
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	return s.open(ctx, o, func(r *run) (err error) {
		manager, err := r.startWith(ctx, map[string]any{"clientConnection": map[string]any{}})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, manager.Stop()) }()
		if err := r.awaitActive(ctx); err != nil {
			return err
		}
		return do(ctx, r)
	})
}

func createAll(ctx context.Context, c client.Client, objects []client.Object) error {
	for _, object := range objects {
		if err := c.Create(ctx, object); err != nil {
			return fmt.Errorf("create %T %s: %w", object, object.GetName(), err)
		}
	}
	return nil
}

// inParallel calls a function for each number below n, several at a time.
func inParallel(n int, do func(int) error) error {
	var workers errgroup.Group
	workers.SetLimit(parallelism)
	for i := range n {
		workers.Go(func() error { return do(i) })
	}
	return workers.Wait()
}
