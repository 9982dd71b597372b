package jobset

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/controllers/childjob"
	"github.com/tranche-dev/tranche/controllers/conditions"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// actions contains the writes of one reconcile. The order of the fields is the order of the writes.
type actions struct {
	// create has the quota Workloads that are missing.
	create []*kueue.Workload
	// evict has quota Workloads that must release their quota because another stage of their JobSet must.
	evict []evict
	// change has quota Workloads with wrong gates, attempt, queue or priority.
	change []change
	// setScheduler is true if the manager must write into the pod templates of the JobSet which scheduler places their gangs, before it starts the
	// JobSet.
	setScheduler bool
	// pause names the stage for which the JobSet is suspended, until the JobSet controller has created the Jobs that start together.
	pause string
	// start resumes the JobSet for the first time, or after a pause.
	start bool
	// disperse has gang objects that are finished, or that the JobSet no longer asks for.
	disperse []*unstructured.Unstructured
	// gather has gang objects that must exist, with the right content, before their Jobs run.
	gather []gathering
	// finished has the succeeded stages of a JobSet without a queue, if the JobSet does not record them yet.
	finished []string
	// release has the Jobs that may run.
	release []release
	// grow has the running Jobs whose number of pods changes.
	grow []grow
	// hold has Jobs that may no longer run, because their stage is evicted or a user has deleted their quota Workload.
	hold []*batchv1.Job
	// stopped is how many of them belong to a JobSet that is being deleted.
	stopped int
	// end has pods that no Job ends.
	end []abandoned
	// skip has held Jobs that replace deleted Jobs which had succeeded. They complete without running.
	skip []*batchv1.Job
	// conclude has held Jobs whose outcome is decided, but cannot be written while they are held.
	conclude []*batchv1.Job
	// remake has Jobs of evicted stages, and of restarting gangs, that would not start from their beginning. The JobSet controller
	// recreates them.
	remake []*batchv1.Job
	// restore has held Jobs of evicted stages that still contain fields which an admission added.
	restore []*batchv1.Job
	// ended has the quota holds that have ended and go into the timeline of the JobSet.
	ended []conditions.Hold
	// progress has the conditions PodsReady and Finished that differ.
	progress []progress
	// reclaim has changes of reclaimable pods.
	reclaim []reclaim
	// giveBack has the quota Workloads of a suspended or evicted JobSet whose pods have terminated.
	giveBack []*kueue.Workload
	// remove has quota Workloads whose stage has to run again, and that do not hold the quota for it: they have finished, or some of their
	// pods were reclaimed.
	remove []*kueue.Workload
	// removeFinalizers has quota Workloads whose finalizer is no longer needed: none of their Jobs or pods runs.
	removeFinalizers []*kueue.Workload
	// drop has quota Workloads that are no longer needed.
	drop []*kueue.Workload
	// expired is a quota Workload that has been deactivated for so long that its JobSet is deleted, or nil.
	expired *kueue.Workload
	// createGrowths has the quota Workloads for the growths of stages that hold quota.
	createGrowths []*kueue.Workload
	// awaitsEngine is true if the engine may not have observed yet an admission that the cache shows.
	awaitsEngine bool
	// requeueAfter is when to reconcile again because of gangs that wait for nodes, or of what expires, or zero. No watch may report these.
	requeueAfter time.Duration
	// conditions of the JobSet, complete.
	conditions []metav1.Condition
	// wait is reported to the user of the JobSet, or nil.
	wait *conditions.Wait
	// gangBlocked says why a gang is not placed, and priorityKept that the JobSet names a priority class which does not exist. Both are
	// reported to the user of the JobSet once, and are empty otherwise.
	gangBlocked, priorityKept string
	// complaints are reported to the user of the JobSet.
	complaints []string
	// failed joins the errors of writes that the other steps did not depend on. These writes are retried.
	failed error
}

