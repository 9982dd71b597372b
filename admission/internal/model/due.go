package model

import (
	"slices"
	"time"

	"github.com/tranche-dev/tranche/admission/quota"
)

// A Due is a stage that has waited for quota so long that its ClusterQueue reserves quota for it: see package backfill.
type Due struct {
	Stage *Stage
	// At is when it became due.
	At time.Time
	// Need is what has to be available for it. Of that, its own ClusterQueue reserves nominal quota, and the whole cohort tree the rest if IsFirst is
	// true: it comes before the due stages of all other ClusterQueues of the tree.
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
// that.
func (sc *Schedule) EndDue(q *ClusterQueue) {
	if q.Due == nil {
		return
	}
	q.Due = nil
	g := q.CohortTree
	if sc.IsStale || g == nil {
		return // rebuilding the cohort trees wakes all stages
	}
	g.DueQueues = slices.DeleteFunc(g.DueQueues, func(other *ClusterQueue) bool { return other == q })
	sc.WakeQueue(q)
	sc.WakeTopic(g, AnyDue)
	for _, other := range g.DueQueues {
		sc.WakeQueue(other)
	}
}
