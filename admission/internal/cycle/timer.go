package cycle

// fireTimers updates the stages whose back-off has expired, and the JobSets with a co-start reservation that has, and wakes the ClusterQueues. All stages
// of these are checked again, and set the timer again.
func (cy *Cycle) fireTimers() {
	for {
		at, owner, ok := cy.m.Timers.First()
		switch {
		case !ok || at.After(cy.m.Now):
			return
		case owner.JobSet != nil:
			cy.m.Timers.Drop(&owner.JobSet.Timer)
			cy.m.UpdateJobSet(owner.JobSet)
		case owner.Queue != nil:
			cy.m.Timers.Drop(&owner.Queue.Timer)
			cy.m.Schedule.WakeQueue(owner.Queue)
		default:
			cy.m.Timers.Drop(&owner.Stage.Timer)
			cy.m.Refresh(owner.Stage)
		}
	}
}
