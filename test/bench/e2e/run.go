package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/test/bench/e2e/ledger"
	"github.com/tranche-dev/tranche/test/bench/e2e/shape"
	"github.com/tranche-dev/tranche/test/controlplane"
	"github.com/tranche-dev/tranche/test/testenv"
)

const (
	settleEvery   = 100 * time.Millisecond
	settleTimeout = 30 * time.Second
	// quietFor is longer than a manager may delay the status of a queue.
	quietFor = 1500 * time.Millisecond
)

// A run is one shape on one control plane.
type run struct {
	world   *testenv.World
	shape   *shape.Shape
	api     *api
	metrics rest.Interface
	// The processes.
	apiserver, etcd, manager int
	managerMetrics           string // empty for Kueue's manager
}

// A reading has all measured values at one time.
type reading struct {
	apiserver, etcd, manager, driver usage
	sent, received                   counts
	at                               time.Time
	machine                          time.Duration
	cores                            int
}

// results are the results of a run.
type results struct {
	floors        []floor
	driver        *driver
	wall, settled time.Duration
	before, after reading
	unfinished    int
}

// measure starts a control plane, runs the shape on it with Tranche's manager, and stops it.
func measure(ctx context.Context, s *shape.Shape, o *options) ([]figure, error) {
	found, err := onControlPlane(ctx, s, o, nil, func(ctx context.Context, r *run) (*results, error) { return r.play(ctx, o) })
	if err != nil {
		return nil, err
	}
	return figuresOf(s, found), nil
}

// onControlPlane calls a function with a control plane that has the queues of the shape, and Kueue's manager if there are options for it.
func onControlPlane(
	ctx context.Context, s *shape.Shape, o *options, kueue *controlplane.KueueOptions, play func(context.Context, *run) (*results, error),
) (_ *results, err error) {
	w, err := testenv.Start(ctx, controlplane.Config{
		WorkDir: o.workDir,
		Kueue:   kueue,
		// Nothing here has pods. The JobSet controller stays, because its webhooks are needed to install Tranche.
		Without: []string{controlplane.ControllerManager, controlplane.Scheduler, controlplane.Kwok},
	})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.Stop()) }()
	r := &run{world: w, shape: s, apiserver: w.Plane.PID(controlplane.APIServer), etcd: w.Plane.PID(controlplane.Etcd)}
	if err := r.connect(); err != nil {
		return nil, err
	}
	if err := createQueues(ctx, w.Admin, s); err != nil {
		return nil, err
	}
	return play(ctx, r)
}

func (r *run) connect() error {
	scheme, err := testenv.Scheme()
	if err != nil {
		return err
	}
	if r.api, err = newAPI(r.world.Plane.AdminConfig(), scheme); err != nil {
		return err
	}
	r.metrics = r.api.clients[0]
	return nil
}

// play measures the rate of the machine without a manager, then with the manager, then without it again, because other load on the machine
// varies.
func (r *run) play(ctx context.Context, o *options) (*results, error) {
	found := &results{driver: newDriver(r.api, r.shape)}
	following, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := found.driver.follow(following, r.world.Admin); err != nil {
		return nil, err
	}
	if err := r.addFloor(ctx, found, o.lives); err != nil {
		return nil, err
	}
	manager, err := r.startManager(ctx)
	if err != nil {
		return nil, err
	}
	err = r.drive(ctx, found, o.timeout)
	if err := errors.Join(err, manager.Stop()); err != nil {
		return nil, err
	}
	if err := r.addFloor(ctx, found, o.lives); err != nil {
		return nil, err
	}
	return found, nil
}

func (r *run) addFloor(ctx context.Context, found *results, lives int) error {
	f, err := r.sound(ctx, lives)
	found.floors = append(found.floors, f)
	return err
}

// startManager runs the manager with its default limits for requests to the API server, and waits until all queues are active.
func (r *run) startManager(ctx context.Context) (*testenv.Manager, error) {
	manager, err := r.world.StartManager(ctx, testenv.ManagerOptions{Settings: map[string]any{"clientConnection": map[string]any{}}})
	if err != nil {
		return nil, err
	}
	r.managerMetrics = manager.Metrics
	if r.manager, err = findChild(filepath.Dir(manager.Log)); err == nil {
		err = r.awaitPrepared(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, manager.Stop())
	}
	return manager, nil
}

