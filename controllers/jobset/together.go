package jobset

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/controllers/childjob"
	"github.com/tranche-dev/tranche/controllers/events"
)

// With InOrder, the JobSet controller creates the Jobs of a ReplicatedJob of a running JobSet only when those of all ReplicatedJobs before
// it are ready. The ReplicatedJobs of a stage start together, and may wait for each other to become ready. Of a suspended JobSet the
// controller creates all Jobs at once. So nothing of a JobSet is released before all Jobs of such stages are there, and one that runs is
// suspended for a moment, as it was before it first started:
//
//	restart  ->  left-0 held; right-0 is missing  ->  pause: suspended  ->  left-0, right-0 held  ->  start, release both
//
// Where other Jobs of the attempt run, as when single Jobs were deleted, that would stop them: then it is as without Tranche.
//
// A JobSet without a queue is not suspended when it is created. It is paused in the same way, also at first, and has an annotation meanwhile,
// because its user may suspend it at any time.

// awaitedStage returns the stage of which Jobs are missing that nothing may start without, or nil.
func (s *seen) awaitedStage(stages []stage) *stage {
	policy := s.jobSet.Spec.StartupPolicy
	if policy == nil || policy.StartupPolicyOrder != jobset.InOrder || slices.ContainsFunc(stages, func(st stage) bool { return st.runs() }) {
		return nil
	}
	i := slices.IndexFunc(stages, func(st stage) bool { return len(st.ReplicatedJobs) > 1 && st.lacksJobs() })
	if i < 0 {
		return nil
	}
	return &stages[i]
}

// runs reports whether a Job of the current attempt runs.
func (st *stage) runs() bool { return slices.ContainsFunc(st.jobs, childjob.IsRunning) }

// startOrPause starts a JobSet when a stage may run and its Jobs are there, and pauses one whose Jobs are not.
func (w *wanted) startOrPause(s *seen, stages []stage) {
	if !slices.ContainsFunc(stages, func(st stage) bool { return st.mayRun(s) && !st.decided }) {
		return
	}
	awaited := s.awaitedStage(stages)
	if isStarted(s.jobSet) {
		if awaited != nil && !isSuspendedByUser(s.jobSet) {
			w.pause = awaited.Name
		}
		return
	}
	w.start = awaited == nil
}

// pauseOrResume does so for a JobSet without a queue. It reports whether the Jobs of open stages may be released.
func (w *wanted) pauseOrResume(s *seen, stages []stage) bool {
	awaited, isSuspended := s.awaitedStage(stages), ptr.Deref(s.jobSet.Spec.Suspend, false)
	switch {
	case isPaused(s.jobSet):
		// If its user resumes it too early, it is paused again.
		w.start = awaited == nil || !isSuspended
	case awaited != nil && !isSuspended && slices.ContainsFunc(stages, func(st stage) bool { return st.open && !st.succeeded() && !st.decided }):
		w.pause = awaited.Name
	default:
		return !isSuspended
	}
	return false
}

func isPaused(js *jobsetapi.JobSet) bool {
	_, paused := js.Annotations[apis.PausedAnnotation]
	return paused
}

// pause suspends the JobSet, and notes that its suspension is not the wish of its user.
func (r *Reconciler) pause(ctx context.Context, s *seen, w *wanted) error {
	if w.pause == "" {
		return nil
	}
	after := s.jobSet.DeepCopy()
	after.Spec.Suspend = new(true)
	if s.isUnqueued {
		metav1.SetMetaDataAnnotation(&after.ObjectMeta, apis.PausedAnnotation, "true")
	}
	delete(after.Annotations, apis.StartedAnnotation)
	if err := r.patchIfSame(ctx, s.jobSet, after); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("pause JobSet %s: %w", s.key, err)
	}
	events.JobSetPaused(w.pause).Emit(r.config.Recorder, s.jobSet)
	return nil
}
