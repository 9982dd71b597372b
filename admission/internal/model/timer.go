package model

import "time"

// A Timed is what has a timer: a stage that backs off, until it may be pending again; a JobSet, until a co-start reservation expires; or a ClusterQueue,
// until one of its stages is due, or may preempt another that has run for its minimum runtime.
type Timed struct {
	Stage  *Stage
	JobSet *JobSet
	Queue  *ClusterQueue
}

// setTimer sets the timer of a stage to its RequeueAt, or removes it if that time has passed.
func (m *Model) setTimer(s *Stage) {
	if !s.RequeueAt.After(m.Now) {
		m.Timers.Drop(&s.Timer)
		return
	}
	m.Timers.Put(&s.Timer, s.RequeueAt, Timed{Stage: s})
}

// WakeAt wakes a ClusterQueue at some time, unless it is woken before.
func (q *ClusterQueue) WakeAt(m *Model, at time.Time) {
	if before, isSet := q.Timer.At(); !isSet || at.Before(before) {
		m.Timers.Put(&q.Timer, at, Timed{Queue: q})
	}
}
