package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/test/bench/e2e/ledger"
	"github.com/tranche-dev/tranche/test/bench/e2e/shape"
)

const (
	// The field managers of the manager that admits, and of the controllers of jobs.
	admissionManager = "kueue-admission"
	finishManager    = "kueue-job-controller-Finished"

	// evictionGrace is how long a manager has to clear the reservation of an evicted quota Workload, before the driver does it as the
	// controller of a job would.
	evictionGrace = 200 * time.Millisecond
	// conflictDelay is how long the driver at least waits for a new version after a conflict.
	conflictDelay = 20 * time.Millisecond
)

// A driver submits a shape, and runs admitted quota Workloads: after its run time it writes that a quota Workload is finished.
type driver struct {
	api   *api
	shape *shape.Shape
	grace time.Duration // evictionGrace

	mu        sync.Mutex
	began     time.Time
	books     *ledger.Ledger
	lives     []life
	index     map[types.NamespacedName]int
	queues    map[kueue.ClusterQueueReference]int
	problems  []error
	evictions int
	cleared   int
	conflicts int
	late      []time.Duration // by how much the driver was late with work that was due at a fixed time
	done      chan struct{}
}

// A life is the last observed state of one quota Workload, and the driver's pending work for it.
type life struct {
	class      int
	key        types.NamespacedName
	localQueue string

	version string
	evicted []metav1.Condition // the conditions that report it
	message string

	running bool
	attempt int // grows whenever a run ends
	overdue bool
	timer   *time.Timer
}

func newDriver(a *api, s *shape.Shape) *driver {
	d := &driver{
		api: a, shape: s, grace: evictionGrace, index: map[types.NamespacedName]int{},
		queues: map[kueue.ClusterQueueReference]int{}, done: make(chan struct{}),
	}
	var booked []ledger.Life
	for queue := range s.Queues() {
		d.queues[kueue.ClusterQueueReference(queueName(queue))] = queue
		n := 0
		for class := range s.Classes {
			for i := range s.Classes[class].Count {
				l := life{class: class, localQueue: localQueueName(n % s.Queue.LocalQueues)}
				l.key = types.NamespacedName{Namespace: queueName(queue), Name: fmt.Sprintf("%s-%04d", s.Classes[class].Name, i)}
				d.index[l.key] = len(d.lives)
				d.lives = append(d.lives, l)
				booked = append(booked, ledger.Life{Queue: queue, Class: class})
				n++
			}
		}
	}
	d.books = ledger.New(s, booked)
	return d
}

// follow watches all quota Workloads from now on. The events of one watch come in the order of the changes, so that the reservations after
// each of them are those in the API server.
func (d *driver) follow(ctx context.Context, c client.WithWatch) error {
	var list kueue.WorkloadList
	if err := c.List(ctx, &list); err != nil {
		return fmt.Errorf("list quota Workloads: %w", err)
	}
	source := &cache.ListWatch{WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
		return c.Watch(ctx, &kueue.WorkloadList{}, &client.ListOptions{Raw: &options})
	}}
	watcher, err := watchtools.NewRetryWatcherWithContext(ctx, list.ResourceVersion, source)
	if err != nil {
		return fmt.Errorf("watch quota Workloads: %w", err)
	}
	go func() {
		for event := range watcher.ResultChan() {
			switch object := event.Object.(type) {
			case *kueue.Workload:
				d.see(ctx, object, event.Type)
			case *metav1.Status:
				d.report(fmt.Errorf("watch quota Workloads: %s", object.Message))
			}
		}
	}()
	return nil
}

// start submits the shape, and returns at once. The driver is done when everything is finished.
func (d *driver) start(ctx context.Context) {
	d.mu.Lock()
	d.began = time.Now()
	d.mu.Unlock()
	first := 0
	for range d.shape.Queues() {
		for class := range d.shape.Classes {
			c := &d.shape.Classes[class]
			go d.submit(ctx, c, d.lives[first:first+c.Count])
			first += c.Count
		}
	}
}

// submit creates the quota Workloads of one class and queue, each at its time, or as soon as the one before it is created.
func (d *driver) submit(ctx context.Context, c *shape.Class, lives []life) {
	free := d.began
	for i := range lives {
		due := d.began.Add(time.Duration(i+1) * c.Every.Duration)
		if wait := time.Until(due); wait > 0 {
			select {
			case <-ctx.Done():
				return
			case <-time.After(wait):
			}
		}
		if free.After(due) {
			due = free // the API server was late, not the driver
		}
		d.noteLate(time.Since(due))
		if err := d.api.create(ctx, quotaWorkload(lives[i].key.Namespace, lives[i].key.Name, lives[i].localQueue, c)); err != nil {
			d.report(err)
		}
		free = time.Now()
	}
}

