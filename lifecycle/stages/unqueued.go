package stages

import (
	"slices"

	"k8s.io/utils/ptr"

	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/lifecycle/childjob"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstatus"
)

// A JobSet without a queue has no quota Workloads. Its stages are released as soon as they are open, and the state that a quota Workload
// would keep is derived from the Jobs: a stage with a running Job has been opened. The JobSet records which stages have succeeded, because
// finished Jobs may be deleted before the stages that wait for them have begun. spec.suspend belongs to the user. After a suspension the
// sequence starts again with the first stage that has not succeeded.
//
//	init(runs)       train(held)    init has to succeed
//	init(succeeded)  train(held)    annotation tranche.dev/finished-stages, then train is released
//	init(deleted)    train(runs)    init-0 is recreated and stays held, until it is skipped (succeeded.go)

// reconcileUnqueued decides what to write for a JobSet without a queue.
func (w *Step) reconcileUnqueued(s *jobsetstate.Snapshot) {
	stages, _ := stagesOf(s)
	over, _ := jobsetstate.OutcomeOf(s.JobSet)
	w.Conditions = jobsetstatus.UnqueuedProgress(s.JobSet, unqueuedSummary(s.JobSet, stages))
	for i := range stages {
		w.concludeDecided(&stages[i])
	}
	if over {
		return
	}
	w.DeleteGangs = append(w.DeleteGangs, s.Gangs.Stale()...)
	w.RecordFinished = newlyFinished(s.JobSet, stages)
	w.skipSucceeded(s, stages)
	mayRelease := w.pauseOrResume(s, stages)
	for i := range stages {
		st := &stages[i]
		switch {
		case ptr.Deref(s.JobSet.Spec.Suspend, false):
			w.resizeGangs(s, st)
		case mayRelease && st.open && !st.succeeded() && !st.decided && w.ensureGangs(s, st):
			w.releaseStage(s, st)
		}
	}
}

// recall restores the state of a stage without a quota Workload.
func (st *stage) recall(js *jobsetapi.JobSet) {
	st.hasBegun = slices.ContainsFunc(st.jobs, childjob.IsRunning)
	if !slices.Contains(jobsetstate.FinishedStages(js), st.Name) {
		return
	}
	st.hasBegun = true
	st.addSucceeded(st.ReplicatedJobs)
}

// newlyFinished returns the names of all stages that have succeeded, or nil if the JobSet records them already. The last stage is left out:
// no stage waits for it.
func newlyFinished(js *jobsetapi.JobSet, stages []stage) []string {
	noted, all := jobsetstate.FinishedStages(js), []string{}
	for i := range stages {
		if stages[i].succeeded() && i < len(stages)-1 {
			all = append(all, stages[i].Name)
		}
	}
	if len(all) == 0 || slices.Equal(all, noted) {
		return nil
	}
	return all
}

// unqueuedSummary returns the summary of the stages for the condition StageInProgress.
func unqueuedSummary(js *jobsetapi.JobSet, stages []stage) jobsetstatus.Summary {
	over, _ := jobsetstate.OutcomeOf(js)
	sum := jobsetstatus.Summary{Stages: len(stages), Over: over}
	for i := range stages {
		if st := &stages[i]; !over && st.open && !st.succeeded() {
			sum.Current = append(sum.Current, jobsetstatus.StageState{Index: i, Name: st.Name})
		}
	}
	return sum
}
