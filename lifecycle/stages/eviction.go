package stages

import (
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/lifecycle/childjob"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
	"github.com/tranche-dev/tranche/lifecycle/quotastep"
	"github.com/tranche-dev/tranche/lifecycle/schedulergang"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// An eviction returns a whole JobSet to the boundary of its last succeeded stage. It begins when the quota Workload of any stage that holds
// quota has Evicted=True, and ends when no stage that has not succeeded holds quota:
//
//	init(finished)  launcher(held, Evicted)  train(held)
//	   every stage that holds quota gets Evicted=True; train, which opened when launcher was Ready, is gated
//	   their Jobs are held; Jobs with progress are recreated once their pods have terminated
//	   when none of their pods is left: train releases its quota, then launcher
//	init(finished)  launcher(waiting)        train(gated)
//
// If train backs off, because an AdmissionCheck asks for a retry or its pods were not ready in time, all of them do: otherwise the launcher would be
// admitted again at once, and hold its quota until train may follow.
//
// Each step is derived from the objects, so the eviction continues wherever it was interrupted.
type eviction struct {
	// cause is the stage that was evicted first, or nil if the JobSet is not evicted.
	cause *stage
	// complete is true if no pod of the evicted stages is left, and nothing else must be done before they release their quota.
	complete bool
}

// markEvicted marks the stages that must release their quota, and returns the stage that caused the eviction, or nil. A stage that has
// succeeded is not marked: it finishes, even if it was evicted in the meantime. The other stages are still evicted then, because the
// eviction was meant for the JobSet.
func markEvicted(s *jobsetstate.Snapshot, stages []stage) *stage {
	var cause *stage
	for i := range stages {
		st := &stages[i]
		st.loses = losesReservation(s, st)
		if st.isEvicted() && !st.loses && (cause == nil || evictedAt(st.workload).Before(evictedAt(cause.workload))) {
			cause = st
		}
	}
	goesBack := func(st stage) bool {
		return st.workload != nil && st.holdsQuota() && !quotaworkload.IsTrue(st.workload, kueue.WorkloadFinished) && !st.succeeded()
	}
	if cause == nil || !slices.ContainsFunc(stages, goesBack) {
		return nil
	}
	for i := range stages {
		st := &stages[i]
		st.mustRelease, st.loses = goesBack(*st), false
	}
	return cause
}

func (st *stage) isEvicted() bool {
	return st.workload != nil && st.holdsQuota() && quotaworkload.IsTrue(st.workload, kueue.WorkloadEvicted) &&
		!quotaworkload.IsTrue(st.workload, kueue.WorkloadFinished)
}

func evictedAt(workload *kueue.Workload) *metav1.Time {
	return &apimeta.FindStatusCondition(workload.Status.Conditions, kueue.WorkloadEvicted).LastTransitionTime
}

// isDeactivated reports whether a stage was evicted because its quota Workload is not active. A stage that is deactivated before it holds
// quota does not keep earlier stages from running.
func isDeactivated(workload *kueue.Workload) bool {
	return workload != nil && workloadstatus.IsShutOut(workload)
}

// evictStage takes the next step of the eviction of one stage.
func (w *Step) evictStage(s *jobsetstate.Snapshot, st *stage, e *eviction) {
	w.Change(st.workload, st.adjusted(s))
	if !quotaworkload.IsTrue(st.workload, kueue.WorkloadEvicted) {
		cause := e.cause.workload
		w.Writes = append(w.Writes, quotastep.Write{
			Kind: quotastep.Evict, Workload: st.workload, Eviction: workloadstatus.EvictionOf(cause), Requeue: workloadstatus.BackingOffWith(st.workload, cause), Cause: cause,
		})
		e.complete = false
	}
	w.ForgetReadiness(st.workload)
	e.complete = w.stop(s, st) && e.complete
}

// stop holds the Jobs of a stage again, and has Jobs recreated that would not start from their beginning. It reports whether none of the
// Jobs runs and none has to be changed.
func (w *Step) stop(s *jobsetstate.Snapshot, st *stage) bool {
	stopped := !st.hasPods
	for _, job := range st.jobs {
		switch {
		case childjob.IsEnding(job):
			stopped = false
		case childjob.IsNoticed(job):
			w.HoldJobs = append(w.HoldJobs, job)
		case childjob.HasPods(job):
		case childjob.HasProgress(job) || childjob.IsFinished(job, batchv1.JobComplete) && schedulergang.IsSingleGang(s.JobSet, jobsetstate.ReplicatedJobOf(job)):
			// A gang of several Jobs starts from its beginning, including Jobs that have succeeded.
			w.RecreateJobs = append(w.RecreateJobs, job)
			stopped = false
		case childjob.IsHeld(job) && !childjob.IsRestored(job):
			w.RestoreJobs = append(w.RestoreJobs, job)
			stopped = false
		}
	}
	return stopped
}

// releaseEvicted releases the quota of the evicted stages, the last stage first: so no stage is admitted before the stages that wait for
// it are gated and hold no quota.
func (w *Step) releaseEvicted(stages []stage) {
	for i := range slices.Backward(stages) {
		if st := &stages[i]; st.mustRelease {
			w.Do(quotastep.Release, st.workload)
		}
	}
}

// KeptJobs counts, for each stage, the succeeded Jobs that an eviction keeps.
func KeptJobs(s *jobsetstate.Snapshot) map[string]int {
	counts := map[string]int{}
	if s.JobSet == nil || s.Plan == nil {
		return counts
	}
	stages, _ := stagesOf(s)
	for i := range stages {
		for _, tally := range stages[i].tallies {
			counts[stages[i].Name] += int(tally.succeeded)
		}
	}
	return counts
}
