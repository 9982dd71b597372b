package stages

import (
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/childjob"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstatus"
	"github.com/tranche-dev/tranche/lifecycle/quotastep"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// Next computes what to write from the snapshot. It does no I/O.
func Next(s *jobsetstate.Snapshot) *Step {
	w := &Step{}
	w.decide(s)
	for i := range w.Writes {
		w.Writes[i].ToOtherEngine = s.OtherEngine
	}
	if s.JobSet != nil {
		wait := s.GangWait()
		w.Conditions = jobsetstate.WithGangs(s, w.Conditions, wait)
		w.RequeueWithin(wait.RequeueAfter)
		w.GangBlocked = jobsetstatus.BlockedGang(s.JobSet, w.Conditions)
		w.Conditions, w.PriorityKept = jobsetstatus.WithPriorityKept(s.JobSet, w.Conditions, s.UnknownPriority)
		w.Conditions, w.Pruned = jobsetstatus.WithPruned(s.JobSet, w.Conditions, s.Lost, s.HasUnknownRules)
	}
	return w
}

func (w *Step) decide(s *jobsetstate.Snapshot) {
	w.stopOrphans(s)
	if s.JobSet == nil {
		return
	}
	w.MarkJobs = jobsetstate.UnguardedJobs(s)
	switch {
	case s.Plan == nil:
		// One that runs since before the installation gets pods again, whatever its user has made of it.
		if s.Target == nil || ptr.Deref(s.JobSet.Spec.Suspend, false) {
			w.retire(s.Owned)
		}
		w.refuse(s)
	case s.IsUnqueued:
		w.reconcileUnqueued(s)
	case s.Target != nil:
		w.adopt(s)
	default:
		w.decideQueued(s)
	}
}

// decideQueued decides about a queued JobSet.
func (w *Step) decideQueued(s *jobsetstate.Snapshot) {
	stages, evicted := stagesOf(s)
	e := eviction{cause: evicted, complete: evicted != nil}
	over, outcome := jobsetstate.OutcomeOf(s.JobSet)
	w.JobSetSucceeds = isComplete(s, stages) || over && outcome.Reason == kueue.WorkloadFinishedReasonSucceeded
	for i := range stages {
		w.concludeDecided(&stages[i])
		if over {
			w.wrapUp(&stages[i], outcome)
			w.dropGrowths(&stages[i])
		} else {
			w.reconcileStage(s, &stages[i], &e)
			w.reconcileGrowths(s, &stages[i], &e)
			w.endPauses(s, &stages[i])
		}
	}
	sum := summary(s, stages)
	w.Conditions = jobsetstatus.JobSetProgress(s.JobSet, sum)
	if over {
		w.EndedHolds = w.endedHolds(s, stages)
		w.expire(s, stages)
		return
	}
	w.expireDeactivated(s, stages)
	w.DeleteGangs = append(w.DeleteGangs, s.Gangs.Stale()...)
	w.skipSucceeded(s, stages)
	w.Wait = jobsetstatus.NewWaitReason(s.JobSet, sum)
	w.startOrPause(s, stages)
	if w.Start && s.IsMisnamed() {
		// Pod templates can be changed only while the JobSet is suspended.
		w.SetScheduler, w.Start = true, false
	}
	if e.complete {
		w.releaseEvicted(stages)
	}
	w.EndedHolds = w.endedHolds(s, stages)
	if evicted != nil {
		w.Wait = nil
		w.Conditions = jobsetstatus.JobSetEvicted(s.JobSet, len(stages), evicted.state())
		return
	}
	w.Conditions = jobsetstatus.WithExpectedStart(s.JobSet, w.Conditions, sum, s.ExpectedStart)
}

// stopOrphans stops the Jobs and pods that earlier JobSets of the name have left, and pods that no Job ends.
func (w *Step) stopOrphans(s *jobsetstate.Snapshot) {
	for uid, b := range s.Orphans {
		if s.Leaving != nil && s.Leaving.UID == uid {
			w.leave(b)
		}
		w.endAbandoned(b)
		w.retire(b)
	}
	if !s.IsUnqueued {
		w.endAbandoned(s.Owned)
	}
}

// refuse reports a JobSet that has no plan.
func (w *Step) refuse(s *jobsetstate.Snapshot) {
	reported := jobsetstatus.StageAdmitted
	if s.IsUnqueued {
		reported = jobsetstatus.StageInProgress
	}
	w.Conditions = jobsetstatus.JobSetRefused(s.JobSet, reported, s.Refusal)
	if !apimeta.IsStatusConditionPresentAndEqual(s.JobSet.Status.Conditions, reported, metav1.ConditionFalse) {
		w.Complaints = append(w.Complaints, s.Refusal)
	}
}

// Refused returns the Step that only reports why the JobSet cannot be queued.
func Refused(s *jobsetstate.Snapshot, reason string) *Step {
	return &Step{Conditions: jobsetstate.WithGangs(s, jobsetstatus.JobSetRefused(s.JobSet, jobsetstatus.StageAdmitted, reason), jobsetstate.GangWait{})}
}

// retire deletes the quota Workloads of a JobSet that does not exist, or has no valid plan, once its pods have terminated.
func (w *Step) retire(b jobsetstate.Objects) {
	if len(b.Pods) > 0 || slices.ContainsFunc(b.Jobs, childjob.HasPods) {
		return
	}
	w.Do(quotastep.Delete, b.Workloads...)
}

// wrapUp finishes a stage of a finished JobSet.
func (w *Step) wrapUp(st *stage, outcome metav1.Condition) {
	if st.workload == nil || st.hasPods {
		return
	}
	if quotaworkload.IsTrue(st.workload, kueue.WorkloadFinished) || !st.workload.DeletionTimestamp.IsZero() {
		w.removeFinalizer(st.workload)
		return
	}
	outcome = st.outcome(outcome)
	w.Progress(st.workload, quotastep.Readiness(st.workload, st.isSteady()), &outcome).HasSucceeded = st.succeeded()
}

// outcome returns the condition Finished of a stage whose JobSet has finished. A stage that has succeeded keeps that outcome.
func (st *stage) outcome(jobSet metav1.Condition) metav1.Condition {
	switch {
	case st.succeeded():
		return *workloadstatus.StageSucceeded(st.Name)
	case jobSet.Reason == kueue.WorkloadFinishedReasonSucceeded:
		jobSet.Message = fmt.Sprintf("The JobSet has completed without stage %q", st.Name)
	case st.failed():
		jobSet.Message = fmt.Sprintf("Stage %q has failed: %s", st.Name, jobSet.Message)
	default:
		jobSet.Message = fmt.Sprintf("The JobSet has failed before stage %q finished: %s", st.Name, jobSet.Message)
	}
	return jobSet
}

// removeFinalizer removes the finalizer of a quota Workload, and does nothing if it has none.
func (w *Step) removeFinalizer(workload *kueue.Workload) {
	if slices.Contains(workload.Finalizers, kueue.ResourceInUseFinalizerName) || slices.Contains(workload.Finalizers, apis.QuotaInUseFinalizer) {
		w.Do(quotastep.RemoveFinalizer, workload)
	}
}

// reconcileStage reconciles one stage of a JobSet that has not finished.
func (w *Step) reconcileStage(s *jobsetstate.Snapshot, st *stage, e *eviction) {
	switch {
	case st.workload == nil:
		w.Do(quotastep.Create, newWorkload(s, st))
	case !st.workload.DeletionTimestamp.IsZero():
		w.handleDeleted(s, st)
		e.complete = e.complete && !st.mustRelease
	case st.mustRelease:
		w.evictStage(s, st, e)
	case st.loses:
		w.giveBack(s, st)
	case quotaworkload.IsTrue(st.workload, kueue.WorkloadFinished):
		if st.mustRunAgain() {
			w.Do(quotastep.Reopen, st.workload)
		} else if !st.hasPods && !s.OtherEngine && w.isNoteDue(s, st.workload) {
			w.removeFinalizer(st.workload)
		}
	case ranBefore(s, st):
		w.NoteStarted = !jobsetstate.IsStarted(s.JobSet)
		w.AdmitAsItIs(s.StartedTarget, st.workload)
	case w.holdUnpaid(s, st):
	default:
		w.advance(s, st)
	}
}

// handleDeleted handles a quota Workload that a user has deleted: it holds the Jobs of the stage again, as after an eviction, and then removes the
// finalizer of the quota Workload. The next reconcile creates a new one. Kueue's manager deletes finished Workloads after a while: if another engine
// admits, they stay until the JobSet has finished, because they record that their stages have succeeded.
func (w *Step) handleDeleted(s *jobsetstate.Snapshot, st *stage) {
	gone := !st.hasPods
	if !quotaworkload.IsTrue(st.workload, kueue.WorkloadFinished) {
		gone = w.stop(s, st)
	} else if s.OtherEngine && !st.mustRunAgain() {
		return
	}
	if gone {
		w.removeFinalizer(st.workload)
	}
}

func (w *Step) advance(s *jobsetstate.Snapshot, st *stage) {
	if st.opensAgain() {
		w.Progress(st.workload, workloadstatus.PodsNotStarted(), nil)
		return
	}
	if !st.holdsQuota() && (st.hasOtherClaims() || st.hasOtherResources()) {
		w.Do(quotastep.Reopen, st.workload)
		return
	}
	w.Change(st.workload, st.adjusted(s))
	// A stage may succeed after an eviction of its JobSet has closed it. If it then kept its quota, and with it the condition Evicted, the stages that it
	// waits for would be evicted because of it whenever they are admitted.
	if st.succeeded() && !st.hasPods && (st.open || !st.stale && st.holdsQuota()) {
		w.Progress(st.workload, quotastep.Readiness(st.workload, st.isSteady()), workloadstatus.StageSucceeded(st.Name))
		return
	}
	w.reclaim(s, st)
	if jobsetstate.IsSuspendedByUser(s.JobSet) {
		w.suspend(s, st)
		return
	}
	if st.lacksQuota(s) || st.hasMoved(s) {
		w.Do(quotastep.Reopen, st.workload)
		return
	}
	if st.isClosedAgain() {
		w.Progress(st.workload, metav1.Condition{}, nil)
	}
	w.AwaitsEngine = w.AwaitsEngine || st.awaitsEngine(s)
	if !st.mayRun(s) {
		return
	}
	w.AwaitsJobs = w.AwaitsJobs || st.lacksJobs()
	w.ReportReadiness(st.workload, st.isSteady())
	if w.ensureGangs(s, st) && !st.decided && !st.awaitsJobs {
		w.releaseStage(s, st)
	}
}

// holdUnpaid holds the Jobs of a stage that run although its quota Workload holds no quota: another client has removed its admission, or the quota
// Workload together with its finalizer. It reports whether there are any. Once their pods have terminated, they start when the stage is admitted again.
func (w *Step) holdUnpaid(s *jobsetstate.Snapshot, st *stage) bool {
	isUnpaid := func(job *batchv1.Job) bool { return childjob.IsNoticed(job) && !childjob.IsEnding(job) }
	if st.holdsQuota() || !slices.ContainsFunc(st.jobs, isUnpaid) {
		return false
	}
	w.stop(s, st)
	w.ForgetReadiness(st.workload)
	w.Unpaid = append(w.Unpaid, st.Name)
	return true
}

// suspend releases the quota of a stage whose JobSet was suspended by its user, once none of its pods is left.
func (w *Step) suspend(s *jobsetstate.Snapshot, st *stage) {
	w.ForgetReadiness(st.workload)
	w.resizeGangs(s, st)
	if st.holdsQuota() && !st.hasPods && len(st.growths) == 0 && quotaworkload.HasGate(st.workload, apis.SuspendedGate) {
		w.Do(quotastep.Release, st.workload)
	}
}

// releaseStage selects the held Jobs of an admitted stage that may start. A Job that asks for more than its stage was charged stays held: it
// was not created from the JobSet. A Job also stays held while a pod may still run that it created before it was held, or that a deleted
// Job of its name created: the quota of the stage pays for that pod until it has terminated. The Jobs of a gang wait together, and those
// with terminated pods are recreated.
func (w *Step) releaseStage(s *jobsetstate.Snapshot, st *stage) {
	rel := ReleaseJobs{Stage: st.Name}
	if st.workload != nil {
		rel.ClusterQueue, rel.Workload = string(st.workload.Status.Admission.ClusterQueue), st.workload
	}
	ending := st.ending(s)
	st.awaitPods = len(ending)
	spent, anew := st.spent(s, ending)
	w.RecreateJobs = append(w.RecreateJobs, spent...)
	for _, job := range st.jobs {
		if !childjob.IsHeld(job) || st.hasSucceeded(job) || ending[job.Name] || anew[s.GangOf(job)] {
			continue
		}
		if s.IsOfOtherScheduler(job) {
			w.RecreateJobs = append(w.RecreateJobs, job)
			continue
		}
		placed, known := s.GangUpdates(job)
		if !known {
			continue
		}
		released, err := st.released(s, job, placed)
		if err != nil {
			w.Complaints = append(w.Complaints, err.Error())
			continue
		}
		rel.Jobs = append(rel.Jobs, released)
	}
	if len(rel.Jobs) > 0 {
		w.ReleaseJobs = append(w.ReleaseJobs, rel)
	}
}

// released returns a Job as it must be to run, with the fields of its gang.
func (st *stage) released(s *jobsetstate.Snapshot, job *batchv1.Job, placed []childjob.Update) (*batchv1.Job, error) {
	if s.IsUnqueued {
		return childjob.ReleasedUnqueued(job, placed...)
	}
	name := jobsetstate.ReplicatedJobOf(job)
	updates := append([]childjob.Update{{By: "its admission would", Update: kueue.PodSetUpdate{
		Labels: workloadstatus.PodLabels(st.workload, kueue.NewPodSetReference(name)),
	}}}, childjob.UpdatesOf(st.workload, name)...)
	updates = append(updates, placed...)
	if s.OtherEngine {
		updates = append(updates, childjob.PlacedByKueue(st.workload, name))
	}
	return childjob.Released(job, st.templateOf(job), childjob.AssignmentOf(st.workload, name), s.Flavors, updates...)
}

// concludeDecided selects held Jobs that only have to end. They create no more pods, so it does not matter whether their stage holds quota;
// but the stage keeps its quota until they have ended.
func (w *Step) concludeDecided(st *stage) {
	for _, job := range st.jobs {
		if childjob.CannotEnd(job) {
			w.ConcludeJobs = append(w.ConcludeJobs, job)
		}
	}
}
