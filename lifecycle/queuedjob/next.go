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
	"github.com/tranche-dev/tranche/lifecycle/quotastep"
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
	whyClaims  = "its ResourceClaimTemplate was replaced by another one of its name"
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
	// Those of several Orphans are in no order.
	slices.SortStableFunc(w.Writes, func(a, b quotastep.Write) int { return cmp.Compare(a.Workload.UID, b.Workload.UID) })
	return w
}

// retire deletes quota Workloads that are not needed, once the pods of their Job have terminated.
func (w *Step) retire(b Objects) {
	if len(b.Pods) > 0 {
		w.RequeueWithin(podsEvery)
		return
	}
	w.Do(quotastep.Delete, b.Workloads...)
}

func (w *Step) decide(s *Snapshot) {
	workload := s.workload()
	if outcome := outcomeOf(s.Job); outcome != nil {
		w.wrapUp(s, workload, outcome)
		w.dropGrowths(s)
		return
	}
	if childjob.CannotEnd(s.Job) {
		w.Job = &JobWrite{Kind: Conclude, Before: s.Job, After: withSuspend(s.Job, false)}
		return
	}
	if childjob.IsRunning(s.Job) && childjob.ReplacesEarly(s.Job) {
		// It was released by a version of the manager that did not set the field.
		w.Job = &JobWrite{Kind: Adopt, Before: s.Job, After: childjob.ReplacingLate(s.Job)}
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
		w.Do(quotastep.Create, newWorkload(s))
		w.holdRunning(s, whyNoQuota)
	case !workload.DeletionTimestamp.IsZero():
		why := whyDeleted
		if s.hasOtherClaims(workload) {
			why = whyClaims
		}
		if w.stop(s, why) {
			w.Do(quotastep.RemoveFinalizer, workload)
		}
	case quotaworkload.IsTrue(workload, kueue.WorkloadFinished):
		w.Do(quotastep.Reopen, workload)
	case quotaworkload.HoldsQuota(workload) && quotaworkload.IsTrue(workload, kueue.WorkloadEvicted):
		w.evict(s, workload)
	default:
		w.advance(s, workload)
	}
	if w.IsDeactivationExpired(workload, s.Now, s.Retention.AfterDeactivatedByKueue) {
		w.DeleteExpired = workload
	}
}

// workload returns the quota Workload of the Job, or nil if it has none.
func (s *Snapshot) workload() *kueue.Workload {
	for _, workload := range s.Owned.Workloads {
		if workload.Name == WorkloadName(s.Job) {
			return workload
		}
	}
	return nil
}

// refuse reports a Job that cannot be queued. Its quota Workload, if it has one, holds no quota.
func (w *Step) refuse(s *Snapshot, workload *kueue.Workload) {
	w.Refusal = s.Refusal
	w.RequeueWithin(workloadstatus.RecheckAfter)
	w.holdRunning(s, whyNoQuota)
	if workload != nil {
		w.Do(quotastep.Delete, workload)
	}
}

// holdRunning holds a Job that runs although no quota pays for it: a user has removed its quota Workload with the finalizer.
func (w *Step) holdRunning(s *Snapshot, why string) {
	if childjob.IsRunning(s.Job) && !childjob.IsEnding(s.Job) {
		w.hold(s.Job, why)
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
		w.RequeueWithin(podsEvery)
	case quotaworkload.IsTrue(workload, kueue.WorkloadFinished) || !workload.DeletionTimestamp.IsZero():
		if slices.Contains(workload.Finalizers, kueue.ResourceInUseFinalizerName) {
			w.Do(quotastep.RemoveFinalizer, workload)
			return
		}
		finished := apimeta.FindStatusCondition(workload.Status.Conditions, kueue.WorkloadFinished)
		if kept := s.Retention.AfterFinished; kept != nil && finished != nil && w.IsExpired(finished.LastTransitionTime.Time, s.Now, kept.Duration) {
			w.Do(quotastep.Delete, workload)
		}
	default:
		w.Progress(workload, quotastep.Readiness(workload, childjob.IsReady(s.Job)), outcome)
	}
}