// awaitPrepared waits until all queues are active, and the manager no longer sends requests, so that its initial work for each queue is not charged to
// admissions.
func (r *run) awaitPrepared(ctx context.Context) error {
	if err := r.awaitQueues(ctx, func(q *kueue.ClusterQueue) bool {
		return apimeta.IsStatusConditionTrue(q.Status.Conditions, kueue.ClusterQueueActive)
	}); err != nil {
		return err
	}
	last := -1.0
	err := wait.PollUntilContextTimeout(ctx, quietFor, settleTimeout, true, func(ctx context.Context) (bool, error) {
		now, err := r.requests(ctx)
		if err != nil {
			return false, err
		}
		isQuiet := now.total() == last
		last = now.total()
		return isQuiet, nil
	})
	if err != nil {
		return fmt.Errorf("wait until the manager has prepared the queues: %w", err)
	}
	return nil
}

// awaitQueues waits until a condition holds for all ClusterQueues.
func (r *run) awaitQueues(ctx context.Context, is func(*kueue.ClusterQueue) bool) error {
	err := wait.PollUntilContextTimeout(ctx, settleEvery, settleTimeout, true, func(ctx context.Context) (bool, error) {
		var list kueue.ClusterQueueList
		if err := r.world.Admin.List(ctx, &list); err != nil {
			return false, err
		}
		for i := range list.Items {
			if !is(&list.Items[i]) {
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("wait for the statuses of all ClusterQueues: %w", err)
	}
	return nil
}

// drive submits the shape and waits until all of it is finished, or until a timeout.
func (r *run) drive(ctx context.Context, found *results, timeout time.Duration) error {
	var err error
	if found.before, err = r.read(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	began := time.Now()
	found.driver.start(ctx)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(timeout):
	case <-found.driver.done:
	}
	found.wall = time.Since(began)
	found.unfinished = found.driver.unfinished()
	if found.unfinished == 0 {
		// The manager still has to write a last status of each queue, and those writes count, too.
		began = time.Now()
		if err := r.awaitQueues(ctx, func(q *kueue.ClusterQueue) bool {
			return q.Status.PendingWorkloads == 0 && q.Status.ReservingWorkloads == 0
		}); err != nil {
			return err
		}
		found.settled = time.Since(began)
	}
	found.after, err = r.read(ctx)
	return err
}

func (r *run) read(ctx context.Context) (reading, error) {
	now, err := r.readServers()
	if err != nil {
		return now, err
	}
	var problems [4]error
	now.manager, problems[0] = readUsage(r.manager)
	now.sent, problems[1] = r.requests(ctx)
	now.received, problems[2] = received(ctx, r.metrics)
	now.machine, now.cores, problems[3] = busy()
	now.at = time.Now()
	for request, n := range r.api.written() {
		now.received[request] -= n
	}
	return now, errors.Join(problems[:]...)
}

// requests are those that the manager has sent, by its own count. Kueue's manager serves no metrics here: then they are the writes that the API server has
// received, which include those of the driver.
func (r *run) requests(ctx context.Context) (counts, error) {
	if r.managerMetrics == "" {
		return received(ctx, r.metrics)
	}
	return sent(ctx, r.managerMetrics)
}

// readServers reads only the processes that also run without a manager.
func (r *run) readServers() (reading, error) {
	var now reading
	var problems [3]error
	now.apiserver, problems[0] = readUsage(r.apiserver)
	now.etcd, problems[1] = readUsage(r.etcd)
	now.driver, problems[2] = readUsage(os.Getpid())
	return now, errors.Join(problems[:]...)
}

// since is how much processor time all processes of a run have used since an earlier reading.
func (now *reading) since(before *reading) time.Duration {
	return now.apiserver.cpu - before.apiserver.cpu + now.etcd.cpu - before.etcd.cpu +
		now.manager.cpu - before.manager.cpu + now.driver.cpu - before.driver.cpu
}

// unfinished counts the unfinished quota Workloads, and adds examples to the problems.
func (d *driver) unfinished() int {
	const examples = 5
	d.mu.Lock()
	defer d.mu.Unlock()
	n := 0
	for i := range d.lives {
		if standing := d.books.Standing(i); standing != ledger.Finished {
			if n++; n <= examples {
				d.problems = append(d.problems, fmt.Errorf("quota Workload %s is not finished (standing %d): %s", d.lives[i].key, standing, d.lives[i].message))
			}
		}
	}
	return n
}
