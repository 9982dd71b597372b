package admission_test

import (
	"cmp"
	"maps"
	"slices"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quota"
)

// A hunt searches victims so that one quota Workload fits, by the rules that package preempt documents. It recomputes the state for each
// question.
type hunt struct {
	twin *twin
	wl   *kueue.Workload
	bill bill
	// exempt are the Workloads whose reservations do not count for the Workload.
	exempt map[*kueue.Workload]bool
	// short is the missing quota.
	short []quota.FlavorResource
}

// A prey is a candidate victim. A lower rank leaves first: candidates over which the Workload has an advantage, then others in the cohort, then
// those in the same ClusterQueue.
type prey struct {
	wl     *kueue.Workload
	queue  string
	rank   int
	reason string
	// finally is true if it was taken by the strategy LessThanOrEqualToFinalShare, and initially by the other one.
	finally, initially bool
}

const (
	byAdvantage = iota
	ofCohort
	ofQueue
)

// in evaluates ask for the places as they are when all that are being evicted, and some others, have left. The hunt's Workload is charged once or
// not at all.
func in[T any](h *hunt, gone []prey, charged []bill, ask func(own *place, places map[string]*place) T) T {
	places := h.twin.chargedBut(h.exempt)
	for _, wl := range h.twin.workloads {
		isGone := slices.ContainsFunc(gone, func(p prey) bool { return p.wl == wl })
		if a := h.twin.holds(wl); a != nil && (isGone || h.twin.isLeaving(wl)) {
			places["queue "+string(a.ClusterQueue)].charged.take(h.twin.billOf(wl))
		}
	}
	own := places["queue "+h.queue()]
	for _, b := range charged {
		own.charged.add(b)
	}
	return ask(own, places)
}

func (h *hunt) queue() string { return string(h.twin.localQueueOf(h.wl).Spec.ClusterQueue) }

func (h *hunt) policies() kueue.ClusterQueuePreemption {
	return *h.twin.queues[h.queue()].Spec.Preemption
}

// find returns the victims, or reports that it is enough to wait for those that are being evicted already.
func (h *hunt) find() (victims []prey, awaits bool) {
	if h.fits(nil, false) {
		return nil, true
	}
	in(h, nil, nil, func(own *place, _ map[string]*place) bool {
		for fr, a := range h.bill {
			if !own.fits(bill{fr: a}) {
				h.short = append(h.short, fr)
			}
		}
		return true
	})
	if !h.mayTry() {
		return nil, false
	}
	all := h.candidates()
	switch {
	case len(all) == 0:
		return nil, false
	case h.twin.isFair:
		return h.fair(all), false
	}
	return h.classic(all), false
}

// fits reports whether the Workload fits when some have left, and, if required, borrows nothing then.
func (h *hunt) fits(gone []prey, mustNotBorrow bool) bool {
	return in(h, gone, nil, func(own *place, _ map[string]*place) bool {
		return own.fits(h.bill) && (!mustNotBorrow || !with(own, h.bill, func() bool { return own.parent != nil && own.isOver(keys(h.bill)) }))
	})
}

func keys(b bill) []quota.FlavorResource {
	return slices.DeleteFunc(slices.Collect(maps.Keys(b)), func(fr quota.FlavorResource) bool { return b[fr] == 0 })
}

// isOver reports whether more is used in a place and below than it has of any of these.
func (p *place) isOver(frs []quota.FlavorResource) bool {
	return slices.ContainsFunc(frs, func(fr quota.FlavorResource) bool {
		own, keep := p.has(fr)
		return p.uses(fr) > own+keep
	})
}

func (h *hunt) borrowsWhilePreempting() bool {
	b := h.policies().BorrowWithinCohort
	return b != nil && b.Policy == kueue.BorrowWithinCohortPolicyLowerPriority
}

// mayTry reports whether preemption can help at all: a Workload that may not preempt while borrowing must end up within some quota.
func (h *hunt) mayTry() bool {
	if h.borrowsWhilePreempting() || h.twin.isFair && h.policies().ReclaimWithinCohort != kueue.PreemptionPolicyNever {
		return true
	}
	return in(h, nil, nil, func(own *place, _ map[string]*place) bool {
		return !slices.ContainsFunc(h.short, func(fr quota.FlavorResource) bool {
			nominal, _ := quota.Of(fr.Resource, own.limits[fr].NominalQuota)
			return h.bill[fr] > nominal && !with(own, bill{fr: h.bill[fr]}, func() bool {
				for p := own; p.parent != nil; p = p.parent {
					if !p.isOver([]quota.FlavorResource{fr}) {
						return true
					}
				}
				return false
			})
		})
	})
}

// candidates returns all candidate victims, the first to leave first.
func (h *hunt) candidates() []prey {
	return in(h, nil, nil, func(own *place, places map[string]*place) (all []prey) {
		for _, wl := range h.twin.workloads {
			a := h.twin.holds(wl)
			if a == nil || h.twin.isLeaving(wl) || !slices.ContainsFunc(h.short, func(fr quota.FlavorResource) bool { return h.twin.billOf(wl)[fr] > 0 }) {
				continue
			}
			p := prey{wl: wl, queue: string(a.ClusterQueue), rank: ofCohort}
			theirs, policy := places["queue "+p.queue], h.policies().ReclaimWithinCohort
			if theirs.root() != own.root() {
				continue
			}
			if p.queue == h.queue() {
				p.rank, policy = ofQueue, h.policies().WithinClusterQueue
			} else if h.hasAdvantage(own, theirs) {
				p.rank = byAdvantage
			}
			if h.allows(policy, wl) && (p.rank == ofQueue || h.isOverBelow(theirs, meeting(own, theirs))) {
				all = append(all, p)
			}
		}
		slices.SortFunc(all, h.comparePrey)
		return all
	})
}

