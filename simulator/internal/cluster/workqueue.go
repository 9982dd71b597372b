package cluster

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// A WorkQueue has the objects of one kind that a controller has to reconcile.
type WorkQueue struct {
	// Changed have to be reconciled now, and Awaited at a time.
	Changed map[types.NamespacedName]bool
	Awaited map[types.NamespacedName]time.Duration
}

func newWorkQueue() WorkQueue {
	return WorkQueue{Changed: map[types.NamespacedName]bool{}, Awaited: map[types.NamespacedName]time.Duration{}}
}

// Add queues an object.
func (w *WorkQueue) Add(key types.NamespacedName) { w.Changed[key] = true }

// AddAll queues every quota Workload, after a change that may concern all of them.
func (w *WorkQueue) AddAll(cl *Cluster) {
	for key := range cl.Workloads {
		w.Add(key)
	}
}

// Forget drops all awaited times, as a manager does that exits.
func (w *WorkQueue) Forget() { clear(w.Awaited) }

// AwaitAll queues every quota Workload for a time. Those that have changed by then still come first.
func (w *WorkQueue) AwaitAll(cl *Cluster, at time.Duration) {
	for key := range cl.Workloads {
		w.Awaited[key] = at
	}
}

// IsDue reports whether an object has to be reconciled by now.
func (w *WorkQueue) IsDue(now time.Duration) bool {
	at, isAwaited := w.Next()
	return len(w.Changed) > 0 || isAwaited && at <= now
}

// Next returns the time at which an object has to be reconciled without an event.
func (w *WorkQueue) Next() (at time.Duration, isAwaited bool) {
	for _, one := range w.Awaited {
		if !isAwaited || one < at {
			at, isAwaited = one, true
		}
	}
	return at, isAwaited
}

// Wake adds the objects whose time has come.
func (w *WorkQueue) Wake(now time.Duration) {
	for key, at := range w.Awaited {
		if at <= now {
			w.Add(key)
			delete(w.Awaited, key)
		}
	}
}

// Due removes and returns the objects that have to be reconciled by now.
func (w *WorkQueue) Due(now time.Duration) []types.NamespacedName {
	w.Wake(now)
	return w.TakeChanged()
}

// TakeChanged removes and returns the objects that have changed.
func (w *WorkQueue) TakeChanged() []types.NamespacedName {
	keys := slices.SortedFunc(maps.Keys(w.Changed), CompareKeys)
	// To iterate over a map takes time for the most entries that it ever had.
	w.Changed = map[types.NamespacedName]bool{}
	for _, key := range keys {
		delete(w.Awaited, key)
	}
	return keys
}