// see applies an event of the watch to one quota Workload.
func (d *driver) see(ctx context.Context, object *kueue.Workload, kind watch.EventType) {
	d.mu.Lock()
	defer d.mu.Unlock()
	i, ours := d.index[client.ObjectKeyFromObject(object)]
	if !ours || d.books.Finished == len(d.lives) {
		return
	}
	l := &d.lives[i]
	l.version = object.ResourceVersion
	before, standing := d.books.Standing(i), standingOf(object)
	if kind == watch.Deleted {
		d.problems = append(d.problems, fmt.Errorf("quota Workload %s was deleted", l.key))
	}
	d.books.See(time.Since(d.began), i, standing, d.chargeOf(object))
	if reserved := apimeta.FindStatusCondition(object.Status.Conditions, kueue.WorkloadQuotaReserved); reserved != nil {
		l.message = reserved.Message
	}
	d.heedEviction(ctx, i, object)
	admitted := standing == ledger.Holding && l.evicted == nil && apimeta.IsStatusConditionTrue(object.Status.Conditions, kueue.WorkloadAdmitted)
	switch {
	case admitted && !l.running:
		d.begin(ctx, i)
	case !admitted && l.running:
		l.running = false
		l.attempt++
		l.timer.Stop()
	case l.running && l.overdue:
		l.overdue = false
		go d.finish(ctx, i, l.attempt)
	}
	if before != ledger.Finished && standing == ledger.Finished && d.books.Finished == len(d.lives) {
		close(d.done)
	}
}

// begin starts the run of an admitted quota Workload.
func (d *driver) begin(ctx context.Context, i int) {
	l := &d.lives[i]
	l.running, l.overdue = true, false
	attempt, runs := l.attempt, d.shape.Classes[l.class].Runs.Duration
	due := time.Now().Add(runs)
	l.timer = time.AfterFunc(runs, func() {
		d.noteLate(time.Since(due))
		d.finish(ctx, i, attempt)
	})
}

// finish writes that a run has finished, unless it has been interrupted. After a conflicting write it tries again with the new version.
func (d *driver) finish(ctx context.Context, i, attempt int) {
	for {
		d.mu.Lock()
		l := &d.lives[i]
		key, version, isMine := l.key, l.version, l.running && l.attempt == attempt
		d.mu.Unlock()
		if !isMine {
			return
		}
		err := d.api.apply(ctx, key, version, finishManager, outcome())
		if !apierrors.IsConflict(err) {
			d.report(err)
			return
		}
		d.mu.Lock()
		d.conflicts++
		isKnown := l.version != version
		l.overdue = !isKnown // then the watch delivers the new version
		d.mu.Unlock()
		if !isKnown {
			return
		}
	}
}

// heedEviction records that a quota Workload is evicted, and after some time clears its reservation if the manager does not.
func (d *driver) heedEviction(ctx context.Context, i int, object *kueue.Workload) {
	l := &d.lives[i]
	wasEvicted := l.evicted != nil
	l.evicted = nil
	if !apimeta.IsStatusConditionTrue(object.Status.Conditions, kueue.WorkloadEvicted) || d.books.Standing(i) == ledger.Finished {
		return
	}
	for _, c := range object.Status.Conditions {
		if slices.Contains([]string{kueue.WorkloadEvicted, kueue.WorkloadPreempted, kueue.WorkloadRequeued}, c.Type) {
			l.evicted = append(l.evicted, c)
		}
	}
	if wasEvicted {
		return
	}
	d.evictions++
	if d.books.Standing(i) == ledger.Holding {
		time.AfterFunc(d.grace, func() { d.clear(ctx, i) })
	}
}

// clear removes the reservation of a quota Workload that is still evicted, under the field manager that has written it.
func (d *driver) clear(ctx context.Context, i int) {
	d.mu.Lock()
	l := &d.lives[i]
	key, version, status := l.key, l.version, &kueue.WorkloadStatus{Conditions: slices.Clone(l.evicted)}
	isDue := l.evicted != nil && d.books.Standing(i) == ledger.Holding
	d.mu.Unlock()
	if !isDue {
		return
	}
	status.Conditions = append(status.Conditions,
		condition(kueue.WorkloadQuotaReserved, metav1.ConditionFalse, "Pending", "Evicted by the manager, stopped by the benchmark"),
		condition(kueue.WorkloadAdmitted, metav1.ConditionFalse, kueue.WorkloadAdmittedReasonNoReservation, "The quota Workload holds no quota"),
	)
	err := d.api.apply(ctx, key, version, admissionManager, status)
	if apierrors.IsConflict(err) {
		time.AfterFunc(max(d.grace, conflictDelay), func() { d.clear(ctx, i) })
		return
	}
	d.mu.Lock()
	d.cleared++
	d.mu.Unlock()
	d.report(err)
}

func (d *driver) noteLate(late time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.late = append(d.late, max(late, 0))
}

// report keeps an error for the end. Errors caused by the end of the run are ignored.
func (d *driver) report(err error) {
	if err == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.problems = append(d.problems, err)
}

func standingOf(w *kueue.Workload) ledger.Standing {
	switch {
	case apimeta.IsStatusConditionTrue(w.Status.Conditions, kueue.WorkloadFinished):
		return ledger.Finished
	case w.Status.Admission != nil && apimeta.IsStatusConditionTrue(w.Status.Conditions, kueue.WorkloadQuotaReserved):
		return ledger.Holding
	}
	return ledger.Waiting
}

// chargeOf reads what a quota Workload is charged. A queue that the shape does not have is -1, which the books do not accept.
func (d *driver) chargeOf(w *kueue.Workload) ledger.Charge {
	a := w.Status.Admission
	if a == nil {
		return ledger.Charge{}
	}
	charge := ledger.Charge{Queue: -1}
	if queue, ok := d.queues[a.ClusterQueue]; ok {
		charge.Queue = queue
	}
	for i := range a.PodSetAssignments {
		charge.Amount += a.PodSetAssignments[i].ResourceUsage.Cpu().MilliValue()
	}
	return charge
}
