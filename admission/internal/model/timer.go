package model

import "time"

// A timer is the time at which a stage may be pending again. A stage that backs off has one in Model.Timers, and others have none.
type timer struct {
	At    time.Time
	stage *Stage
	index int
}

// Precedes compares the times.
func (t *timer) Precedes(other *timer) bool { return t.At.Before(other.At) }

// Place is for package ranking.
func (t *timer) Place() *int { return &t.index }

// setTimer sets the timer of a stage to its RequeueAt, or removes it if that time has passed.
func (m *Model) setTimer(s *Stage) {
	if s.timer != nil && s.timer.At.Equal(s.RequeueAt) {
		return
	}
	m.DropTimer(s)
	if s.RequeueAt.After(m.Now) {
		s.timer = &timer{At: s.RequeueAt, stage: s}
		m.Timers.Push(s.timer)
	}
}

// DropTimer removes the timer of a stage, if it has one.
func (m *Model) DropTimer(s *Stage) {
	if s.timer != nil {
		m.Timers.Drop(s.timer)
		s.timer = nil
	}
}

// FireTimers updates the stages whose back-off has expired.
func (m *Model) FireTimers() {
	for m.Timers.Len() > 0 && !m.Timers.First().At.After(m.Now) {
		s := m.Timers.First().stage
		m.DropTimer(s)
		m.Refresh(s)
	}
}
