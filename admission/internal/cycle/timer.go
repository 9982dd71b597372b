package cycle

import "github.com/tranche-dev/tranche/admission/internal/model"

// fireTimers updates the stages whose back-off has expired, and the JobSets with a co-start reservation that has, and wakes the ClusterQueues. All stages
// of these are checked again, and set the timer again.
func fireTimers(m *model.Model) {
	for {
		at, owner, ok := m.Timers.First()
		switch {
		case !ok || at.After(m.Now):
			return
		case owner.JobSet != nil:
			m.Timers.Drop(&owner.JobSet.Timer)
			m.UpdateJobSet(owner.JobSet)
		case owner.Queue != nil:
			m.Timers.Drop(&owner.Queue.Timer)
			m.Schedule.WakeQueue(owner.Queue)
		default:
			m.Timers.Drop(&owner.Stage.Timer)
			m.Refresh(owner.Stage)
		}
	}
}
