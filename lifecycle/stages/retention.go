package stages

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// expire deletes the quota Workloads of a finished JobSet when they have been finished for the configured time. It does not begin before
// the JobSet has finished: until then the quota Workloads record which stages have succeeded, and would be recreated.
func (w *Step) expire(s *jobsetstate.Snapshot, stages []stage) {
	if s.Retention.AfterFinished == nil {
		return
	}
	for i := range stages {
		workload := stages[i].workload
		if workload == nil || stages[i].hasPods || !workload.DeletionTimestamp.IsZero() || slices.Contains(w.DeleteWorkloads, workload) {
			continue
		}
		finished := finishedAt(workload)
		if finished != nil && w.isExpired(s, finished.Time, s.Retention.AfterFinished) {
			w.DeleteWorkloads = append(w.DeleteWorkloads, workload)
		}
	}
}

// expireDeactivated deletes a JobSet when the configured time has passed since the manager deactivated one of its quota Workloads. Until
// then a user may activate the quota Workload again.
func (w *Step) expireDeactivated(s *jobsetstate.Snapshot, stages []stage) {
	if s.Retention.AfterDeactivatedByKueue == nil {
		return
	}
	for i := range stages {
		workload := stages[i].workload
		if workload == nil {
			continue
		}
		if at := workloadstatus.DeactivatedAt(workload); at != nil && w.isExpired(s, *at, s.Retention.AfterDeactivatedByKueue) {
			w.DeleteExpired = workload
		}
	}
}

// isExpired reports whether an object was kept for long enough. Otherwise it requests a reconcile at the time of expiry.
func (w *Step) isExpired(s *jobsetstate.Snapshot, since time.Time, kept *metav1.Duration) bool {
	left := since.Add(kept.Duration).Sub(s.Now)
	if left > 0 {
		w.RequeueWithin(left)
	}
	return left <= 0
}
