package admission

import (
	"slices"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quota"
)

// A preemptor's usage is reserved in its ClusterQueue until all its victims have left (quota.Node.Reserve), so that no other stage takes the
// quota that they release. A reservation counts in the state in which all evicted stages have left. Until then other stages may use idle quota if
// that state has enough for all reservations: two preemptors do not wait for each other's victims.

// reserveForPreemptor reserves a usage for a preemptor, and replaces its earlier reservation.
func (e *Engine) reserveForPreemptor(s *stage, q *clusterQueue, usage quota.Usage) {
	before, from := s.preemptReserved, s.preemptQueue
	top := e.unreserve(s)
	s.preemptReserved, s.preemptQueue = usage, q
	q.node.Reserve(usage)
	e.chargeEpoch++
	e.changedReservations = append(e.changedReservations, q)
	q.preemptors[s] = struct{}{}
	q.cohortTree.pledging[q] = struct{}{}
	if rest := before.Without(usage); len(rest) > 0 {
		s.gaveUp = e.cycles
		e.wake(top, rest, from.cohortTree)
	}
}

// unreserve removes the reservation, and returns the topmost node that the release reaches.
func (e *Engine) unreserve(s *stage) *quota.Node {
	if s.preemptQueue == nil {
		return nil
	}
	q := s.preemptQueue
	top := q.node.Unreserve(s.preemptReserved)
	e.changedReservations = append(e.changedReservations, q)
	delete(q.preemptors, s)
	if q.cohortTree != nil {
		delete(q.cohortTree.keepers, s)
		if len(q.preemptors) == 0 {
			delete(q.cohortTree.pledging, q)
		}
	}
	s.preemptReserved, s.preemptQueue, s.keepsNominal, s.passesPeaks = nil, nil, false, false
	return top
}

// cancelReservation cancels the reservation of a stage that no longer waits for it, and allows it no new one in this cycle for quota that is already being
// released.
func (e *Engine) cancelReservation(s *stage) {
	if s.preemptQueue != nil {
		s.gaveUp = e.cycles
	}
	e.releaseReservation(s)
}

// releaseReservation removes a reservation and wakes the stages that may use its quota.
func (e *Engine) releaseReservation(s *stage) {
	q, preemptReservation := s.preemptQueue, s.preemptReserved
	if top := e.unreserve(s); top != nil {
		e.wake(top, preemptReservation, q.cohortTree)
		if q.cohortTree != nil {
			if _, awaits := q.cohortTree.awaitsTurn[q]; awaits && !e.isStale {
				delete(q.cohortTree.awaitsTurn, q)
				e.wakeLine(q) // a later stage of the line may wait until the victims of this one have left
			}
		}
	}
}

// pledgedBehind returns the other stages whose reservations do not count for a stage: those that come after it in its queue, and those that yield
// to it. They are in reverse queue order.
func (e *Engine) pledgedBehind(l *candidate) []*stage {
	var behind []*stage
	for s := range l.q.preemptors {
		if s != l.s && s.element != nil && !s.element.Precedes(l.s.element) {
			behind = append(behind, s)
		}
	}
	slices.SortFunc(behind, comparePledged)
	for _, s := range l.yielding {
		if s.preemptQueue != nil {
			behind = append(behind, s)
		}
	}
	return behind
}

// comparePledged orders by queue position, the last first.
func comparePledged(a, b *stage) int { return b.element.Compare(a.element.Position) }

// borrowedPreemptReservations returns the stages in other queues that wait to borrow quota that a stage may reclaim, if it stays within the quota of its own
// ClusterQueue: a stage that only waits has no more right to that quota than a stage that holds it. They are in reverse queue order.
//
// In each queue, the last stage first, they are the stages before the first one whose reservation does not borrow once the reservations listed
// before it are removed. A reservation borrows if its ClusterQueue, and each Cohort above it below the first common one, exceed their own quota.
func (e *Engine) borrowedPreemptReservations(l *candidate) []*stage {
	policy := l.q.preemption.ReclaimWithinCohort
	if !allowsPreemption(policy) {
		return nil
	}
	var borrowed []*stage
	keeps := map[*clusterQueue]struct{}{l.q: {}}
	e.tree.WhatIfEvicted(func() bool {
		// All queues at once: a reservation that is removed may bring another one within the quota of a common Cohort.
		for _, s := range l.q.cohortTree.pledgers() {
			q := s.preemptQueue
			if _, ok := keeps[q]; ok {
				continue
			}
			if !slices.ContainsFunc(s.preemptReserved, func(c quota.Charge) bool { return borrows(q.node, l.q.node, c.ID) }) {
				keeps[q] = struct{}{}
				continue
			}
			q.node.Release(s.preemptReserved)
			if policy == kueue.PreemptionPolicyAny || s.priority < l.s.priority {
				borrowed = append(borrowed, s)
			}
		}
		return true
	})
	return borrowed
}

// pledgers returns all pending stages with a reservation, in reverse queue order.
func (g *cohortTree) pledgers() []*stage {
	var all []*stage
	for q := range g.pledging {
		for s := range q.preemptors {
			if s.element != nil {
				all = append(all, s)
			}
		}
	}
	slices.SortFunc(all, comparePledged)
	return all
}

func borrows(n, from *quota.Node, id quota.ID) bool {
	for ; n != nil && !n.IsAbove(from); n = n.Parent() {
		if n.Excess(id, 0) <= 0 {
			return false
		}
	}
	return true
}

// wouldBorrow reports whether a stage uses more than the quota of its own ClusterQueue once all its victims have left.
func (e *Engine) wouldBorrow(l *candidate) bool {
	borrows := false
	e.tree.WhatIfEvicted(func() bool {
		for _, v := range l.victims {
			evictionUnitOf(v.Holder).queue.node.Release(v.Holder.Usage)
		}
		borrows = l.q.node.BorrowsAny(l.usage)
		return true
	})
	return borrows
}

// dropPreemptReservations cancels the reservations that no longer fit, since another stage has got part of their quota. The stages are checked again, and get
// no new reservation in this cycle unless they evict a victim: so a cycle ends.
func (e *Engine) dropPreemptReservations(behind []*stage) {
	for _, s := range behind {
		if s.preemptQueue != nil && !e.canStillHave(s) {
			q := s.preemptQueue
			e.cancelReservation(s)
			e.wakeLine(q)
		}
	}
}

// canStillHave reports whether a reservation will fit when all stages that are being evicted have left.
func (e *Engine) canStillHave(s *stage) bool {
	return e.tree.WhatIfEvicted(func() bool {
		s.preemptQueue.node.Release(s.preemptReserved)
		return s.preemptQueue.node.Fits(s.preemptReserved)
	})
}
