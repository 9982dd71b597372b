package jobset

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/controllers/childjob"
	"github.com/tranche-dev/tranche/controllers/conditions"
	"github.com/tranche-dev/tranche/controllers/events"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
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
func (w *actions) reconcileUnqueued(s *snapshot) {
	stages, _ := stagesOf(s)
	over, _ := outcomeOf(s.jobSet)
	w.conditions = conditions.UnqueuedProgress(s.jobSet, unqueuedSummary(s.jobSet, stages))
	for i := range stages {
		w.concludeJobs(&stages[i])
	}
	if over {
		return
	}
	w.disperse = append(w.disperse, s.gangs.Stale()...)
	w.finished = newlyFinished(s.jobSet, stages)
	w.skipJobs(s, stages)
	mayRelease := w.pauseOrResume(s, stages)
	for i := range stages {
		st := &stages[i]
		switch {
		case ptr.Deref(s.jobSet.Spec.Suspend, false):
			w.resizeGangs(s, st)
		case mayRelease && st.open && !st.succeeded() && !st.decided && w.ensureGangs(s, st):
			w.releaseJobs(s, st)
		}
	}
}

// recall restores the state of a stage without a quota Workload.
func (st *stage) recall(js *jobsetapi.JobSet) {
	st.hasBegun = slices.ContainsFunc(st.jobs, childjob.IsRunning)
	if !slices.Contains(finishedStages(js), st.Name) {
		return
	}
	st.hasBegun = true
	st.addSucceeded(st.ReplicatedJobs)
}

// finishedStages returns the stages that the JobSet names as succeeded in its current attempt.
func finishedStages(js *jobsetapi.JobSet) []string {
	var finished apis.FinishedStages
	// The manager did not write an annotation that cannot be parsed.
	if json.Unmarshal([]byte(js.Annotations[apis.FinishedStagesAnnotation]), &finished) != nil || finished.Attempt != js.Status.Restarts {
		return nil
	}
	return finished.Stages
}

// newlyFinished returns the names of all stages that have succeeded, or nil if the JobSet records them already. The last stage is left out:
// no stage waits for it.
func newlyFinished(js *jobsetapi.JobSet, stages []stage) []string {
	noted, all := finishedStages(js), []string{}
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

// noteFinished records on the JobSet the stages that have succeeded, before the stages that wait for them are released.
func (r *Reconciler) noteFinished(ctx context.Context, s *snapshot, w *actions) error {
	if w.finished == nil {
		return nil
	}
	value, err := json.Marshal(apis.FinishedStages{Attempt: s.jobSet.Status.Restarts, Stages: w.finished})
	if err != nil {
		return fmt.Errorf("render the finished stages of JobSet %s: %w", s.key, err)
	}
	after := s.jobSet.DeepCopy()
	metav1.SetMetaDataAnnotation(&after.ObjectMeta, apis.FinishedStagesAnnotation, string(value))
	if err := r.patchIfSame(ctx, s.jobSet, after); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("note the finished stages of JobSet %s: %w", s.key, err)
	}
	before := finishedStages(s.jobSet)
	for _, stage := range w.finished {
		if !slices.Contains(before, stage) {
			events.StageFinished(stage, workloadstatus.StageSucceeded(stage).Message).EmitAbout(r.config.Recorder, s.jobSet, s.firstJobOf(stage))
		}
	}
	return nil
}

// firstJobOf returns a Job of a stage for its Events.
func (s *snapshot) firstJobOf(stage string) *batchv1.Job {
	for i := range s.plan.Stages {
		if s.plan.Stages[i].Name != stage {
			continue
		}
		for _, job := range s.mine.jobs {
			if slices.Contains(s.plan.Stages[i].ReplicatedJobs, replicatedJobOf(job)) {
				return job
			}
		}
	}
	return nil
}

// unqueuedSummary returns the summary of the stages for the condition StageInProgress.
func unqueuedSummary(js *jobsetapi.JobSet, stages []stage) conditions.Summary {
	over, _ := outcomeOf(js)
	sum := conditions.Summary{Stages: len(stages), Over: over}
	for i := range stages {
		if st := &stages[i]; !over && st.open && !st.succeeded() {
			sum.Current = append(sum.Current, conditions.StageState{Index: i, Name: st.Name})
		}
	}
	return sum
}
