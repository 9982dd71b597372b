package model

// A timed is what has a timer: a stage that backs off, until it may be pending again, or a JobSet, until a co-start reservation expires.
type timed struct {
	stage  *Stage
	jobSet *JobSet
}

// FireTimers updates the stages whose back-off has expired, and the JobSets with a co-start reservation that has.
func (m *Model) FireTimers() {
	for {
		at, owner, ok := m.Timers.First()
		switch {
		case !ok || at.After(m.Now):
			return
		case owner.jobSet != nil:
			m.Timers.Drop(&owner.jobSet.Timer)
			m.UpdateJobSet(owner.jobSet)
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
