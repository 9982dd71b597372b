package model

import "time"

// A timed is what has a timer: a stage that backs off, until it may be pending again, a JobSet, until a co-start reservation expires, or a ClusterQueue,
// until one of its stages may preempt another that has run for its minimum runtime.
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
			m.Timers.Drop(&owner.queue.Timer)
			m.Schedule.WakeQueue(owner.queue)
		default:
			m.Timers.Drop(&owner.stage.Timer)
			m.Refresh(owner.stage)
		}
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
	if q.Timer == nil || at.Before(q.Timer.At()) {
		m.Timers.Put(&q.Timer, at, timed{queue: q})
	}
}