type change struct {
	before, after *kueue.Workload
	// opened is true if the stage was gated before.
	opened bool
}

type release struct {
	stage    string
	queue    string
	workload *kueue.Workload
	jobs     []*batchv1.Job
}

type progress struct {
	stage    string
	workload *kueue.Workload
	// ready has no type if the condition PodsReady is removed.
	ready    metav1.Condition
	finished *metav1.Condition
	// succeeded is true if the stage finishes because all of its Jobs have succeeded.
	succeeded bool
}

// desired computes what to write from the snapshot. It does no I/O.
func desired(s *snapshot) *actions {
	w := &actions{}
	w.decide(s)
	if s.jobSet != nil {
		wait := s.gangWait()
		w.conditions = withGangs(s, w.conditions, wait)
		if wait.again != 0 {
			w.lookAfter(wait.again)
		}
		w.gangBlocked = conditions.BlockedGang(s.jobSet, w.conditions)
		w.conditions, w.priorityKept = conditions.WithPriorityKept(s.jobSet, w.conditions, s.unknownPriority)
	}
	return w
}

func (w *actions) decide(s *snapshot) {
	w.decideAboutOrphans(s)
	if s.jobSet == nil {
		return
	}
	if s.plan == nil {
		w.retire(s.mine)
		w.refuse(s)
		return
	}
	if s.isUnqueued {
		w.reconcileUnqueued(s)
		return
	}
	stages, evicted := stagesOf(s)
	e := eviction{cause: evicted, complete: evicted != nil}
	over, outcome := outcomeOf(s.jobSet)
	for i := range stages {
		w.concludeJobs(&stages[i])
		if over {
			w.wrapUp(&stages[i], outcome)
			w.dropGrowths(&stages[i])
		} else {
			w.reconcileStage(s, &stages[i], &e)
			w.reconcileGrowths(s, &stages[i], &e)
		}
	}
	sum := summary(s, stages)
	w.conditions = conditions.JobSetProgress(s.jobSet, sum)
	if over {
		w.ended = w.endedHolds(s, stages)
		w.expire(s, stages)
		return
	}
	w.expireDeactivated(s, stages)
	w.disperse = append(w.disperse, s.gangs.Stale()...)
	w.skipJobs(s, stages)
	w.wait = conditions.NewWaitReason(s.jobSet, sum)
	w.startOrPause(s, stages)
	if w.start && s.isMisnamed() {
		// Pod templates can be changed only while the JobSet is suspended.
		w.setScheduler, w.start = true, false
	}
	if e.complete {
		w.releaseQuotaOfEvicted(stages)
	}
	w.ended = w.endedHolds(s, stages)
	if evicted != nil {
		w.wait = nil
		w.conditions = conditions.JobSetEvicted(s.jobSet, len(stages), evicted.state())
	}
}

// decideAboutOrphans stops the Jobs and pods that earlier JobSets of the name have left, and pods that no Job ends.
func (w *actions) decideAboutOrphans(s *snapshot) {
	for uid, o := range s.orphans {
		if s.leaving != nil && s.leaving.UID == uid {
			w.leave(o)
		}
		w.endAbandoned(o)
		w.retire(o)
	}
	if !s.isUnqueued {
		w.endAbandoned(s.mine)
	}
}

// refuse reports a JobSet that has no plan.
func (w *actions) refuse(s *snapshot) {
	told := conditions.StageAdmitted
	w.conditions = conditions.JobSetRefused(s.jobSet, s.refusal)
	if s.isUnqueued {
		told = conditions.StageInProgress
		w.conditions = conditions.UnqueuedRefused(s.jobSet, s.refusal)
	}
	if !apimeta.IsStatusConditionPresentAndEqual(s.jobSet.Status.Conditions, told, metav1.ConditionFalse) {
		w.complaints = append(w.complaints, s.refusal)
	}
}

