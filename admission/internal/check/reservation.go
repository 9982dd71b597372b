package check

import (
	"cmp"
	"slices"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/flavor"
	"github.com/tranche-dev/tranche/admission/internal/model"
	"github.com/tranche-dev/tranche/admission/internal/queuespec"
	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/queue"
)

// BorrowedPeaks returns the JobSets whose peak reservations borrow from the quota of a stage's own ClusterQueue: those of other ClusterQueues
// that use more than their nominal quota of some flavor and resource, as do the Cohorts above them up to the first common one. The JobSet that
// was submitted last is first.
func (ck *Checker) BorrowedPeaks(l *Candidate) []*model.JobSet {
	if ck.m.Peaks == 0 {
		return nil
	}
	var all []*model.JobSet
	for _, q := range l.Queue.CohortTree.Queues {
		if q == l.Queue || len(q.PeakReservers) == 0 {
			continue
		}
		for j := range q.PeakReservers {
			if slices.ContainsFunc(j.PeakReserved, func(c quota.Charge) bool { return borrows(q.Node, l.Queue.Node, c.ID) }) {
				all = append(all, j)
			}
		}
	}
	slices.SortFunc(all, func(a, b *model.JobSet) int {
		return cmp.Or(b.Submitted.Compare(a.Submitted), cmp.Compare(b.UID, a.UID))
	})
	return all
}

// PreemptorsBehind returns the other stages whose reservations do not count for a stage: those that come after it in its queue and may not preempt it,
// and those that yield to it. They are in reverse queue order.
func (ck *Checker) PreemptorsBehind(l *Candidate) []*model.Stage {
	var behind []*model.Stage
	for s := range l.Queue.Preemptors {
		if s != l.Stage && !s.IsReservedAgainst(l.Stage) {
			behind = append(behind, s)
		}
	}
	slices.SortFunc(behind, model.ComparePreemptors)
	for _, s := range l.yielding {
		if s.PreemptQueue != nil {
			behind = append(behind, s)
		}
	}
	return behind
}

// borrowedPreemptReservations returns the stages in other queues that wait to borrow quota that a stage may reclaim, if it stays within the quota of its own
// ClusterQueue: a stage that only waits has no more right to that quota than a stage that holds it. They are in reverse queue order.
//
// In each queue, the last stage first, they are the stages before the first one whose reservation does not borrow once the reservations listed
// before it are removed. A reservation borrows if its ClusterQueue, and each Cohort above it below the first common one, exceed their own quota.
func (ck *Checker) borrowedPreemptReservations(l *Candidate) []*model.Stage {
	policy := l.Queue.Preemption.ReclaimWithinCohort
	if !queuespec.AllowsPreemption(policy) {
		return nil
	}
	var borrowed []*model.Stage
	keeps := map[*model.ClusterQueue]struct{}{l.Queue: {}}
	ck.m.Tree.WhatIfEvicted(func() bool {
		// All queues at once: a reservation that is removed may bring another one within the quota of a common Cohort.
		for _, s := range l.Queue.CohortTree.Preemptors() {
			q := s.PreemptQueue
			if _, ok := keeps[q]; ok {
				continue
			}
			if !slices.ContainsFunc(s.PreemptReserved, func(c quota.Charge) bool { return borrows(q.Node, l.Queue.Node, c.ID) }) {
				keeps[q] = struct{}{}
				continue
			}
			q.Node.Release(s.PreemptReserved)
			if policy == kueue.PreemptionPolicyAny || s.Priority < l.Stage.Priority {
				borrowed = append(borrowed, s)
			}
		}
		return true
	})
	return borrowed
}

func borrows(n, from *quota.Node, id quota.ID) bool {
	for ; n != nil && !n.IsAbove(from); n = n.Parent() {
		if n.Excess(id, 0) <= 0 {
			return false
		}
	}
	return true
}

// wouldBorrow reports whether a stage uses more than the quota of its own ClusterQueue once all its victims have left. A launcher counts with the stages that it
// starts: otherwise it would take a reservation that is of no use to them, and hold accelerators only in order to wait.
func (ck *Checker) wouldBorrow(l *Candidate) bool {
	return ck.m.Tree.WhatIfEvicted(func() bool {
		for _, v := range l.Victims {
			model.EvictionUnitOf(v.Holder).Queue.Node.Release(v.Holder.Usage)
		}
		needs := launchersNeeds(ck, l)
		return !slices.ContainsFunc(needs, func(need quota.Usage) bool { return !l.Queue.Node.BorrowsAny(need) })
	})
}

// mayBorrowNothing reports whether wouldBorrow may be false for a stage that was checked. It looks only at what its ClusterQueue uses.
func mayBorrowNothing(ck *Checker, l *Candidate) bool {
	if l.Queue.MayPreempt() || len(l.Queue.Preemptors) > 0 || spare(l.PodSets) > 0 || len(l.JobSet.PeakReservedIn(l.Queue)) > 0 {
		return true
	}
	return ck.m.Tree.WhatIfEvicted(func() bool {
		for choice := range flavor.Choices(l.Items, flavor.MaxChoices) {
			if !l.Queue.Node.BorrowsAny(choice.Usage(l.Items)) {
				return true
			}
		}
		return false
	})
}

// waitsForLater reports whether a reservation of a stage that comes later in its queue counts for a stage. The stage does not block that one.
func (l *Candidate) waitsForLater() bool {
	for s := range l.Queue.Preemptors {
		if s != l.Stage && s.Element != nil && !s.Element.Precedes(l.Stage.Element) && s.IsReservedAgainst(l.Stage) {
			return true
		}
	}
	return false
}

// IsHeldUpBy reports whether the reservation of a preemptor counts for a stage: not if it is its own, or that of a stage that comes later in its
// queue and may not preempt it, or yields to it.
func (l *Candidate) IsHeldUpBy(s *model.Stage) bool {
	isLater := s.PreemptQueue == l.Queue && !s.IsReservedAgainst(l.Stage)
	return s != l.Stage && !isLater && (s.OwnerUID == "" || s.OwnerUID != l.Stage.OwnerUID) && !slices.Contains(l.yielding, s)
}

// preemptorInFront returns a stage of a ClusterQueue with StrictFIFO that waits for its victims and may preempt the stage, although past usage puts it behind. It
// comes first: otherwise the stage, perhaps a victim itself, would block it for quota that is reserved for it, be admitted, and be preempted again.
func (l *Candidate) preemptorInFront() *model.Stage {
	if l.Queue.Strategy != queue.Strict || l.Stage.Element.Passes() {
		return nil
	}
	var first *model.Stage
	for s := range l.Queue.Preemptors {
		isOther := s != l.Stage && s.Element != nil && !s.ReservesNominal && (s.OwnerUID == "" || s.OwnerUID != l.Stage.OwnerUID)
		if isOther && !s.Element.Precedes(l.Stage.Element) && s.MayPreemptEarlier(l.Stage, l.Queue) && (first == nil || model.CompareStages(s, first) < 0) {
			first = s
		}
	}
	if first != nil {
		l.Queue.CohortTree.AwaitsTurn[l.Queue] = struct{}{}
	}
	return first
}
