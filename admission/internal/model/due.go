package model

import (
	"slices"
	"time"

	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/queue"
)

// A Due is a stage that has waited for quota so long that its ClusterQueue reserves quota for it: see package backfill. Of a co-admission group, the first
// member in each of its ClusterQueues is due for all members there.
type Due struct {
	Stage *Stage
	// At is when it became due.
	At time.Time
	// Place is its position among stages of all ClusterQueues: see backfill.Place.
	Place queue.Position
	// Queues are the ClusterQueues that reserve quota for it: its own, or all of its co-admission group.
	Queues []*ClusterQueue
	// Need is what has to be available for it in its own ClusterQueue. Of that, the ClusterQueue reserves nominal quota, and the whole cohort tree the rest
	// if IsFirst is true: it comes before the due stages of all other ClusterQueues of the tree.
	Need    quota.Usage
	IsFirst bool
	// Start is when it is expected to start, or zero if that is unknown, as of a scheduling cycle and a ChargeEpoch.
	Start              time.Time
	Cycle, ChargeEpoch uint64
}

// DueStage returns the stage for which the ClusterQueue reserves quota because it is due, or nil.
func (q *ClusterQueue) DueStage() *Stage {
	if q.Due == nil {
		return nil
	}
	return q.Due.Stage
}

// EndDue makes the next call of Decide determine which stage of a ClusterQueue is due, if a stage is, and wakes the stages of the cohort tree that depend on
// that. A co-admission group loses the reservations of all its ClusterQueues.
func (m *Model) EndDue(q *ClusterQueue) {
	if q.Due == nil {
		return
	}
	for _, other := range q.Due.Queues {
		former := other.Due.Stage
		other.Due = nil
		if g := other.CohortTree; g != nil && !m.Schedule.IsStale {
			g.DueQueues = slices.DeleteFunc(g.DueQueues, func(q *ClusterQueue) bool { return q == other })
			m.Schedule.wakeDue(g, other)
		}
		if former.ReservesNominal {
			m.CancelReservation(former)
		}
	}
}

// wakeDue wakes a ClusterQueue, and the stages of its cohort tree that depend on which stages are due. If the cohort trees are stale, rebuilding them wakes all
// stages.
func (sc *Schedule) wakeDue(g *CohortTree, q *ClusterQueue) {
	sc.WakeQueue(q)
	sc.WakeTopic(g, AnyDue)
	for _, other := range g.DueQueues {
		sc.WakeQueue(other)
	}
}

// LeftBeside returns at most how much of a flavor and resource a ClusterQueue has left of its nominal quota when its due stage has started, and the stages that
// have a time limit have ended. reserved is what is charged for the due stage already.
func (q *ClusterQueue) LeftBeside(m *Model, id quota.ID, reserved quota.Amount) quota.Amount {
	used := q.Node.Used(id)
	m.Tree.WhatIfEvicted(func() bool {
		used = min(used, q.Node.Used(id).Minus(reserved))
		return true
	})
	left := q.Node.Quota(id).Nominal.Minus(used).Minus(q.Due.Need.Of(id))
	for _, s := range q.Charged.All {
		if s.TimeLimit > 0 {
			left = left.Plus(s.Entry.Usage.Of(id))
		}
	}
	return left
}

// wakeBeside wakes the stages of a queue that wait for no more than what is left beside its due stage. If none is due any longer, all have been woken.
func (m *Model) wakeBeside(q *ClusterQueue, id quota.ID) {
	if q.Due == nil || !q.PendingQueue.Sleeps(BesideDue(id)) {
		return
	}
	reserved := quota.Amount(0)
	if s := q.Due.Stage; s.PreemptQueue == q {
		reserved = s.PreemptReserved.Of(id)
	}
	if q.PendingQueue.Wake(BesideDue(id), int64(q.LeftBeside(m, id, reserved))) {
		m.Schedule.ScheduleCycle(q)
	}
}
