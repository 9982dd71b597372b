package admission

import (
	"slices"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/flavor"
	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/queue"
)

// The head of a ClusterQueue with StrictFIFO that has a right to nominal quota, and may not reclaim all of it from borrowers, reserves the idle
// nominal quota of its ClusterQueue: otherwise a stream of small borrowers could starve it. The reservation is like that of a preemptor, but
// blocks borrowers only: a stage that stays within the nominal quota of its own ClusterQueue ignores it. So does a stage that its JobSet has to
// run before it releases quota: stage safety has promised that quota.

// nominalReservation returns the usage to reserve for a stage that waits for quota, or nothing: with the first flavors with which the stage would
// use only nominal quota of its ClusterQueue, or of a Cohort below the root. The part that fits is reserved with the rest. A member of a
// co-admission group reserves nothing: it needs quota of all ClusterQueues of the group at once.
func (e *Engine) nominalReservation(l *candidate) quota.Usage {
	if !l.isShort || !l.q.mayKeepNominal() || l.s.membership != nil {
		return nil
	}
	var reserved quota.Usage
	e.tree.WhatIfEvicted(func() bool {
		if l.s.preemptQueue == l.q {
			l.q.node.Release(l.s.preemptReserved)
		}
		for choice := range flavor.Choices(l.items, flavor.MaxChoices) {
			if usage, ok := l.q.entitledTo(choice.Usage(l.items)); ok {
				reserved = usage
				break
			}
		}
		return true
	})
	return reserved
}

// mayKeepNominal reports whether the head of a ClusterQueue reserves nominal quota against borrowers, because it may not reclaim all of it.
func (q *clusterQueue) mayKeepNominal() bool {
	return q.strategy == queue.Strict && q.preemption.ReclaimWithinCohort != kueue.PreemptionPolicyAny && q.node.Parent() != nil
}

// entitledTo returns the part of a usage that a ClusterQueue need not borrow, or only from a Cohort below the root. It is not ok if some of the
// usage is not available and would have to be borrowed from farther away.
func (q *clusterQueue) entitledTo(usage quota.Usage) (part quota.Usage, ok bool) {
	for _, c := range usage {
		nominal := q.node.Quota(c.ID).Nominal
		switch unused := max(0, nominal.Minus(q.node.Used(c.ID))); {
		case c.Amount <= nominal:
			part.Add(c.ID, min(c.Amount, unused))
		case q.node.Level(c.ID, c.Amount) < q.node.Root().Height():
			part.Add(c.ID, c.Amount)
		case c.Amount <= q.node.Available(c.ID):
			part.Add(c.ID, unused)
		default:
			return nil, false
		}
	}
	return part, true
}

// keepNominal reserves nominal quota for a stage that waits for it, and reports whether there is any to reserve.
func (e *Engine) keepNominal(l *candidate) bool {
	reserved := e.nominalReservation(l)
	if len(reserved) == 0 {
		return false
	}
	if !l.s.keepsNominal || l.s.preemptQueue != l.q || !l.s.preemptReserved.Equal(reserved) {
		e.reserveForPreemptor(l.s, l.q, reserved)
		l.s.keepsNominal = true
		l.q.cohortTree.keepers[l.s] = struct{}{}
		e.enqueue(l.s)
	}
	return true
}

// keptNominal returns the stages whose nominal reservations do not count for a stage: those of other ClusterQueues if it stays within nominal
// quota itself, and all if its JobSet has to run it before releasing quota, since the others may wait for that. Stages that yield anyway are left
// out. The result is in reverse queue order.
func (l *candidate) keptNominal(yielding []*stage) []*stage {
	var kept []*stage
	for s := range l.q.cohortTree.keepers {
		isOwn := s.preemptQueue == l.q
		isBehind := isOwn && (s == l.s || s.element == nil || !s.element.Precedes(l.s.element))
		if s.element != nil && !isBehind && (l.s.element.Passes || !isOwn) && !slices.Contains(yielding, s) {
			kept = append(kept, s)
		}
	}
	slices.SortFunc(kept, comparePledged)
	return kept
}
