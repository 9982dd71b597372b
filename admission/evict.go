package admission

import (
	"maps"
	"slices"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// evict decides that a stage has to give up what it holds.
func (e *Engine) evict(s *stage, d Evict) Decision {
	e.lastDecision++
	e.takings++
	e.inFlight[e.lastDecision] = s.key
	s.evicting = e.lastDecision
	d.ID, d.Stage, d.UID = s.evicting, s.key, s.uid
	s.isTakenFairly = d.Preemption != nil && d.Preemption.Reason == kueue.InCohortFairSharingReason
	return d
}

// dropEviction ends the decision to evict a stage that has given back what it held before that was written. Whatever it will hold next is not
// meant by it.
func (e *Engine) dropEviction(s *stage) {
	if s.reservation == nil && s.assumed == nil && s.evicting != 0 {
		delete(e.inFlight, s.evicting)
		s.evicting = 0
	}
}

// isLeaving tells whether a stage has been evicted, or will be, and still holds quota until its pods have ended. One that is about to be
// admitted again still shows its last eviction.
func (s *stage) isLeaving() bool {
	return s.entry.isCharged() && (s.evicting != 0 || s.isEvicted && s.reservation != nil)
}

// takesAlong tells whether all else of the JobSet leaves with a stage. A growth goes alone.
func (s *stage) takesAlong() bool { return s.isLeaving() && !s.isGrowth }

// noteIfOverdue makes the next call of Decide look at a stage that holds quota in a queue which has been stopped.
func (e *Engine) noteIfOverdue(s *stage) {
	if s.entry.isCharged() && !s.isLeaving() && (s.stoppedBy().reason != "") {
		e.overdue[s] = struct{}{}
		return
	}
	delete(e.overdue, s)
}

type stopped struct{ reason, message string }

// stoppedBy says which queue has been stopped so that the stage must go: with Hold, those that wait for AdmissionChecks must, with
// HoldAndDrain all.
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

// drain evicts what queues that have been stopped must not hold any more.
func (e *Engine) drain(decisions []Decision) []Decision {
	for _, s := range slices.SortedFunc(maps.Keys(e.overdue), compareStages) {
		delete(e.overdue, s)
		if by := s.stoppedBy(); s.reservation != nil && by.reason != "" && !s.isLeaving() {
			decisions = append(decisions, e.evict(s, Evict{Reason: by.reason, Message: by.message}))
			e.account(s)
		}
	}
	return decisions
}

func compareStages(a, b *stage) int { return compareKeys(a.key, b.key) }