// retire deletes the quota Workloads of a JobSet that does not exist, or has no valid plan, once its pods have terminated.
func (w *actions) retire(o ownedObjects) {
	if len(o.pods) > 0 || slices.ContainsFunc(o.jobs, childjob.HasPods) {
		return
	}
	w.drop = append(w.drop, o.workloads...)
}

// wrapUp finishes a stage of a finished JobSet.
func (w *actions) wrapUp(st *stage, outcome metav1.Condition) {
	if st.workload == nil || st.hasPods {
		return
	}
	if quotaworkload.IsTrue(st.workload, kueue.WorkloadFinished) || !st.workload.DeletionTimestamp.IsZero() {
		w.removeFinalizerOnce(st.workload)
		return
	}
	outcome = st.outcome(outcome)
	w.progress = append(w.progress, progress{st.Name, st.workload, st.readiness(), &outcome, st.succeeded()})
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

// removeFinalizerOnce removes the finalizer of a quota Workload, and does nothing if it has none.
func (w *actions) removeFinalizerOnce(workload *kueue.Workload) {
	if slices.Contains(workload.Finalizers, kueue.ResourceInUseFinalizerName) {
		w.removeFinalizers = append(w.removeFinalizers, workload)
	}
}

// reconcileStage reconciles one stage of a JobSet that has not finished.
func (w *actions) reconcileStage(s *snapshot, st *stage, e *eviction) {
	switch {
	case st.workload == nil:
		w.create = append(w.create, newWorkload(s, st))
	case !st.workload.DeletionTimestamp.IsZero():
		w.handleDeleted(s, st)
		e.complete = e.complete && !st.mustRelease
	case st.mustRelease:
		w.releaseEvicted(s, st, e)
	case quotaworkload.IsTrue(st.workload, kueue.WorkloadFinished):
		if st.mustRunAgain() {
			w.remove = append(w.remove, st.workload)
		} else if !st.hasPods && w.isSettled(s, st.workload) {
			w.removeFinalizerOnce(st.workload)
		}
	default:
		w.advance(s, st)
	}
}

// handleDeleted handles a quota Workload that a user has deleted: it holds the Jobs of the stage again, as after an eviction, and then removes the
// finalizer of the quota Workload. The next reconcile creates a new one.
func (w *actions) handleDeleted(s *snapshot, st *stage) {
	gone := !st.hasPods
	if !quotaworkload.IsTrue(st.workload, kueue.WorkloadFinished) {
		gone = w.stop(s, st)
	}
	if gone {
		w.removeFinalizerOnce(st.workload)
	}
}

func (w *actions) advance(s *snapshot, st *stage) {
	if st.opensAgain() {
		w.progress = append(w.progress, progress{stage: st.Name, workload: st.workload, ready: workloadstatus.PodsNotStarted()})
		return
	}
	if !st.holdsQuota() && (st.hasOtherClaims() || st.hasOtherResources()) {
		w.remove = append(w.remove, st.workload)
		return
	}
	if after := st.adjusted(s); after != nil {
		w.change = append(w.change, change{st.workload, after, st.isGated() && st.open})
	}
	if st.open && st.succeeded() && !st.hasPods {
		w.progress = append(w.progress, progress{st.Name, st.workload, st.readiness(), workloadstatus.StageSucceeded(st.Name), true})
		return
	}
	if news, differs := st.reclaimNews(s); differs && !st.lacksQuota(s) {
		w.reclaim = append(w.reclaim, news)
	}
	if isSuspendedByUser(s.jobSet) {
		w.suspend(s, st)
		return
	}
	if st.lacksQuota(s) {
		w.remove = append(w.remove, st.workload)
		return
	}
	if st.isClosedAgain() {
		w.progress = append(w.progress, progress{stage: st.Name, workload: st.workload})
	}
	if st.awaitsEngine(s) {
		w.awaitsEngine = true
	}
	if !st.mayRun(s) {
		return
	}
	if ready, news := st.readinessNews(); news {
		w.progress = append(w.progress, progress{stage: st.Name, workload: st.workload, ready: ready})
	}
	if w.ensureGangs(s, st) && !st.decided && !st.awaitsJobs {
		w.releaseJobs(s, st)
	}
}

// suspend releases the quota of a stage whose JobSet was suspended by its user, once none of its pods is left.
func (w *actions) suspend(s *snapshot, st *stage) {
	w.forgetReadiness(st)
	w.resizeGangs(s, st)
	if st.holdsQuota() && !st.hasPods && len(st.growths) == 0 && slices.Contains(quotaworkload.Gates(st.workload), apis.SuspendedGate) {
		w.giveBack = append(w.giveBack, st.workload)
	}
}

// forgetReadiness records, for a stage whose Jobs are held again, that its pods have not started.
func (w *actions) forgetReadiness(st *stage) {
	if ready := workloadstatus.PodsNotStarted(); st.reportsReadiness() && !conditions.Has(st.workload.Status.Conditions, ready) {
		w.progress = append(w.progress, progress{stage: st.Name, workload: st.workload, ready: ready})
	}
}

// releaseJobs selects the held Jobs of an admitted stage that may start. A Job that asks for more than its stage was charged stays held: it
// was not created from the JobSet. A Job also stays held while a pod may still run that it created before it was held, or that a deleted
// Job of its name created: the quota of the stage pays for that pod until it has terminated. The Jobs of a gang wait together, and those
// with terminated pods are recreated.
func (w *actions) releaseJobs(s *snapshot, st *stage) {
	rel := release{stage: st.Name}
	if st.workload != nil {
		rel.queue, rel.workload = string(st.workload.Status.Admission.ClusterQueue), st.workload
	}
	ending := st.ending(s)
	spent, anew := st.spent(s, ending)
	w.remake = append(w.remake, spent...)
	for _, job := range st.jobs {
		if !childjob.IsHeld(job) || st.hasSucceeded(job) || ending[job.Name] || anew[s.gangOf(job)] {
			continue
		}
		if s.isOfOtherScheduler(job) {
			w.remake = append(w.remake, job)
			continue
		}
		placed, known := s.gangUpdates(job)
		if !known {
			continue
		}
		released, err := st.released(s, job, placed)
		if err != nil {
			w.complaints = append(w.complaints, err.Error())
			continue
		}
		rel.jobs = append(rel.jobs, released)
	}
	if len(rel.jobs) > 0 {
		w.release = append(w.release, rel)
	}
}

// released returns a Job as it must be to run, with the fields of its gang.
func (st *stage) released(s *snapshot, job *batchv1.Job, placed []childjob.Update) (*batchv1.Job, error) {
	if s.isUnqueued {
		return childjob.ReleasedUnqueued(job, placed...)
	}
	updates := append(updatesOf(st.workload, st.replicatedJobOf(job)), placed...)
	return childjob.Released(job, st.templateOf(job), st.assignmentOf(job), s.flavors, updates...)
}

// concludeJobs selects held Jobs that only have to end. They create no more pods, so it does not matter whether their stage holds quota;
// but the stage keeps its quota until they have ended.
func (w *actions) concludeJobs(st *stage) {
	for _, job := range st.jobs {
		if childjob.CannotEnd(job) {
			w.conclude = append(w.conclude, job)
		}
	}
}

// outcomeOf reports whether a JobSet has finished, and returns the Finished condition of its quota Workloads.
func outcomeOf(js *jobsetapi.JobSet) (over bool, finished metav1.Condition) {
	finished = metav1.Condition{Type: kueue.WorkloadFinished, Status: metav1.ConditionTrue}
	for _, condition := range js.Status.Conditions {
		switch {
		case condition.Status != metav1.ConditionTrue:
		case condition.Type == string(jobset.JobSetCompleted):
			finished.Reason, finished.Message = kueue.WorkloadFinishedReasonSucceeded, condition.Message
			return true, finished
		case condition.Type == string(jobset.JobSetFailed):
			finished.Reason, finished.Message = kueue.WorkloadFinishedReasonFailed, condition.Message
			return true, finished
		}
	}
	return false, finished
}

func isStarted(js *jobsetapi.JobSet) bool {
	_, started := js.Annotations[apis.StartedAnnotation]
	return started
}

// isSuspendedByUser reports whether the user has suspended the JobSet. Every queued JobSet is also created suspended; that does not count.
func isSuspendedByUser(js *jobsetapi.JobSet) bool {
	return isStarted(js) && ptr.Deref(js.Spec.Suspend, false)
}

// misuse returns what the user has to change before a JobSet can be queued, or "".
func misuse(js *jobsetapi.JobSet) string {
	if js.Labels[apis.QueueLabel] == "" {
		return fmt.Sprintf("the JobSet names no LocalQueue: set the label %s", apis.QueueLabel)
	}
	if queue := js.Labels[apis.QueueLabel]; len(validation.IsDNS1123Subdomain(queue)) > 0 {
		return fmt.Sprintf("metadata.labels: %q in %s is no name of a LocalQueue: suspend the JobSet and name one that exists in its namespace",
			queue, apis.QueueLabel)
	}
	if !isStarted(js) && (js.Labels[apis.PrebuiltWorkloadKey] != "" || js.Annotations[apis.PrebuiltWorkloadKey] != "") {
		return fmt.Sprintf("metadata: %s is not supported, because the manager makes the quota Workloads of a JobSet: submit it again without", apis.PrebuiltWorkloadKey)
	}
	if by := ptr.Deref(js.Spec.ManagedBy, jobset.JobSetControllerName); by != jobset.JobSetControllerName {
		return fmt.Sprintf("spec.managedBy is %q: only JobSets run by %q can be queued", by, jobset.JobSetControllerName)
	}
	if restartsInPlace(js) && isStaged(js) {
		return "spec.failurePolicy.restartStrategy is InPlaceRestart: the pods of such a JobSet wait for those of all its stages, so that it must be of" +
			" one stage; delete it, and submit it again without spec.startupPolicy and dependsOn, or with restartStrategy Recreate"
	}
	for i := range js.Spec.ReplicatedJobs {
		if by := ptr.Deref(js.Spec.ReplicatedJobs[i].Template.Spec.ManagedBy, batchv1.JobControllerName); by != batchv1.JobControllerName {
			return fmt.Sprintf("spec.replicatedJobs[%d].template.spec.managedBy is %q: the Job controller makes no pods for it; delete the JobSet and"+
				" submit it again without the field", i, by)
		}
		if js.Spec.ReplicatedJobs[i].Template.Labels[apis.HoldLabel] != apis.HoldValue {
			return fmt.Sprintf("spec.replicatedJobs[%d].template.metadata.labels: the JobSet is not held, so its Jobs start without quota:"+
				" it was created before Tranche's admission policies were in force; delete it and submit it again", i)
		}
	}
	return ""
}

func restartsInPlace(js *jobsetapi.JobSet) bool {
	return js.Spec.FailurePolicy != nil && js.Spec.FailurePolicy.RestartStrategy == jobset.InPlaceRestart
}

// isStaged reports whether a JobSet has several stages.
func isStaged(js *jobsetapi.JobSet) bool {
	inOrder := js.Spec.StartupPolicy != nil && js.Spec.StartupPolicy.StartupPolicyOrder == jobset.InOrder && len(js.Spec.ReplicatedJobs) > 1
	return inOrder || slices.ContainsFunc(js.Spec.ReplicatedJobs, func(r jobsetapi.ReplicatedJob) bool { return len(r.DependsOn) > 0 })
}

func attemptOf(js *jobsetapi.JobSet) string { return strconv.Itoa(int(js.Status.Restarts)) }
