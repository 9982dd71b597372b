package admission_test

import (
	"slices"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/preempt"
	"github.com/tranche-dev/tranche/admission/quota"
)

// A hunt searches victims so that one quota Workload fits. It recomputes the state for each question. Package preempt chooses the victims: it has a
// twin of its own.
type hunt struct {
	twin *twin
	wl   *kueue.Workload
	bill bill
	// exempt are the Workloads whose reservations do not count for the Workload.
	exempt map[*kueue.Workload]bool
}

// A prey is a victim.
type prey struct {
	wl            *kueue.Workload
	queue, reason string
}

// in evaluates ask for the places as they are when all that are being evicted, and some others, have left. The hunt's Workload is not charged.
func in[T any](h *hunt, gone []prey, ask func(own *place, places map[string]*place) T) T {
	places := h.twin.chargedBut(h.exempt)
	for _, wl := range h.twin.workloads {
		isGone := slices.ContainsFunc(gone, func(p prey) bool { return p.wl == wl })
		if a := h.twin.holds(wl); a != nil && (isGone || h.twin.isLeaving(wl)) {
			places["queue "+string(a.ClusterQueue)].release(h.twin.chargeOf(wl))
		}
	}
	return ask(places["queue "+h.queue()], places)
}

func (h *hunt) queue() string { return string(h.twin.localQueueOf(h.wl).Spec.ClusterQueue) }

func (h *hunt) policies() kueue.ClusterQueuePreemption {
	return *h.twin.queues[h.queue()].Spec.Preemption
}

// find returns the victims, or reports that it is enough to wait for those that are being evicted already.
func (h *hunt) find() (victims []prey, awaits bool) {
	result := in(h, nil, func(own *place, places map[string]*place) preempt.Result {
		finder := preempt.NewFinder(own.tree)
		for _, wl := range h.twin.workloads {
			if a := h.twin.holds(wl); a != nil && !h.twin.isLeaving(wl) {
				p := places["queue "+string(a.ClusterQueue)]
				finder.Queue(p.Node).Add(&preempt.Holder{
					Of: wl, UID: wl.UID, Priority: int64(priorityOf(wl)), Queued: h.twin.since(wl), Reserved: h.twin.reservedAt(wl), Usage: p.usage(h.twin.chargeOf(wl)),
				})
			}
		}
		q := finder.Queue(own.Node)
		q.Preemption = h.policies()
		return finder.Find(preempt.Request{
			Queue: q, UID: h.wl.UID, Priority: int64(priorityOf(h.wl)), Queued: h.twin.since(h.wl), Usage: own.usage(h.bill),
		})
	})
	for _, v := range result.Victims {
		if wl, ok := v.Holder.Of.(*kueue.Workload); ok {
			victims = append(victims, prey{wl, string(h.twin.holds(wl).ClusterQueue), v.Reason})
		}
	}
	return victims, result.Outcome == preempt.Fits
}

// fits reports whether the Workload fits when some have left.
func (h *hunt) fits(gone []prey) bool {
	return in(h, gone, func(own *place, _ map[string]*place) bool { return own.fits(h.bill) })
}

// allows reports whether a policy for other ClusterQueues lets the Workload preempt another one.
func (h *hunt) allows(policy kueue.PreemptionPolicy, wl *kueue.Workload) bool {
	return policy == kueue.PreemptionPolicyAny || policy == kueue.PreemptionPolicyLowerPriority && priorityOf(wl) < priorityOf(h.wl)
}

// borrowsUpTo reports whether a ClusterQueue and all Cohorts above it, up to the first one that is also above another ClusterQueue, use more of
// something than they have.
func (p *place) borrowsUpTo(other *place, fr quota.FlavorResource) bool {
	for n := p.Node; n != nil && !n.IsAbove(other.Node); n = n.Parent() {
		if n.Excess(p.tree.Index.ID(fr), 0) <= 0 {
			return false
		}
	}
	return true
}

func (w *twin) reservedAt(wl *kueue.Workload) time.Time {
	if reservation(wl) == nil {
		return w.now
	}
	return conditionOf(wl, kueue.WorkloadQuotaReserved).LastTransitionTime.Time
}

// isLeaving reports whether a Workload that holds quota is evicted.
func (w *twin) isLeaving(wl *kueue.Workload) bool {
	return w.holds(wl) != nil && (w.evicting[keyOfWorkload(wl)] || reservation(wl) != nil && isTrue(wl, kueue.WorkloadEvicted))
}
