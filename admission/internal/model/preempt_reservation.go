package model

import (
	"slices"

	"github.com/tranche-dev/tranche/admission/quota"
)

// A preemptor's usage is reserved in its ClusterQueue until all its victims have left (quota.Node.Reserve), so that no other stage takes the
// quota that they release. A reservation counts in the state in which all evicted stages have left. Until then other stages may use idle quota if
// that state has enough for all reservations: two preemptors do not wait for each other's victims.

// ReserveForPreemptor reserves a usage for a preemptor, and replaces its earlier reservation.
func (m *Model) ReserveForPreemptor(s *Stage, q *ClusterQueue, usage quota.Usage) {
	before, from := s.PreemptReserved, s.PreemptQueue
	top := m.unreserve(s)
	s.PreemptReserved, s.PreemptQueue = usage, q
	q.Node.Reserve(usage)
	m.ChargeEpoch++
	m.ChangedReservations = append(m.ChangedReservations, q)
	q.Preemptors[s] = struct{}{}
	q.CohortTree.PreemptorQueues[q] = struct{}{}
	m.noteUse(q)
	if rest := before.Without(usage); len(rest) > 0 {
		s.LostReservationIn = m.Cycles
		m.wake(top, rest, from.CohortTree)
		m.Schedule.nominateAgain(top, from.CohortTree)
	}
}

// unreserve removes the reservation, and returns the topmost node that the release reaches.
func (m *Model) unreserve(s *Stage) *quota.Node {
	if s.PreemptQueue == nil {
		return nil
	}
	q := s.PreemptQueue
	top := q.Node.Unreserve(s.PreemptReserved)
	m.ChangedReservations = append(m.ChangedReservations, q)
	delete(q.Preemptors, s)
	if q.CohortTree != nil {
		delete(q.CohortTree.NominalReservers, s)
		if len(q.Preemptors) == 0 {
			delete(q.CohortTree.PreemptorQueues, q)
		}
	}
	s.PreemptReserved, s.PreemptQueue, s.ReservesNominal, s.PassesPeaks = nil, nil, false, false
	m.noteUse(q)
	return top
}

// CancelReservation cancels the reservation of a stage that no longer waits for it, and allows it no new one in this cycle for quota that is already being
// released.
func (m *Model) CancelReservation(s *Stage) {
	if q, reserved := s.PreemptQueue, s.PreemptReserved; q != nil {
		s.LostReservationIn = m.Cycles
		m.releaseReserved(m.unreserve(s), reserved, q)
	}
}

// SpendReservation refreshes a stage that has just been admitted with a usage, instead of its reservation. Only what it does not use of that is released.
func (m *Model) SpendReservation(s *Stage, usage quota.Usage) {
	q, rest := s.PreemptQueue, s.PreemptReserved.Without(usage)
	top := m.unreserve(s)
	if m.Refresh(s); top != nil {
		m.releaseReserved(top, rest, q)
	}
}

// releaseReserved wakes the stages that may use reserved quota that was released in a queue, up to a node, and those of the queue that wait until the
// victims of a preemptor of the queue have left. The ClusterQueues below the node nominate again.
func (m *Model) releaseReserved(top *quota.Node, released quota.Usage, q *ClusterQueue) {
	if len(released) > 0 {
		m.wake(top, released, q.CohortTree)
		m.Schedule.nominateAgain(top, q.CohortTree)
	}
	if q.CohortTree == nil || m.Schedule.IsStale {
		return
	}
	if _, awaits := q.CohortTree.AwaitsTurn[q]; awaits {
		delete(q.CohortTree.AwaitsTurn, q)
		m.Schedule.WakeQueue(q)
	}
}

// nominateAgain checks the nominees below a node again: what was their best choice, or fitted only after preemption, may not be any longer. So the
// nominee of a queue does not depend on whether a stage of the queue was parked before.
func (sc *Schedule) nominateAgain(top *quota.Node, g *CohortTree) {
	if sc.IsStale || g == nil {
		return
	}
	for q := range g.Nominated {
		if top.IsAbove(q.Node) {
			sc.ScheduleCycle(q)
		}
	}
}

// ComparePreemptors orders by queue position, the last first.
func ComparePreemptors(a, b *Stage) int { return b.Element.Compare(a.Element.Position) }

// Preemptors returns all pending stages with a reservation, in reverse queue order.
func (g *CohortTree) Preemptors() []*Stage {
	var all []*Stage
	for q := range g.PreemptorQueues {
		for s := range q.Preemptors {
			if s.Element != nil {
				all = append(all, s)
			}
		}
	}
	slices.SortFunc(all, ComparePreemptors)
	return all
}

// WakeSurplus wakes the stages that may use more of a flavor and resource below a node: a ClusterQueue, or a Cohort above it.
func (m *Model) WakeSurplus(q *ClusterQueue, node *quota.Node, id quota.ID) {
	m.Schedule.nominateAgain(node, q.CohortTree)
	if node == q.Node {
		m.wakeIn(q, id, m.yieldable(q.CohortTree, id))
	} else {
		m.wake(node, quota.Usage{{ID: id}}, q.CohortTree)
	}
}
