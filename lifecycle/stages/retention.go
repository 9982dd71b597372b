package stages

import (
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
	"github.com/tranche-dev/tranche/lifecycle/quotastep"
)

// expire deletes the quota Workloads of a finished JobSet when they have been finished for the configured time. It does not begin before
// the JobSet has finished: until then the quota Workloads record which stages have succeeded, and would be recreated.
func (w *Step) expire(s *jobsetstate.Snapshot, stages []stage) {
	if s.Retention.AfterFinished == nil {
		return
	}
	for i := range stages {
		workload := stages[i].workload
		if workload == nil || stages[i].hasPods || !workload.DeletionTimestamp.IsZero() || w.Does(workload, quotastep.Delete) {
			continue
		}
		finished := finishedAt(workload)
		if finished != nil && w.IsExpired(finished.Time, s.Now, s.Retention.AfterFinished.Duration) {
			w.Do(quotastep.Delete, workload)
		}
	}
}

// expireDeactivated deletes a JobSet when the configured time has passed since the manager deactivated one of its quota Workloads. Until
// then a user may activate the quota Workload again.
func (w *Step) expireDeactivated(s *jobsetstate.Snapshot, stages []stage) {
	for i := range stages {
		if workload := stages[i].workload; w.IsDeactivationExpired(workload, s.Now, s.Retention.AfterDeactivatedByKueue) {
			w.DeleteExpired = workload
		}
	}
}
