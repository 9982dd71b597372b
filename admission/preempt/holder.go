package preempt

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/admission/quota"
)

// A Holder is a unit of eviction: a Workload with a reservation, or all stages of a JobSet that have one. It must not change while a Queue has
// it.
type Holder struct {
	// Of is for the caller; this package does not read it.
	Of       any
	UID      types.UID
	Priority int64
	// Queued is the time of its queue position, and Reserved the time of its reservation.
	Queued, Reserved time.Time
	Usage            quota.Usage
	// Continues is true if the Holder, once preempted, comes before new requests of equal priority in its queue.
	Continues bool
	// IsTakenFairly is true if fair sharing evicts it. It is set before the Holder is evicted.
	IsTakenFairly bool
	// IsExempt is true if no preemption may evict the Holder.
	IsExempt bool
	// Started is when its pods were allowed to start, the last of them. It is zero while they are not.
	Started time.Time
	// Work is what it would lose.
	Work []Work

	queue   *Queue
	leaving bool
	// lostNow is what the current search found to be lost. It is 0 unless the Finder asks for the least work.
	lostNow float64
}

// IsLike reports whether another Holder has the same usage and what decides whether and when it is preempted, but for a preemption that has begun.
func (h *Holder) IsLike(o *Holder) bool {
	return h.Usage.Equal(o.Usage) && h.Priority == o.Priority && h.Continues == o.Continues && h.IsExempt == o.IsExempt &&
		h.Queued.Equal(o.Queued) && h.Reserved.Equal(o.Reserved) && h.Started.Equal(o.Started) && slices.EqualFunc(h.Work, o.Work, Work.Equal)
}

// Work is what a Holder has done on a constant number of accelerators since some time.
type Work struct {
	Accelerators quota.Amount
	Since        time.Time
	// SavedAt is the time of the last checkpoint, from which the Holder can go on. It does not count if it is in the future.
	SavedAt time.Time
}

// Equal reports whether the same is lost.
func (w Work) Equal(o Work) bool {
	return w.Accelerators == o.Accelerators && w.Since.Equal(o.Since) && w.SavedAt.Equal(o.SavedAt)
}

// lost returns the accelerator-time that is lost if the Holder is preempted, in seconds of a thousandth of an accelerator.
func (h *Holder) lost(now time.Time) float64 {
	var sum float64
	for _, w := range h.Work {
		since := w.Since
		if w.SavedAt.After(since) && !w.SavedAt.After(now) {
			since = w.SavedAt
		}
		sum += float64(w.Accelerators) * max(0, now.Sub(since).Seconds())
	}
	return sum
}

// Queue returns the Queue that has the Holder, or nil.
func (h *Holder) Queue() *Queue { return h.queue }

// IsEvicting reports whether the Holder is being evicted.
func (h *Holder) IsEvicting() bool { return h.leaving }

// compareNow orders Holders like compare, and by the work that is lost at equal priority.
func (h *Holder) compareNow(other *Holder) int {
	return cmp.Or(cmp.Compare(h.Priority, other.Priority), cmp.Compare(h.lostNow, other.lostNow), h.compare(other))
}

// compare orders Holders: the one that is preempted first is lower.
func (h *Holder) compare(other *Holder) int {
	switch {
	case h == other:
		return 0
	case h.Priority != other.Priority:
		return cmp.Compare(h.Priority, other.Priority)
	}
	if later := other.Reserved.Compare(h.Reserved); later != 0 {
		return later
	}
	return cmp.Compare(h.UID, other.UID)
}
