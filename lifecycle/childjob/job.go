// Package childjob reads the state of child Jobs of JobSets, and prepares them to run on the flavors that their stage was admitted to.
package childjob

import (
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// IsFinished reports whether a Job has ended with the condition, batchv1.JobComplete or batchv1.JobFailed.
func IsFinished(job *batchv1.Job, condition batchv1.JobConditionType) bool {
	return says(job, condition)
}

func says(job *batchv1.Job, condition batchv1.JobConditionType) bool {
	return slices.ContainsFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool {
		return c.Type == condition && c.Status == corev1.ConditionTrue
	})
}

func isOver(job *batchv1.Job) bool {
	return IsFinished(job, batchv1.JobComplete) || IsFinished(job, batchv1.JobFailed)
}

// IsReady reports whether all pods that a Job can have at once are ready or have succeeded, as the JobSet controller counts them.
func IsReady(job *batchv1.Job) bool {
	return IsReadyWith(job, PodsAtOnce(job))
}

// IsReadyWith reports whether the given number of pods of a Job are ready or have succeeded, or all if it can have fewer.
func IsReadyWith(job *batchv1.Job, pods int32) bool {
	if ptr.Deref(job.Spec.Suspend, false) {
		return false
	}
	return job.Status.Succeeded+ptr.Deref(job.Status.Ready, 0) >= min(pods, PodsAtOnce(job))
}

// IsIndexed reports whether the number of pods of a Job can change while it runs.
func IsIndexed(spec *batchv1.JobSpec) bool {
	return ptr.Deref(spec.CompletionMode, batchv1.NonIndexedCompletion) == batchv1.IndexedCompletion
}

// Resized returns a copy of an Indexed Job that has the given number of pods at once, and is complete when that many have succeeded.
func Resized(job *batchv1.Job, pods int32) *batchv1.Job {
	resized := job.DeepCopy()
	resized.Spec.Parallelism, resized.Spec.Completions = &pods, &pods
	return resized
}

// PodsAtOnce returns how many pods a Job can have at once.
func PodsAtOnce(job *batchv1.Job) int32 {
	pods := ptr.Deref(job.Spec.Parallelism, 1)
	return min(pods, ptr.Deref(job.Spec.Completions, pods))
}

// IsHeld reports whether a Job waits to be released.
func IsHeld(job *batchv1.Job) bool {
	return ptr.Deref(job.Spec.Suspend, false) && !isOver(job) && job.DeletionTimestamp.IsZero()
}

// IsRunning reports whether a Job may have or create pods.
func IsRunning(job *batchv1.Job) bool {
	return !ptr.Deref(job.Spec.Suspend, false) && !isOver(job) && job.DeletionTimestamp.IsZero()
}

// IsStuck reports whether a Job is being deleted and has finalizers. The Job controller neither suspends it nor deletes its pods; the
// garbage collector deletes them in foreground deletion only.
func IsStuck(job *batchv1.Job) bool {
	return !job.DeletionTimestamp.IsZero() && !slices.Contains(job.Finalizers, metav1.FinalizerDeleteDependents)
}

// IsEnding reports whether the Job controller has decided how a Job ends. From then on it creates no pods for the Job. It is false for a
// Job that is being deleted, which may never report its end.
func IsEnding(job *batchv1.Job) bool {
	return !isOver(job) && job.DeletionTimestamp.IsZero() && (says(job, batchv1.JobSuccessCriteriaMet) || says(job, batchv1.JobFailureTarget))
}

// CannotEnd reports whether the end of a held Job is decided and cannot be written: no Job may end without a start time. The JobSet
// controller removes the start time of every Job that it tries to resume, and the Job controller sets it only on a Job that is not
// suspended.
func CannotEnd(job *batchv1.Job) bool {
	return IsHeld(job) && IsEnding(job) && job.Status.StartTime == nil
}

// HasPods reports whether a Job has pods that are not terminal, or may still create some. A held Job may create pods until the Job
// controller has reported that it is suspended.
func HasPods(job *batchv1.Job) bool {
	if isOver(job) {
		return false
	}
	return job.Status.Active > 0 || ptr.Deref(job.Status.Terminating, 0) > 0 || IsRunning(job) || IsHeld(job) && !saysSuspended(job)
}

// ReplacesEarly reports whether a Job replaces a pod that still terminates. Both pods use the quota that is charged for one of them. Admission policies
// keep the field as it is once the manager has set it.
func ReplacesEarly(job *batchv1.Job) bool {
	return ptr.Deref(job.Spec.PodReplacementPolicy, batchv1.TerminatingOrFailed) != batchv1.Failed
}

// ReplacingLate returns a copy of a Job that replaces a pod only when it has terminated. The API server accepts the field together with any other
// field, and changes of it at any time.
func ReplacingLate(job *batchv1.Job) *batchv1.Job {
	after := job.DeepCopy()
	after.Spec.PodReplacementPolicy = new(batchv1.Failed)
	return after
}

// IsRunEnding reports whether pods of an earlier run of a held Job may still use quota. pods has those of the Job that are not terminal, also pods that an
// earlier Job of its name created. A Job must not run again before: its new pods would use the same quota. The status alone is not enough, because it
// can be older than the pods, and counts none of an earlier Job; nor are the pods, because the Job controller can be about to create some until it
// has reported that the Job is suspended.
func IsRunEnding(job *batchv1.Job, pods []*corev1.Pod) bool {
	if len(pods) > 0 || job.Status.Active > 0 || ptr.Deref(job.Status.Terminating, 0) > 0 {
		return true
	}
	return WasReleased(job) && IsHeld(job) && !saysSuspended(job)
}

// WasReleased reports whether a Job was released, and may have, or get, pods since. The Job controller can be creating them although the Job shows no
// start time: the additions of the admission are removed when it has none.
func WasReleased(job *batchv1.Job) bool { return job.Status.StartTime != nil || !IsRestored(job) }

// IsNoticed reports whether the Job controller has noticed that a Job runs. A Job that is held earlier would keep the status from before
// its release, while the Job controller may be about to create its pods: its status would not show when they have terminated.
func IsNoticed(job *batchv1.Job) bool { return IsRunning(job) && !saysSuspended(job) }

func saysSuspended(job *batchv1.Job) bool { return says(job, batchv1.JobSuspended) }

// HasProgress reports whether pods of a Job have ended by themselves, successfully or not, and the Job has not. If it were released again
// it would continue from there, and not with all of its pods.
func HasProgress(job *batchv1.Job) bool {
	status := &job.Status
	uncounted := status.UncountedTerminatedPods != nil && len(status.UncountedTerminatedPods.Succeeded)+len(status.UncountedTerminatedPods.Failed) > 0
	return !isOver(job) && (status.Succeeded > 0 || status.Failed > 0 || uncounted)
}
