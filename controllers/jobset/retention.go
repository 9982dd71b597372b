package jobset

import (
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/controllers/events"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// expire deletes the quota Workloads of a finished JobSet when they have been finished for the configured time. It does not begin before
// the JobSet has finished: until then the quota Workloads record which stages have succeeded, and would be recreated.
func (w *actions) expire(s *snapshot, stages []stage) {
	if s.retention.AfterFinished == nil {
		return
	}
	for i := range stages {
		workload := stages[i].workload
		if workload == nil || stages[i].hasPods || !workload.DeletionTimestamp.IsZero() || slices.Contains(w.drop, workload) {
			continue
		}
		finished := finishedAt(workload)
		if finished != nil && w.isExpired(s, finished.Time, s.retention.AfterFinished) {
			w.drop = append(w.drop, workload)
		}
	}
}

// expireDeactivated deletes a JobSet when the configured time has passed since the manager deactivated one of its quota Workloads. Until
// then a user may activate the quota Workload again.
func (w *actions) expireDeactivated(s *snapshot, stages []stage) {
	if s.retention.AfterDeactivatedByKueue == nil {
		return
	}
	for i := range stages {
		workload := stages[i].workload
		if workload == nil {
			continue
		}
		if at := workloadstatus.DeactivatedAt(workload); at != nil && w.isExpired(s, *at, s.retention.AfterDeactivatedByKueue) {
			w.expired = workload
		}
	}
}

// isExpired reports whether an object was kept for long enough. Otherwise it requests a reconcile at the time of expiry.
func (w *actions) isExpired(s *snapshot, since time.Time, kept *metav1.Duration) bool {
	left := since.Add(kept.Duration).Sub(s.now)
	if left > 0 {
		w.lookAfter(left)
	}
	return left <= 0
}

// lookAfter requests another reconcile after left, or earlier.
func (w *actions) lookAfter(left time.Duration) {
	if w.requeueAfter == 0 || left < w.requeueAfter {
		w.requeueAfter = left
	}
}

// deleteExpired deletes a JobSet, unless its quota Workload was activated again according to the API server.
func (r *Reconciler) deleteExpired(ctx context.Context, s *snapshot, w *actions) error {
	if w.expired == nil {
		return nil
	}
	var live kueue.Workload
	if err := r.reader.Get(ctx, client.ObjectKeyFromObject(w.expired), &live); err != nil {
		return client.IgnoreNotFound(err)
	}
	if at := workloadstatus.DeactivatedAt(&live); live.UID != w.expired.UID || at == nil || !at.Equal(*workloadstatus.DeactivatedAt(w.expired)) {
		return nil
	}
	err := r.config.Client.Delete(ctx, s.jobSet.DeepCopy(), client.Preconditions{UID: &s.jobSet.UID}, client.PropagationPolicy(metav1.DeletePropagationBackground))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete deactivated JobSet %s: %w", s.key, err)
	}
	if err == nil {
		events.JobSetDeleted(w.expired.Name, s.retention.AfterDeactivatedByKueue.Duration).Emit(r.config.Recorder, s.jobSet)
	}
	return nil
}
