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
	if rest := before.Without(usage); len(rest) > 0 {
		s.LostReservationIn = m.Cycles
		m.wake(top, rest, from.CohortTree)
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
	return top
}

// CancelReservation cancels the reservation of a stage that no longer waits for it, and allows it no new one in this cycle for quota that is already being
// released.
func (m *Model) CancelReservation(s *Stage) {
	if s.PreemptQueue != nil {
		s.LostReservationIn = m.Cycles
	}
	m.ReleaseReservation(s)
}

// ReleaseReservation removes a reservation and wakes the stages that may use its quota.
func (m *Model) ReleaseReservation(s *Stage) {
	q, preemptReservation := s.PreemptQueue, s.PreemptReserved
	if top := m.unreserve(s); top != nil {
		m.wake(top, preemptReservation, q.CohortTree)
		if q.CohortTree != nil {
			if _, awaits := q.CohortTree.AwaitsTurn[q]; awaits && !m.Schedule.IsStale {
				delete(q.CohortTree.AwaitsTurn, q)
				m.Schedule.WakeQueue(q) // a later stage of the line may wait until the victims of this one have left
			}
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
	if node == q.Node {
		m.wakeIn(q, id, m.yieldable(q.CohortTree, id))
	} else {
		m.wake(node, quota.Usage{{ID: id}}, q.CohortTree)
	}
}