func (h *hunt) allows(policy kueue.PreemptionPolicy, wl *kueue.Workload) bool {
	switch lower := priorityOf(wl) < priorityOf(h.wl); policy {
	case kueue.PreemptionPolicyAny:
		return true
	case kueue.PreemptionPolicyLowerPriority:
		return lower
	case kueue.PreemptionPolicyNever:
		return false
	case kueue.PreemptionPolicyLowerOrNewerEqualPriority:
		return lower || priorityOf(wl) == priorityOf(h.wl) && wl.CreationTimestamp.After(h.twin.since(h.wl))
	}
	return false
}

// hasAdvantage reports whether the Workload would stay within the quota of its ClusterQueue, or of a Cohort above that, and the other one is
// outside of that.
func (h *hunt) hasAdvantage(own, theirs *place) bool {
	return with(own, h.bill, func() bool {
		for p := own; p != meeting(own, theirs); p = p.parent {
			if !p.isOver(keys(h.bill)) {
				return true
			}
		}
		return false
	})
}

// isOverBelow reports whether a ClusterQueue and all Cohorts above it, below top, borrow some of the missing quota.
func (h *hunt) isOverBelow(p, top *place) bool {
	for ; p != top; p = p.parent {
		if !p.isOver(h.short) {
			return false
		}
	}
	return true
}

// meeting returns the lowest place above both.
func meeting(a, b *place) *place {
	for p := a; p != nil; p = p.parent {
		for q := b; q != nil; q = q.parent {
			if p == q {
				return p
			}
		}
	}
	return nil
}

func (h *hunt) comparePrey(a, b prey) int {
	return cmp.Or(cmp.Compare(a.rank, b.rank), h.comparePreyOfOneRank(a, b))
}

// comparePreyOfOneRank orders the less important first, and of equals the one that got its quota last.
func (h *hunt) comparePreyOfOneRank(a, b prey) int {
	return cmp.Or(cmp.Compare(priorityOf(a.wl), priorityOf(b.wl)), h.twin.reservedAt(b.wl).Compare(h.twin.reservedAt(a.wl)), cmp.Compare(a.wl.UID, b.wl.UID))
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

// classic takes one candidate after the other until the Workload fits: either without borrowing, or without candidates that a borrower may not
// preempt.
func (h *hunt) classic(all []prey) []prey {
	attempts := []bool{false, true}
	switch best := all[0].rank; {
	case best == ofQueue || !h.borrowsWhilePreempting() && h.usesItsNominalQuota():
		attempts = []bool{false}
	case !h.borrowsWhilePreempting() && best != byAdvantage:
		attempts = []bool{true, false}
	}
	for _, mustNotBorrow := range attempts {
		var victims []prey
		for _, p := range all {
			if p.reason = h.reasonFor(p, mustNotBorrow); p.reason == "" || p.rank != ofQueue && !h.stillBorrows(p, victims) {
				continue
			}
			victims = append(victims, p)
			if h.fits(victims, mustNotBorrow) {
				return spare(victims, func(v []prey) bool { return h.fits(v, mustNotBorrow) })
			}
		}
	}
	return nil
}

func (h *hunt) usesItsNominalQuota() bool {
	return in(h, nil, nil, func(own *place, _ map[string]*place) bool {
		return slices.ContainsFunc(h.short, func(fr quota.FlavorResource) bool {
			nominal, _ := quota.Of(fr.Resource, own.limits[fr].NominalQuota)
			return own.uses(fr) >= nominal
		})
	})
}

func (h *hunt) stillBorrows(p prey, victims []prey) bool {
	return in(h, victims, nil, func(own *place, places map[string]*place) bool {
		theirs := places["queue "+p.queue]
		return h.isOverBelow(theirs, meeting(own, theirs))
	})
}

func (h *hunt) reasonFor(p prey, mustNotBorrow bool) string {
	b := h.policies().BorrowWithinCohort
	switch {
	case p.rank == ofQueue:
		return kueue.InClusterQueueReason
	case p.rank == byAdvantage:
		return kueue.InCohortReclamationReason
	case h.borrowsWhilePreempting() && priorityOf(p.wl) < priorityOf(h.wl) && (b.MaxPriorityThreshold == nil || priorityOf(p.wl) <= *b.MaxPriorityThreshold):
		return kueue.InCohortReclaimWhileBorrowingReason
	case mustNotBorrow:
		return kueue.InCohortReclamationReason
	}
	return ""
}

// spare drops victims that need not leave: the last but one is tried first.
func spare(victims []prey, suffices func([]prey) bool) []prey {
	for i := len(victims) - 2; i >= 0; i-- {
		if rest := slices.Delete(slices.Clone(victims), i, i+1); suffices(rest) {
			victims = rest
		}
	}
	return victims
}