// evict takes the next step of an eviction: the Job is held, and releases its quota when none of its pods is left.
func (w *Step) evict(s *Snapshot, workload *kueue.Workload) {
	w.adjust(s, workload)
	w.ForgetReadiness(workload)
	if hasStopped, mayRelease := w.stop(s, workloadstatus.EvictionOf(workload).Message), w.dropGrowths(s); hasStopped && mayRelease && w.isUpToDate() {
		w.Do(quotastep.Release, workload)
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
		w.Do(quotastep.Reopen, workload)
	case !holdsQuota || !quotaworkload.IsTrue(workload, kueue.WorkloadAdmitted):
		w.holdRunning(s, whyNoQuota)
	case !s.Charged[workload.UID]:
		w.AwaitsEngine = true
	case len(quotaworkload.Gates(workload)) == 0 && s.isResizable():
		w.ReportReadiness(workload, childjob.IsReadyWith(s.Job, s.paid(workload).Base))
		w.resize(s, workload)
		w.ungate(s)
	case len(quotaworkload.Gates(workload)) == 0 && w.dropGrowths(s):
		w.ReportReadiness(workload, childjob.IsReady(s.Job))
		w.release(s, workload)
		w.ungate(s)
	}
}

// suspend releases the quota of a Job that its user has suspended, once none of its pods is left.
func (w *Step) suspend(s *Snapshot, workload *kueue.Workload) {
	w.ForgetReadiness(workload)
	if hasStopped, mayRelease := w.stop(s, whyUser), w.dropGrowths(s); hasStopped && mayRelease && w.isUpToDate() && quotaworkload.HoldsQuota(workload) {
		w.Do(quotastep.Release, workload)
	}
}

// isUpToDate reports whether the quota Workload needs no other write: it must be as it was read when it releases its quota. Since the gate of a
// suspended Job is written first, its quota Workload cannot be admitted again.
func (w *Step) isUpToDate() bool {
	return !w.Has(quotastep.Change, quotastep.Progress, quotastep.Reclaim)
}

// stop holds the Job again and removes what its admission has added. It reports whether the Job has no pods and nothing is left to change.
func (w *Step) stop(s *Snapshot, why string) bool {
	job := s.Job
	switch {
	case childjob.IsEnding(job):
	case childjob.IsNoticed(job):
		w.hold(job, why)
	case childjob.IsHeld(job) && isUnnoticed(job):
		w.clearSuspended(job)
	case childjob.IsRunning(job):
	case childjob.IsRunEnding(job, s.Owned.Pods):
		w.awaitPods(s)
	case hasStarted(job):
		w.clearStart(job)
	case !isRestored(job):
		w.Job = &JobWrite{Kind: Restore, Before: job, After: Restored(job)}
	default:
		return true
	}
	return false
}

// hasStarted reports whether a Job may have had pods since its start time was last removed.
func hasStarted(job *batchv1.Job) bool { return job.Status.StartTime != nil }

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
	case isUnnoticed(job):
		w.clearSuspended(job)
		return
	case childjob.IsRunEnding(job, s.Owned.Pods):
		w.ForgetReadiness(workload)
		w.awaitPods(s)
		w.AwaitsPods = true
		return
	case hasStarted(job):
		// The Job controller sets the start time again. Until it is removed the API server accepts no change of the pod template.
		w.clearStart(job)
		return
	}
	w.readsPods = childjob.WasReleased(job)
	updates := append([]childjob.Update{{By: "its admission would", Update: kueue.PodSetUpdate{
		Labels: workloadstatus.PodLabels(workload, kueue.DefaultPodSetName),
	}}}, childjob.UpdatesOf(workload, string(kueue.DefaultPodSetName))...)
	released, err := childjob.Released(admitted(job, workload), chargedTemplate(workload), childjob.AssignmentOf(workload, string(kueue.DefaultPodSetName)), s.Flavors, updates...)
	if err != nil {
		w.Complaint = err.Error()
		w.RequeueWithin(workloadstatus.RecheckAfter)
		return
	}
	w.Job = &JobWrite{Kind: Release, Before: job, After: released, Workload: workload}
}

// awaitPods leaves a Job as it is while pods of its previous run use its quota. Its status reports their end, unless it does not count them.
func (w *Step) awaitPods(s *Snapshot) {
	if len(s.Owned.Pods) > 0 {
		w.RequeueWithin(podsEvery)
	}
}

// chargedTemplate returns for how many and what pods a quota Workload is charged.
func chargedTemplate(workload *kueue.Workload) childjob.Template {
	return childjob.Template{
		Pods:     elastic.Charged(workload, string(kueue.DefaultPodSetName), 0),
		Requests: stageplan.PodRequests(&workload.Spec.PodSets[0].Template.Spec),
	}
}
