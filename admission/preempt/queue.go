package preempt

import (
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quota"
)

// A Queue is a ClusterQueue with the Holders of its quota. Their usage must be charged to its node.
type Queue struct {
	// Preemption has the policies for requests of this ClusterQueue. The zero value is Never.
	Preemption kueue.ClusterQueuePreemption
	// MinimumRuntime is how long a Holder runs before it may be preempted. A request that has waited as long, and fits into the unused quota of its
	// own ClusterQueue, need not wait for Holders of other Queues.
	MinimumRuntime time.Duration
	// Level, if it is not nil, returns the past usage of a Holder's owner: at equal priority the highest is preempted first, regardless of the
	// reservation time. It may change between searches.
	Level func(*Holder) float64

	node *quota.Node
	// lists are by ID.
	lists []list
	// takenFairly is how many Holders are being evicted by fair sharing.
	takenFairly int
}

// Add adds a Holder.
func (q *Queue) Add(h *Holder) {
	h.queue, h.leaving = q, false
	for _, c := range h.Usage {
		for int(c.ID) >= len(q.lists) {
			q.lists = append(q.lists, list{})
		}
		q.lists[c.ID].id = c.ID
		q.lists[c.ID].insert(h)
	}
}

// Remove removes a Holder when its quota is released.
func (q *Queue) Remove(h *Holder) {
	if h.leaving {
		if h.IsTakenFairly {
			q.takenFairly--
		}
		q.node.UnmarkEvicting(h.Usage)
	} else {
		q.unlist(h)
	}
	h.queue, h.leaving = nil, false
}

// IsInTurn reports whether fair sharing evicts a Holder that has not left yet.
func (q *Queue) IsInTurn() bool { return q.takenFairly > 0 }

// Evict marks a Holder as being evicted. It stays charged until it is removed.
func (q *Queue) Evict(h *Holder) {
	if h.leaving {
		return
	}
	q.unlist(h)
	h.leaving = true
	if h.IsTakenFairly {
		q.takenFairly++
	}
	q.node.MarkEvicting(h.Usage)
}

func (q *Queue) unlist(h *Holder) {
	for _, c := range h.Usage {
		q.lists[c.ID].remove(h)
	}
}
