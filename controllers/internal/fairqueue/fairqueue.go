// Package fairqueue has the work queue of the controllers: objects that hold quota come first, and namespaces take turns, so that no tenant waits
// for the thousands of objects of another.
package fairqueue

import (
	"sync/atomic"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// A failed reconcile is retried after firstRetry, then after twice that, and so on. While the webhooks of the JobSet controller are down no
// JobSet can be resumed, and no watch reports that they are up again.
const (
	firstRetry   = 5 * time.Millisecond
	longestRetry = 15 * time.Second
)

// holdersInTurn is how many requests for objects that hold quota come before one for another object, while there are both. What waits for quota
// makes progress, however much holds quota.
const holdersInTurn = 7

// Options returns the options of a controller that reconciles this many objects at the same time. The function reports whether an object holds quota;
// it is called for each event, under the lock of the queue, so it reads from a cache. If it is nil, only namespaces take turns.
//
// The queue is not the one of controller-runtime, in which all objects that exist when the manager starts come after those that have events, for as long
// as there are such, and which can block the end of a process.
func Options(workers int, holdsQuota func(reconcile.Request) bool) controller.Options {
	return controller.Options{
		MaxConcurrentReconciles: workers,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, longestRetry),
		NewQueue: func(name string, retries workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
			return newQueue(name, retries, holdsQuota)
		},
	}
}

// A queue leaves what it contains when it is shut down, since no write would succeed.
type queue struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
	order *order
}

func newQueue(name string, retries workqueue.TypedRateLimiter[reconcile.Request], holdsQuota func(reconcile.Request) bool) *queue {
	o := newOrder(holdsQuota)
	provider := newCollectors()
	delaying := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[reconcile.Request]{
		Name: name, MetricsProvider: provider,
		Queue: workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[reconcile.Request]{Name: name, MetricsProvider: provider, Queue: o}),
	})
	return &queue{order: o, TypedRateLimitingInterface: workqueue.NewTypedRateLimitingQueueWithConfig(retries,
		workqueue.TypedRateLimitingQueueConfig[reconcile.Request]{Name: name, DelayingQueue: delaying})}
}

// ShutDown ends the queue.
func (q *queue) ShutDown() {
	q.order.closed.Store(true)
	q.TypedRateLimitingInterface.ShutDown()
}

// An order is the storage of a work queue. The work queue calls its methods one at a time.
type order struct {
	holdsQuota func(reconcile.Request) bool
	// rings has the ring of each request. A request that has got quota while it waits has left an entry without effect in the ring others.
	rings           map[reconcile.Request]*ring
	holders, others *ring
	// inTurn is how many holders have come since the last other request.
	inTurn int
	closed atomic.Bool
}

func newOrder(holdsQuota func(reconcile.Request) bool) *order {
	if holdsQuota == nil {
		holdsQuota = func(reconcile.Request) bool { return false }
	}
	return &order{holdsQuota: holdsQuota, rings: map[reconcile.Request]*ring{}, holders: newRing(), others: newRing()}
}

// Push adds a request.
func (o *order) Push(request reconcile.Request) {
	to := o.others
	if o.holdsQuota(request) {
		to = o.holders
	}
	o.rings[request] = to
	to.push(request)
}

// Touch is called if a request is added that waits already.
func (o *order) Touch(request reconcile.Request) {
	if o.rings[request] == o.others && o.holdsQuota(request) {
		o.rings[request] = o.holders
		o.holders.push(request)
	}
}

// Len returns how many requests wait.
func (o *order) Len() int {
	if o.closed.Load() {
		return 0
	}
	return len(o.rings)
}

// Pop removes the next request. There must be one.
func (o *order) Pop() reconcile.Request {
	for {
		from := o.holders
		if o.holders.isEmpty() || o.inTurn >= holdersInTurn && !o.others.isEmpty() {
			from = o.others
		}
		request := from.pop()
		if o.rings[request] != from {
			continue
		}
		delete(o.rings, request)
		o.inTurn++
		if from == o.others {
			o.inTurn = 0
		}
		return request
	}
}

// A ring has the requests of each namespace in their order. Namespaces take turns.
type ring struct {
	namespaces workqueue.Queue[string]
	requests   map[string]workqueue.Queue[reconcile.Request]
}

func newRing() *ring {
	return &ring{namespaces: workqueue.DefaultQueue[string](), requests: map[string]workqueue.Queue[reconcile.Request]{}}
}

func (r *ring) isEmpty() bool { return r.namespaces.Len() == 0 }

func (r *ring) push(request reconcile.Request) {
	waiting := r.requests[request.Namespace]
	if waiting == nil {
		waiting = workqueue.DefaultQueue[reconcile.Request]()
		r.requests[request.Namespace] = waiting
		r.namespaces.Push(request.Namespace)
	}
	waiting.Push(request)
}

func (r *ring) pop() reconcile.Request {
	namespace := r.namespaces.Pop()
	waiting := r.requests[namespace]
	request := waiting.Pop()
	if waiting.Len() > 0 {
		r.namespaces.Push(namespace)
	} else {
		delete(r.requests, namespace)
	}
	return request
}
