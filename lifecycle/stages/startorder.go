package stages

import (
	"slices"

	"k8s.io/utils/ptr"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/tranche-dev/tranche/lifecycle/childjob"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
)

// With InOrder, the JobSet controller creates the Jobs of a ReplicatedJob of a running JobSet only when the Jobs of all earlier
// ReplicatedJobs are ready. The ReplicatedJobs of a stage start together, and may wait for each other to become ready. While a JobSet is
// suspended, the controller creates all of its Jobs at once. So Tranche releases no Job of a JobSet before all Jobs of such stages exist,
// and suspends a running JobSet for a moment:
//
//	restart  ->  left-0 held; right-0 is missing  ->  pause: suspended  ->  left-0, right-0 held  ->  start, release both
//
// The pause would also stop other running Jobs of the attempt, for instance if single Jobs were deleted. In that case the JobSet is not
// paused and behaves as without Tranche.
//
// A JobSet without a queue is not created suspended. It is paused in the same way, also before its first stage, and has an annotation
// during the pause, because its user may suspend it at any time.

// awaitedStage returns the stage whose missing Jobs must exist before any Job starts, or nil.
func awaitedStage(s *jobsetstate.Snapshot, stages []stage) *stage {
	policy := s.JobSet.Spec.StartupPolicy
	if policy == nil || policy.StartupPolicyOrder != jobset.InOrder || slices.ContainsFunc(stages, func(st stage) bool { return slices.ContainsFunc(st.jobs, childjob.IsRunning) }) {
		return nil
	}
	i := slices.IndexFunc(stages, func(st stage) bool { return len(st.ReplicatedJobs) > 1 && st.lacksJobs() })
	if i < 0 {
		return nil
	}
	return &stages[i]
}

// startOrPause starts a JobSet when a stage may run and its Jobs exist, and pauses it if they do not.
func (w *Step) startOrPause(s *jobsetstate.Snapshot, stages []stage) {
	if !slices.ContainsFunc(stages, func(st stage) bool { return st.mayRun(s) && !st.decided }) {
		return
	}
	awaited := awaitedStage(s, stages)
	if jobsetstate.IsStarted(s.JobSet) {
		if awaited != nil && !jobsetstate.IsSuspendedByUser(s.JobSet) {
			w.Pause = awaited.Name
		}
		return
	}
	w.Start = awaited == nil
}

// pauseOrResume does the same for a JobSet without a queue. It reports whether the Jobs of open stages may be released.
func (w *Step) pauseOrResume(s *jobsetstate.Snapshot, stages []stage) bool {
	awaited, isSuspended := awaitedStage(s, stages), ptr.Deref(s.JobSet.Spec.Suspend, false)
	switch {
	case jobsetstate.IsPaused(s.JobSet):
		// If the user resumes it too early, it is paused again.
		w.Start = awaited == nil || !isSuspended
	case awaited != nil && !isSuspended && slices.ContainsFunc(stages, func(st stage) bool { return st.open && !st.succeeded() && !st.decided }):
		w.Pause = awaited.Name
	default:
		return !isSuspended
	}
	return false
}
