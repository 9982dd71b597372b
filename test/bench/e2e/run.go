package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/test/bench/e2e/ledger"
	"github.com/tranche-dev/tranche/test/bench/e2e/shape"
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
func measure(ctx context.Context, s *shape.Shape, o *options) (figures []figure, err error) {
	err = (&site{queues: queuesOf(s)}).open(ctx, o, func(r *run) error {
		r.shape = s
		found, err := r.play(ctx, o)
		if err == nil {
			figures = figuresOf(s, found)
		}
		return err
	})
	return figures, err
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
	if err := r.addFloor(ctx, found); err != nil {
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
	if err := r.addFloor(ctx, found); err != nil {
		return nil, err
	}
	return found, nil
}

func (r *run) addFloor(ctx context.Context, found *results) error {
	f, err := r.sound(ctx)
	found.floors = append(found.floors, f)
	return err
}

// startManager runs the manager with its default limits for requests to the API server, and waits until all queues are active.
func (r *run) startManager(ctx context.Context) (*testenv.Manager, error) {
	manager, err := r.startWith(ctx, map[string]any{"clientConnection": map[string]any{}})
	if err != nil {
		return nil, err
	}
	if err := r.awaitPrepared(ctx); err != nil {
		return nil, errors.Join(err, manager.Stop())
	}
	return manager, nil
}

// startWith runs the manager with settings, and waits until it is ready.
func (r *run) startWith(ctx context.Context, settings map[string]any) (*testenv.Manager, error) {
	manager, err := r.world.StartManager(ctx, testenv.ManagerOptions{Settings: settings})
	if err == nil {
		r.managerMetrics, r.manager = manager.Metrics, manager.PID()
	}
	return manager, err
}

// awaitPrepared waits until all queues are active, and the manager no longer sends requests, so that its initial work for each queue is not charged to
// admissions.
func (r *run) awaitPrepared(ctx context.Context) error {
	if err := r.awaitActive(ctx); err != nil {
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

// awaitActive waits until all queues are active.
func (r *run) awaitActive(ctx context.Context) error {
	return r.awaitQueues(ctx, settleEvery, settleTimeout, func(q *kueue.ClusterQueue) bool {
		return apimeta.IsStatusConditionTrue(q.Status.Conditions, kueue.ClusterQueueActive)
	})
}

// awaitQueues waits until a condition holds for all ClusterQueues.
func (r *run) awaitQueues(ctx context.Context, every, timeout time.Duration, is func(*kueue.ClusterQueue) bool) error {
	err := wait.PollUntilContextTimeout(ctx, every, timeout, true, func(ctx context.Context) (bool, error) {
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
		if err := r.awaitQueues(ctx, settleEvery, settleTimeout, func(q *kueue.ClusterQueue) bool {
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
	d.mu.Lock()
	defer d.mu.Unlock()
	n := 0
	for i := range d.lives {
		if standing := d.books.Standing(i); standing != ledger.Finished {
			if n++; n <= 5 {
				d.problems = append(d.problems, fmt.Errorf("quota Workload %s is not finished (standing %d): %s", d.lives[i].key, standing, d.lives[i].message))
			}
		}
	}
	return n
}
