package podgang

import (
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/childjob"
)

// A pod may succeed while its eviction deletes it. Its Job counts it, and creates no other pod in its place, but the pod may have disappeared before the
// manager has read it. So the Jobs of a gang count pods that have succeeded, too:
//
//	3 pods run -> evicted, all are deleted -> one succeeds while it terminates, and disappears -> the Job recreates 2 -> 2 start together
//
// A count may be older than the pods that it is read with, but not newer: then a pod could count as running, and as succeeded.

// successes counts the pods of this run that have succeeded, by their controllers. Pods without a controller have an empty UID.
type successes map[types.UID]int32

// controllerOf returns the UID of the controller of a pod, or nothing.
func controllerOf(pod *corev1.Pod) types.UID {
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
		return owner.UID
	}
	return ""
}

// total adds up all pods that have succeeded, as far as a pod or a Job shows it.
func (s successes) total(jobs []*batchv1.Job) int32 {
	n := int32(0)
	for _, job := range jobs {
		n += max(0, succeededOf(job)-s[job.UID])
	}
	for _, pods := range s {
		n += pods
	}
	return n
}

// succeededOf returns how many pods of a Job have succeeded, also those that no longer exist. A complete Job needs none of its other pods: one without
// completions is complete when one has succeeded, and all have terminated.
func succeededOf(job *batchv1.Job) int32 {
	n := job.Status.Succeeded
	if uncounted := job.Status.UncountedTerminatedPods; uncounted != nil {
		n += int32(len(uncounted.Succeeded)) //nolint:gosec // far from 2^31
	}
	if isComplete(job) {
		n = max(n, childjob.PodsAtOnce(job))
	}
	return n
}

func isComplete(job *batchv1.Job) bool { return childjob.IsFinished(job, batchv1.JobComplete) }

func isFinished(job *batchv1.Job) bool {
	return isComplete(job) || childjob.IsFinished(job, batchv1.JobFailed)
}

// JobDiffers reports whether a change of a Job can change the next step of its gang.
func JobDiffers(before, after *batchv1.Job) bool {
	return succeededOf(before) != succeededOf(after) || isComplete(before) != isComplete(after) || isFinished(before) != isFinished(after)
}

// jobsOfRun returns the Jobs that belong to this run of the gang: those of its pods, the owners of its initial quota Workloads, and those that have become
// complete since these were created. Of the latter, the pods of one that names no queue may have run outside of the gang.
func (s *gangState) jobsOfRun(controllers map[types.UID]bool) []*batchv1.Job {
	for _, w := range s.initial {
		for i := range w.OwnerReferences {
			controllers[w.OwnerReferences[i].UID] = true
		}
	}
	var ofRun []*batchv1.Job
	for _, job := range s.Jobs {
		isLater := len(s.initial) > 0 && isComplete(job) && s.initial[0].CreationTimestamp.Before(job.Status.CompletionTime) &&
			job.Spec.Template.Labels[apis.QueueLabel] != ""
		if controllers[job.UID] || isLater {
			ofRun = append(ofRun, job)
		}
	}
	return ofRun
}

// isCompleted reports whether the Jobs of a gang have completed whose quota Workload was evicted, or has lost its pods otherwise: no pod will use it.
func (s *gangState) isCompleted(w *kueue.Workload) bool {
	return hasEverStarted(w) && !isExtra(w) && s.isAlone() && s.hasCompleted && s.succeeded >= s.Gang.Min
}

// haveCompleted reports whether all Jobs of this run are complete, no other Job can create pods for the gang, and nothing else has created any.
func (s *gangState) haveCompleted(ofRun []*batchv1.Job) bool {
	if !all(s.Jobs, isFinished) || !all(ofRun, isComplete) {
		return false
	}
	for _, w := range s.initial {
		for i := range w.OwnerReferences {
			if kind := w.OwnerReferences[i].Kind; kind != "Job" && kind != "PodGroup" && kind != "Pod" {
				return false
			}
		}
	}
	return len(ofRun) > 0
}

// unusedParts returns the parts of an evicted gang for which no pod is left: all that can still come wait, and have places in the others.
func (b *stepBuilder) unusedParts(places []place) []*kueue.Workload {
	if len(b.waiting) < int(b.Gang.Total-b.active-b.succeeded) {
		return nil
	}
	used := map[types.UID]bool{}
	for _, p := range places {
		used[p.slots.workload.UID] = true
	}
	var unused []*kueue.Workload
	for _, w := range b.initial {
		if !used[w.UID] && hasEverStarted(w) && !quotaworkload.HoldsQuota(w) {
			unused = append(unused, w)
		}
	}
	return unused
}

func all(jobs []*batchv1.Job, is func(*batchv1.Job) bool) bool {
	return !slices.ContainsFunc(jobs, func(job *batchv1.Job) bool { return !is(job) })
}
