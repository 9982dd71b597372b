package model

import (
	"github.com/tranche-dev/tranche/admission/internal/queuespec"
	"github.com/tranche-dev/tranche/admission/internal/unopened"
	"github.com/tranche-dev/tranche/admission/preempt"
	"github.com/tranche-dev/tranche/admission/quota"
)

// A Schedule has the cohort trees, and the ClusterQueues that the next scheduling cycle checks.
type Schedule struct {
	// IsStale is true if the cohort trees have to be rebuilt. Revision changes whenever they are.
	IsStale     bool
	Revision    uint64
	cohortTrees map[*quota.Node]*CohortTree
	// Dirty has the cohort trees in which a stage may be pending and not parked.
	Dirty []*CohortTree
	// Unopened are the JobSets with a stage that must not open before one of some topics is woken, or before the cohort trees change.
	Unopened unopened.Registry[*JobSet, OpeningTopic]
}

const (
	// AnyClaim is the topic of stages that wait for claims of other JobSets to become smaller. Below FewerAhead each JobSet has its own topic, on
	// which stages are parked that wait for its claim.
	AnyClaim quota.ID = -1
	// AllReady is the topic of stages that wait for the pods of all admitted stages to be ready.
	AllReady quota.ID = -2
	// OthersBorrow is the topic of stages that may preempt in other ClusterQueues once these borrow more.
	OthersBorrow quota.ID = -3
	// OwnClaims is the topic of stages that wait for claims of JobSets in their own ClusterQueue to become smaller.
	OwnClaims quota.ID = -4
	// besideDue is the first of the topics of BesideDue. NewTopic returns none so low.
	besideDue quota.ID = -1 << 30
	// FewerAhead is the topic of stages that wait until fewer JobSets are prepared ahead. Those of NewTopic are below it.
	FewerAhead quota.ID = -5
)

// BesideDue returns the topic of stages that wait until a ClusterQueue has so much of a flavor and resource left beside its due stage.
func BesideDue(id quota.ID) quota.ID { return besideDue + id }

// WakeQueueAndPreemptors wakes all pending stages of a ClusterQueue, and all in its cohort tree that wait for victims to leave.
func (sc *Schedule) WakeQueueAndPreemptors(q *ClusterQueue) {
	if q == nil || sc.IsStale || q.CohortTree == nil {
		return
	}
	sc.WakeQueue(q)
	for _, other := range q.CohortTree.Queues {
		if len(other.Preemptors) > 0 {
			sc.WakeQueue(other)
		}
	}
}

// WakeCoAdmissionGroup wakes all members that wait for the others. If there are too many members, none is admitted whatever the others do.
func (sc *Schedule) WakeCoAdmissionGroup(b *CoAdmissionGroup) {
	if sc.IsStale || len(b.Members) > MaxTogether+1 {
		return
	}
	for _, s := range b.Members {
		if s.QueuedIn != nil && s.QueuedIn.PendingQueue.Wake(b.Topic, 0) {
			sc.ScheduleCycle(s.QueuedIn)
		}
	}
}

// ScheduleCycle makes the next call of Decide check a queue.
func (sc *Schedule) ScheduleCycle(q *ClusterQueue) {
	if sc.IsStale || q.CohortTree.Leader != queuespec.Tranche {
		return
	}
	if !q.IsScheduled {
		q.IsScheduled = true
		q.CohortTree.Awake = append(q.CohortTree.Awake, q)
	}
	sc.scheduleTree(q.CohortTree)
}

// scheduleTree makes the next call of Decide run a cycle of a cohort tree.
func (sc *Schedule) scheduleTree(g *CohortTree) {
	if !sc.IsStale && !g.IsDirty && g.Leader == queuespec.Tranche {
		g.IsDirty = true
		sc.Dirty = append(sc.Dirty, g)
	}
}

