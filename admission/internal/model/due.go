package model

import (
	"slices"
	"strings"
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
	// Need is what has to be available for it in its own ClusterQueue. Of that, backfill.Reservation is reserved: it is charged to no node.
	Need quota.Usage
	// awaitsLent and reserves are the results of AwaitsLentQuota and MayReserve when the charges of its ClusterQueue last changed.
	awaitsLent, reserves bool
	// Start is when it is expected to start, or zero if that is unknown, as of a scheduling cycle and a ChargeEpoch.
	Start              time.Time
	Cycle, ChargeEpoch uint64
}

// An Ending is a stage that surely has released its quota at some time.
type Ending struct {
	Stage  *Stage
	EndsAt time.Time
}

// Endings are those of a cohort tree, the first first, as of a scheduling cycle and a ChargeEpoch.
type Endings struct {
	All                []Ending
	Cycle, ChargeEpoch uint64
}

// DueStage returns the stage for which the ClusterQueue reserves quota because it is due, or nil.
func (q *ClusterQueue) DueStage() *Stage {
	if q.Due == nil {
		return nil
	}
	return q.Due.Stage
}

// NeedOfNominal returns how much the due stage of a ClusterQueue needs of its nominal quota.
func (d *Due) NeedOfNominal(q *ClusterQueue, id quota.ID) quota.Amount {
	return min(d.Need.Of(id), q.Node.Quota(id).Nominal)
}

// Uncharged returns the part of that which is not charged for the stage already, as for a preemptor.
func (d *Due) Uncharged(q *ClusterQueue, id quota.ID) quota.Amount {
	need := d.NeedOfNominal(q, id)
	if d.Stage.PreemptQueue == q {
		need = max(0, need.Minus(d.Stage.PreemptReserved.Of(id)))
	}
	return need
}

// AwaitsLentQuota reports whether the due stage of a ClusterQueue would be within its nominal quota, so that it waits only for others to return what
// they have borrowed.
func (q *ClusterQueue) AwaitsLentQuota() bool {
	for _, c := range q.Due.Need {
		if need := q.Due.Uncharged(q, c.ID); need > 0 && q.Node.Used(c.ID).Plus(need) > q.Node.Quota(c.ID).Nominal {
			return false
		}
	}
	return true
}

// NoteUse must be called when the due stage of a ClusterQueue, which may be nil, or its charges have changed. It wakes the stages of other ClusterQueues that
// must not borrow as long as the due stage waits only for lent quota, when that is over.
func (m *Model) NoteUse(q *ClusterQueue) {
	if q == nil || q.Due == nil {
		return
	}
	awaitedLent := q.Due.awaitsLent
	q.Due.awaitsLent = m.Tree.WhatIfEvicted(q.AwaitsLentQuota)
	if !m.Schedule.IsStale {
		q.setReserves(m.Tree.WhatIfEvicted(q.MayReserve))
	}
	if awaitedLent && !q.Due.awaitsLent {
		m.Schedule.WakeTopic(q.CohortTree, q.DueTopic)
	}
}

// KeepState takes over what a Due derives from the charges from the one that it replaces.
func (d *Due) KeepState(former *Due) { d.awaitsLent, d.reserves = former.awaitsLent, former.reserves }

// MayReserve reports whether there may be quota to reserve for the due stage of a ClusterQueue: that does not use all nominal quota that the stage needs, or
// the stage needs more.
func (q *ClusterQueue) MayReserve() bool {
	return slices.ContainsFunc(q.Due.Need, func(c quota.Charge) bool {
		nominal := q.Node.Quota(c.ID).Nominal
		return c.Amount > nominal || q.Node.Used(c.ID) < nominal
	})
}

// setReserves puts a ClusterQueue with a due stage in the list of those that may reserve, or removes it.
func (q *ClusterQueue) setReserves(reserves bool) {
	if reserves == q.Due.reserves {
		return
	}
	q.Due.reserves = reserves
	list := &q.CohortTree.ReservingQueues
	at, _ := slices.BinarySearchFunc(*list, q, func(a, b *ClusterQueue) int { return strings.Compare(a.Name, b.Name) })
	if reserves {
		*list = slices.Insert(*list, at, q)
	} else {
		*list = slices.Delete(*list, at, at+1)
	}
}

// EndDue makes the next call of Decide determine which stage of a ClusterQueue is due, if a stage is, and wakes the stages of the cohort tree that would have
// delayed the former one. A co-admission group is no longer due in any of its ClusterQueues.
func (m *Model) EndDue(q *ClusterQueue) {
	if q.Due == nil {
		return
	}
	for _, other := range q.Due.Queues {
		g := other.CohortTree
		if g != nil && !m.Schedule.IsStale {
			other.setReserves(false)
		}
		other.Due = nil
		if g != nil && !m.Schedule.IsStale {
			g.DueQueues = slices.DeleteFunc(g.DueQueues, func(q *ClusterQueue) bool { return q == other })
			m.Schedule.WakeQueue(other)
			m.Schedule.WakeTopic(g, other.DueTopic)
		}
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
