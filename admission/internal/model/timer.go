package model

import (
	"time"

	"github.com/tranche-dev/tranche/admission/internal/timer"
)

// A timed is what has a timer: a stage that backs off, until it may be pending again, a JobSet, until a co-start reservation expires, or a ClusterQueue,
// until one of its stages is due, or may preempt another that has run for its minimum runtime.
type timed struct {
	stage  *Stage
	jobSet *JobSet
	queue  *ClusterQueue
}

// FireTimers updates the stages whose back-off has expired, and the JobSets with a co-start reservation that has, and wakes the ClusterQueues.
func (m *Model) FireTimers() {
	for {
		at, owner, ok := m.Timers.First()
		switch {
		case !ok || at.After(m.Now):
			return
		case owner.jobSet != nil:
			m.Timers.Drop(&owner.jobSet.Timer)
			m.UpdateJobSet(owner.jobSet)
		case owner.queue != nil:
			for _, t := range []**timer.Timer[timed]{&owner.queue.Timer, &owner.queue.DueTimer} {
				if at, isSet := (*t).At(); isSet && !at.After(m.Now) {
					m.Timers.Drop(t)
				}
			}
			m.Schedule.WakeQueue(owner.queue)
		default:
			m.Timers.Drop(&owner.stage.Timer)
			m.Refresh(owner.stage)
		}
	}
}

// AwaitDue wakes a ClusterQueue when a stage of it will be due.
func (m *Model) AwaitDue(q *ClusterQueue, at time.Time) {
	if first, isSet := q.DueTimer.At(); !isSet || at.Before(first) {
		m.Timers.Put(&q.DueTimer, at, timed{queue: q})
	}
}

// setTimer sets the timer of a stage to its RequeueAt, or removes it if that time has passed.
func (m *Model) setTimer(s *Stage) {
	if !s.RequeueAt.After(m.Now) {
		m.Timers.Drop(&s.Timer)
		return
	}
	m.Timers.Put(&s.Timer, s.RequeueAt, timed{stage: s})
}

// WakeAt wakes a ClusterQueue at some time, unless it is woken before.
func (q *ClusterQueue) WakeAt(m *Model, at time.Time) {
	if before, isSet := q.Timer.At(); !isSet || at.Before(before) {
		m.Timers.Put(&q.Timer, at, timed{queue: q})
	}
}
