package queuedjob

import (
	"cmp"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/childjob"
	"github.com/tranche-dev/tranche/lifecycle/elastic"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// podsEvery is how often pods are read again whose Job is gone, or does not count them. No watch reports that they have
// terminated.
const podsEvery = 2 * time.Second

// recheckForeign is when a Job that cannot be adopted is reconciled again.
const recheckForeign = 10 * time.Second

// recheckDeleted is when a Job is reconciled again whose Workloads of Kueue were deleted: no watch maps them to the Job.
const recheckDeleted = time.Second

// Why a Job is held again, for its user.
const (
	whyNoQuota = "it runs without quota"
	whyUser    = "it is suspended by its user"
	whyDeleted = "its quota Workload was deleted"
)

// Next computes the next Step. Once a Step is empty, there is nothing to do until something changes or RequeueAfter has passed.
func Next(s *Snapshot) *Step {
	w := &Step{}
	for uid, b := range s.Orphans {
		if s.Leaving != nil && s.Leaving.UID == uid && childjob.IsStuck(s.Leaving) {
			w.EndPods = append(w.EndPods, b.Pods...)
		}
		w.retire(b)
	}
	switch {
	case s.Job == nil:
	case s.Target != nil:
		w.adopt(s)
	default:
		w.decide(s)
	}
	slices.SortFunc(w.DeleteWorkloads, func(a, b *kueue.Workload) int { return cmp.Compare(a.UID, b.UID) })
	return w
}

// retire deletes quota Workloads that are not needed, once the pods of their Job have terminated.
func (w *Step) retire(b Objects) {
	if len(b.Pods) > 0 {
		w.requeueWithin(podsEvery)
		return
	}
	w.DeleteWorkloads = append(w.DeleteWorkloads, b.Workloads...)
}

func (w *Step) decide(s *Snapshot) {
	workload := s.workload()
	if outcome := outcomeOf(s.Job); outcome != nil {
		w.wrapUp(s, workload, outcome)
		w.dropGrowths(s)
		return
	}
	if childjob.CannotEnd(s.Job) {
		w.Conclude = s.Job
		return
	}
	w.PriorityKept = s.UnknownPriority
	if workload == nil || !quotaworkload.HoldsQuota(workload) {
		w.dropGrowths(s)
	}
	switch {
	case s.Refusal != "" && (workload == nil || !quotaworkload.HoldsQuota(workload)):
		w.refuse(s, workload)
	case workload == nil:
		w.Create = newWorkload(s)
		w.holdRunning(s, whyNoQuota)
	case !workload.DeletionTimestamp.IsZero():
		if w.stop(s, whyDeleted) {
			w.RemoveFinalizers = append(w.RemoveFinalizers, workload)
		}
	case quotaworkload.IsTrue(workload, kueue.WorkloadFinished):
		w.Reopen = workload
	case quotaworkload.HoldsQuota(workload) && quotaworkload.IsTrue(workload, kueue.WorkloadEvicted):
		w.evict(s, workload)
	default:
		w.advance(s, workload)
	}
	w.expireDeactivated(s, workload)
}

// workload returns the quota Workload of the Job, or nil if it has none.
func (s *Snapshot) workload() *kueue.Workload {
	for _, workload := range s.Owned.Workloads {
		if workload.Name == nameOf(s.Job) {
			return workload
		}
	}
	return nil
}

// refuse reports a Job that cannot be queued. Its quota Workload, if it has one, holds no quota.
func (w *Step) refuse(s *Snapshot, workload *kueue.Workload) {
	w.Refusal = s.Refusal
	w.requeueWithin(workloadstatus.RecheckAfter)
	w.holdRunning(s, whyNoQuota)
	if workload != nil {
		w.DeleteWorkloads = append(w.DeleteWorkloads, workload)
	}
}

// holdRunning holds a Job that runs although no quota pays for it: a user has removed its quota Workload with the finalizer.
func (w *Step) holdRunning(s *Snapshot, why string) {
	if childjob.IsRunning(s.Job) && !childjob.IsEnding(s.Job) {
		w.Hold, w.Why = s.Job, why
	}
}

// outcomeOf returns the condition Finished of the quota Workload of a Job that has finished, or nil.
func outcomeOf(job *batchv1.Job) *metav1.Condition {
	for i := range job.Status.Conditions {
		c := &job.Status.Conditions[i]
		finished := metav1.Condition{Type: kueue.WorkloadFinished, Status: metav1.ConditionTrue, Message: c.Message}
		switch {
		case c.Status != corev1.ConditionTrue:
			continue
		case c.Type == batchv1.JobComplete:
			finished.Reason = kueue.WorkloadFinishedReasonSucceeded
		case c.Type == batchv1.JobFailed:
			finished.Reason = kueue.WorkloadFinishedReasonFailed
		default:
			continue
		}
		return &finished
	}
	return nil
}

// wrapUp finishes the quota Workload of a finished Job once its pods have terminated, and deletes it when its retention has expired.
func (w *Step) wrapUp(s *Snapshot, workload *kueue.Workload, outcome *metav1.Condition) {
	switch {
	case workload == nil:
	case len(s.Owned.Pods) > 0:
		w.requeueWithin(podsEvery)
	case quotaworkload.IsTrue(workload, kueue.WorkloadFinished) || !workload.DeletionTimestamp.IsZero():
		if slices.Contains(workload.Finalizers, kueue.ResourceInUseFinalizerName) {
			w.RemoveFinalizers = append(w.RemoveFinalizers, workload)
			return
		}
		finished := apimeta.FindStatusCondition(workload.Status.Conditions, kueue.WorkloadFinished)
		if kept := s.Retention.AfterFinished; kept != nil && finished != nil && w.isExpired(s, finished.LastTransitionTime.Time, kept) {
			w.DeleteWorkloads = append(w.DeleteWorkloads, workload)
		}
	default:
		ready := childjob.IsReady(s.Job)
		w.Progress = &Progress{workload, readiness(workload, ready), outcome}
	}
}

// expireDeactivated deletes a Job when the configured time has passed since the manager deactivated its quota Workload. Until then a user may
// activate the quota Workload again.
func (w *Step) expireDeactivated(s *Snapshot, workload *kueue.Workload) {
	kept := s.Retention.AfterDeactivatedByKueue
	if kept == nil || workload == nil {
		return
	}
	if at := workloadstatus.DeactivatedAt(workload); at != nil && w.isExpired(s, *at, kept) {
		w.DeleteExpired = workload
	}
}

// isExpired reports whether an object was kept for long enough. Otherwise it requests a reconcile at the time of expiry.
func (w *Step) isExpired(s *Snapshot, since time.Time, kept *metav1.Duration) bool {
	left := since.Add(kept.Duration).Sub(s.Now)
	if left > 0 {
		w.requeueWithin(left)
	}
	return left <= 0
}

// evict takes the next step of an eviction: the Job is held, and releases its quota when none of its pods is left.
func (w *Step) evict(s *Snapshot, workload *kueue.Workload) {
	w.adjust(s, workload)
	w.forgetReadiness(workload)
	if hasStopped, mayRelease := w.stop(s, workloadstatus.EvictionOf(workload).Message), w.dropGrowths(s); hasStopped && mayRelease && w.isUpToDate() {
		w.ReleaseQuota = workload
	}
}

// advance takes the next step of a Job that is not evicted.
func (w *Step) advance(s *Snapshot, workload *kueue.Workload) {
	w.adjust(s, workload)
	lacksQuota := s.lacksQuota(workload)
	if !lacksQuota {
		w.reclaim(s, workload)
	}
	switch holdsQuota := quotaworkload.HoldsQuota(workload); {
	case IsSuspendedByUser(s.Job):
		w.suspend(s, workload)
	case lacksQuota || s.hasMoved(workload):
		w.Reopen = workload
	case !holdsQuota || !quotaworkload.IsTrue(workload, kueue.WorkloadAdmitted):
		w.holdRunning(s, whyNoQuota)
	case !s.Charged[workload.UID]:
		w.AwaitsEngine = true
	case len(quotaworkload.Gates(workload)) == 0 && s.isResizable():
		w.reportReadinessOf(workload, childjob.IsReadyWith(s.Job, s.paid(workload).Base))
		w.resize(s, workload)
		w.ungate(s)
	case len(quotaworkload.Gates(workload)) == 0 && w.dropGrowths(s):
		w.reportReadinessOf(workload, childjob.IsReady(s.Job))
		w.release(s, workload)
		w.ungate(s)
	}
}

// suspend releases the quota of a Job that its user has suspended, once none of its pods is left.
func (w *Step) suspend(s *Snapshot, workload *kueue.Workload) {
	w.forgetReadiness(workload)
	if hasStopped, mayRelease := w.stop(s, whyUser), w.dropGrowths(s); hasStopped && mayRelease && w.isUpToDate() && quotaworkload.HoldsQuota(workload) {
		w.ReleaseQuota = workload
	}
}

// isUpToDate reports whether the quota Workload needs no other write: it must be as it was read when it releases its quota. Since the gate of a
// suspended Job is written first, its quota Workload cannot be admitted again.
func (w *Step) isUpToDate() bool { return w.Change == nil && w.Progress == nil && w.Reclaim == nil }

// stop holds the Job again and removes what its admission has added. It reports whether the Job has no pods and nothing is left to change.
func (w *Step) stop(s *Snapshot, why string) bool {
	job := s.Job
	switch {
	case childjob.IsEnding(job):
	case childjob.IsNoticed(job):
		w.Hold, w.Why = job, why
	case childjob.IsHeld(job) && isUnnoticed(job):
		w.ClearSuspended = job
	case childjob.IsRunning(job) || wasReleased(job) && childjob.HasPods(job):
	case len(s.Owned.Pods) > 0:
		w.requeueWithin(podsEvery)
	case hasStarted(job):
		w.ClearStart = job
	case !isRestored(job):
		w.Restore = job
	default:
		return true
	}
	return false
}

// hasStarted reports whether a Job may have had pods since its start time was last removed.
func hasStarted(job *batchv1.Job) bool { return job.Status.StartTime != nil }

// wasReleased reports whether a Job was released and may have, or get, pods since. The Job controller can be creating them although the Job shows
// no start time and is held again: its status is newer than that only when it reports that the Job is suspended.
func wasReleased(job *batchv1.Job) bool { return hasStarted(job) || !isRestored(job) }

// isUnnoticed reports whether a user suspended a Job before the Job controller had noticed its release. Its condition Suspended is older than
// the release: the Job controller may be about to create pods.
func isUnnoticed(job *batchv1.Job) bool {
	_, unnoticed := job.Annotations[apis.UnnoticedAnnotation]
	return unnoticed
}

// release lets a held Job run with what it is admitted to.
func (w *Step) release(s *Snapshot, workload *kueue.Workload) {
	job := s.Job
	switch {
	case !childjob.IsHeld(job):
		return
	case hasStarted(job):
		// The Job controller sets the start time again. Until it is removed the API server accepts no change of the pod template.
		if !childjob.HasPods(job) && len(s.Owned.Pods) == 0 {
			w.ClearStart = job
		} else {
			w.requeueWithin(podsEvery)
		}
		return
	}
	updates := append([]childjob.Update{{By: "its admission would", Update: kueue.PodSetUpdate{
		Labels: workloadstatus.PodLabels(workload, kueue.DefaultPodSetName),
	}}}, childjob.UpdatesOf(workload, string(kueue.DefaultPodSetName))...)
	released, err := childjob.Released(admitted(job, workload), chargedTemplate(workload), childjob.AssignmentOf(workload, string(kueue.DefaultPodSetName)), s.Flavors, updates...)
	if err != nil {
		w.Complaint = err.Error()
		w.requeueWithin(workloadstatus.RecheckAfter)
		return
	}
	// If the pods of its previous release exist, the quota is theirs again.
	delete(released.Annotations, apis.UnnoticedAnnotation)
	w.Release = &Release{workload, job, released}
}

// chargedTemplate returns for how many and what pods a quota Workload is charged.
func chargedTemplate(workload *kueue.Workload) childjob.Template {
	return childjob.Template{
		Pods:     elastic.Charged(workload, string(kueue.DefaultPodSetName), 0),
		Requests: stageplan.PodRequests(&workload.Spec.PodSets[0].Template.Spec),
	}
}

// readiness returns the condition PodsReady of a quota Workload.
func readiness(workload *kueue.Workload, isReady bool) metav1.Condition {
	return workloadstatus.PodsReady(apimeta.FindStatusCondition(workload.Status.Conditions, kueue.WorkloadPodsReady), isReady)
}

// reportReadinessOf records whether the pods that a quota Workload pays for are ready. If they have never been ready, the condition is not needed.
func (w *Step) reportReadinessOf(workload *kueue.Workload, isReady bool) {
	ready := readiness(workload, isReady)
	old := apimeta.FindStatusCondition(workload.Status.Conditions, kueue.WorkloadPodsReady)
	if old == nil && ready.Status == metav1.ConditionTrue || old != nil && !isSame(old, &ready) {
		w.Progress = &Progress{Workload: workload, Ready: ready}
	}
}

// forgetReadiness records, for a Job that is held again, that its pods have not started.
func (w *Step) forgetReadiness(workload *kueue.Workload) {
	ready := workloadstatus.PodsNotStarted()
	old := apimeta.FindStatusCondition(workload.Status.Conditions, kueue.WorkloadPodsReady)
	if old != nil && !isSame(old, &ready) {
		w.Progress = &Progress{Workload: workload, Ready: ready}
	}
}

func isSame(a, b *metav1.Condition) bool {
	return a.Status == b.Status && a.Reason == b.Reason && a.Message == b.Message
}
