package model

import "time"

// A timed is what has a timer: a stage that backs off, until it may be pending again; a JobSet, until a co-start reservation expires; or a
// ClusterQueue, until one of its stages is due.
type timed struct {
	stage  *Stage
	jobSet *JobSet
	queue  *ClusterQueue
}

// FireTimers updates the stages whose back-off has expired, the JobSets with a co-start reservation that has, and the ClusterQueues with a due stage.
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
			m.Timers.Drop(&owner.queue.DueTimer)
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
