package admission

import (
	"maps"
	"slices"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// evict decides that a stage has to release its quota.
func (e *Engine) evict(s *stage, d Evict) Decision {
	e.lastDecision++
	e.chargeEpoch++
	e.inFlight[e.lastDecision] = s.key
	s.evicting = e.lastDecision
	d.ID, d.Stage, d.UID = s.evicting, s.key, s.uid
	s.isTakenFairly = d.Preemption != nil && d.Preemption.Reason == kueue.InCohortFairSharingReason
	return d
}

// dropEviction drops the decision to evict a stage that has released its quota before the decision was written. It does not apply to quota that
// the stage holds later.
func (e *Engine) dropEviction(s *stage) {
	if s.reservation == nil && s.assumed == nil && s.evicting != 0 {
		delete(e.inFlight, s.evicting)
		s.evicting = 0
	}
}

// isLeaving reports whether a stage has been evicted, or will be, and still holds quota until its pods have terminated. A stage that is about to
// be admitted again still shows its last eviction.
func (s *stage) isLeaving() bool {
	return s.entry.isCharged() && (s.evicting != 0 || s.isEvicted && s.reservation != nil)
}

// takesAlong reports whether the rest of the JobSet is evicted with a stage. A growth is evicted alone.
func (s *stage) takesAlong() bool { return s.isLeaving() && !s.isGrowth }

// noteIfOverdue makes the next call of Decide check a stage that holds quota in a queue that has been stopped.
func (e *Engine) noteIfOverdue(s *stage) {
	if s.entry.isCharged() && !s.isLeaving() && (s.stoppedBy().reason != "") {
		e.overdue[s] = struct{}{}
		return
	}
	delete(e.overdue, s)
}

type stopped struct{ reason, message string }

// stoppedBy returns which stopped queue evicts the stage: Hold evicts stages that wait for AdmissionChecks, HoldAndDrain evicts all.
func (s *stage) stoppedBy() stopped {
	drains := func(stop kueue.StopPolicy) bool {
		return stop == kueue.HoldAndDrain || stop == kueue.Hold && s.entry.phase == reserving
	}
	switch q, lq := s.entry.clusterQueue, s.localQueue; {
	case drains(q.stop):
		return stopped{kueue.WorkloadEvictedByClusterQueueStopped, "The ClusterQueue is stopped"}
	case drains(lq.stop):
		return stopped{kueue.WorkloadEvictedByLocalQueueStopped, "The LocalQueue is stopped"}
	}
	return stopped{}
}

// drain evicts stages from stopped queues.
func (e *Engine) drain(decisions []Decision) []Decision {
	for _, s := range slices.SortedFunc(maps.Keys(e.overdue), compareStages) {
		delete(e.overdue, s)
		if by := s.stoppedBy(); s.reservation != nil && by.reason != "" && !s.isLeaving() {
			decisions = append(decisions, e.evict(s, Evict{Reason: by.reason, Message: by.message}))
			e.refresh(s)
		}
	}
	return decisions
}

func compareStages(a, b *stage) int { return compareKeys(a.key, b.key) }
