package preempt

import (
	"cmp"
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

	queue   *Queue
	leaving bool
}

// Queue returns the Queue that has the Holder, or nil.
func (h *Holder) Queue() *Queue { return h.queue }

// IsEvicting reports whether the Holder is being evicted.
func (h *Holder) IsEvicting() bool { return h.leaving }

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
