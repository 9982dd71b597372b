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
	// Need is what has to be available for it in its own ClusterQueue. Of that, backfill.Reservation is reserved: it is charged to no node.
	Need quota.Usage
	// Borrows is true if the stage can start only with quota that other ClusterQueues lend: then each charge in the cohort tree may end the reservation.
	Borrows bool
	// AwaitsLent and Reserves are kept by package backfill: if it waits only for lent quota, and if its ClusterQueue is one of ReservingQueues.
	AwaitsLent, Reserves bool
	// Shared is the part of the reservation that needs what other ClusterQueues may use, when that was last compared.
	Shared quota.Usage
	// Earliest is the earliest Start for which stages may have been refused that wait on DueTopic, and WokenIn the ChargeEpoch in which it was set for them.
	Earliest time.Time
	WokenIn  uint64
	// Start is when it is expected to start, or zero if that is unknown, as of a scheduling cycle, a ChargeEpoch and a state of the quota tree.
	Start              time.Time
	Cycle, ChargeEpoch uint64
	State              quota.State
}

// An Ending is a stage that surely has released its quota at some time.
type Ending struct {
	Stage  *Stage
	EndsAt time.Time
}

// Endings are those of a cohort tree, the first first, as of a scheduling cycle, a ChargeEpoch and an EntryEpoch.
type Endings struct {
	All                            []Ending
	Cycle, ChargeEpoch, EntryEpoch uint64
}

// DueStage returns the stage for which the ClusterQueue reserves quota because it is due, or nil.
func (q *ClusterQueue) DueStage() *Stage {
	if q.Due == nil {
		return nil
	}
	return q.Due.Stage
}

// Reorder makes the pending queue read again what orders its stages. It wakes stages that now come before the blocking or the due stage, and reports whether it
// woke any.
func (q *ClusterQueue) Reorder() bool {
	if q.Due == nil {
		return q.PendingQueue.Reorder(nil)
	}
	return q.PendingQueue.Reorder(q.Due.Stage.Element)
}

// noteUse must be called when the charges of a ClusterQueue, which may be nil, have changed.
func (m *Model) noteUse(q *ClusterQueue) {
	if q == nil || m.Schedule.IsStale {
		return
	}
	if q.Due != nil {
		m.UseChanged(q)
	}
	for _, other := range q.CohortTree.DueQueues {
		if other.Due.Borrows {
			m.Schedule.scheduleTree(q.CohortTree)
			return
		}
	}
}

// EndDue makes the next call of Decide determine which stage of a ClusterQueue is due, if a stage is, and wakes the stages of the cohort tree that would have
// delayed the former one. A co-admission group is no longer due in any of its ClusterQueues.
func (m *Model) EndDue(q *ClusterQueue) {
	if q.Due == nil {
		return
	}
	for _, other := range q.Due.Queues {
		other.Due = nil
		if g := other.CohortTree; g != nil && !m.Schedule.IsStale {
			isOther := func(q *ClusterQueue) bool { return q == other }
			g.DueQueues = slices.DeleteFunc(g.DueQueues, isOther)
			g.ReservingQueues = slices.DeleteFunc(g.ReservingQueues, isOther)
			m.Schedule.WakeQueue(other)
			m.Schedule.WakeTopic(g, other.DueTopic)
		}
	}
}