// wake wakes the stages that may have waited for the released quota: all below the node that the release reaches.
func (m *Model) wake(top *quota.Node, released quota.Usage, g *CohortTree) {
	if m.Schedule.IsStale {
		return
	}
	for _, c := range released {
		m.Schedule.wakeUnopened(g, c.ID)
		yieldable := m.yieldable(g, c.ID)
		for q := range g.Parked[c.ID] {
			if !q.PendingQueue.Sleeps(c.ID) {
				delete(g.Parked[c.ID], q)
			} else if top.IsAbove(q.Node) {
				m.wakeIn(q, c.ID, yieldable)
			}
		}
		for q := range g.Parked[BesideDue(c.ID)] {
			m.WakeBeside(q, c.ID)
		}
	}
}

// wakeIn wakes the stages of a queue for which enough of a flavor and resource is available, or would be if the reservations that may yield to
// them did.
func (m *Model) wakeIn(q *ClusterQueue, id quota.ID, y yieldable) {
	m.WakeBeside(q, id)
	enough := q.Node.Available(id).Plus(y.nominal)
	if peaks := y.peaks.Minus(q.AdvanceReserved.Of(id)); peaks > 0 {
		enough = max(enough, min(enough.Plus(peaks), unused(m, q, id)))
	}
	if q.PendingQueue.Wake(id, int64(enough)) {
		m.Schedule.ScheduleCycle(q)
	}
}

// unused returns how much of its own quota a ClusterQueue does not use, now or when all evicted stages have left.
func unused(m *Model, q *ClusterQueue, id quota.ID) quota.Amount {
	excess := q.Node.Excess(id, 0)
	m.Tree.WhatIfEvicted(func() bool {
		excess = min(excess, q.Node.Excess(id, 0))
		return true
	})
	return -excess
}

// A yieldable is at most how much is reserved of a flavor and resource in a cohort tree by reservations that yield to some stages: of nominal quota
// against borrowers, and for peaks. The latter yield only to stages of other ClusterQueues that borrow nothing.
type yieldable struct{ nominal, peaks quota.Amount }

func (m *Model) yieldable(g *CohortTree, id quota.ID) yieldable {
	var y yieldable
	for s := range g.NominalReservers {
		y.nominal = y.nominal.Plus(s.PreemptReserved.Of(id))
	}
	if m.Peaks == 0 {
		return y
	}
	for _, q := range g.Queues {
		y.peaks = y.peaks.Plus(q.AdvanceReserved.Of(id))
	}
	return y
}

// WakeTopic wakes the stages of a cohort tree that are parked on a topic.
func (sc *Schedule) WakeTopic(g *CohortTree, topic quota.ID) {
	if sc.IsStale {
		return
	}
	for q := range g.Parked[topic] {
		q.PendingQueue.Wake(topic, 0)
		sc.ScheduleCycle(q)
	}
	delete(g.Parked, topic)
	sc.wakeUnopened(g, topic)
}

// wakeIfLowered makes the next call of Decide check all stages that may preempt a unit of which the priority has been lowered: in its own
// ClusterQueue, and in those that reclaim quota.
func (sc *Schedule) wakeIfLowered(before *preempt.Holder, now *evictionUnit) {
	if sc.IsStale || before == nil || now.Holder == nil || now.Holder.Priority >= before.Priority || now.Queue.CohortTree == nil {
		return
	}
	for _, q := range now.Queue.CohortTree.Queues {
		policy := q.Preemption.ReclaimWithinCohort
		if q == now.Queue {
			policy = q.Preemption.WithinClusterQueue
		}
		if queuespec.AllowsPreemption(policy) {
			sc.WakeQueue(q)
		}
	}
}

// endFairTurn wakes the stages that wait for their turn when the last stage that fair sharing has evicted from a ClusterQueue has left.
func (sc *Schedule) endFairTurn(q *ClusterQueue) {
	if sc.IsStale || q.CohortTree == nil || q.Holders.IsInTurn() {
		return // rebuilding the cohort trees wakes all stages
	}
	waiting := q.CohortTree.AwaitsTurn
	q.CohortTree.AwaitsTurn = map[*ClusterQueue]struct{}{}
	for other := range waiting {
		sc.WakeQueue(other)
	}
}

// WakeQueue makes the next call of Decide check all stages of a queue.
func (sc *Schedule) WakeQueue(q *ClusterQueue) {
	q.PendingQueue.WakeAll()
	sc.ScheduleCycle(q)
}
