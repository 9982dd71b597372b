package queuedjob

import (
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/childjob"
)

// A Job that its user lets run with fewer pods at once is admitted in part: its parallelism is that of the admission while it runs, and
// SizeAnnotation keeps its own. SizeAnnotation and CompletionsAnnotation also record what the user of an elastic Job wants.

// minPods returns with how few pods at once a Job may be admitted, or nil if it is admitted whole.
func minPods(job *batchv1.Job) *int32 {
	n, err := strconv.ParseInt(job.Annotations[apis.MinParallelismAnnotation], 10, 32)
	if err != nil || n < 1 || int32(n) >= childjob.PodsAtOnce(job) {
		return nil
	}
	return new(int32(n))
}

// resized returns a copy of a Job with another parallelism, and completions if they are to be equal.
func resized(job *batchv1.Job, pods int32) *batchv1.Job {
	after := job.DeepCopy()
	after.Spec.Parallelism = &pods
	if equal, err := strconv.ParseBool(job.Annotations[apis.CompletionsEqualAnnotation]); err == nil && equal {
		after.Spec.Completions = new(pods)
	}
	return after
}

// Restored returns a copy of a Job without what its admission has changed: the additions to its pod template, and its size.
func Restored(job *batchv1.Job) *batchv1.Job {
	return restoredSize(childjob.Restored(job))
}

// restoredSize returns a copy of a Job with the size that its user wants.
func restoredSize(job *batchv1.Job) *batchv1.Job {
	restored := job.DeepCopy()
	parallelism, isOther := sizeOf(job, apis.SizeAnnotation)
	completions, areOther := sizeOf(job, apis.CompletionsAnnotation)
	delete(restored.Annotations, apis.SizeAnnotation)
	delete(restored.Annotations, apis.CompletionsAnnotation)
	if isOther {
		restored = resized(restored, parallelism)
	}
	if areOther {
		restored.Spec.Completions = &completions
	}
	return restored
}

// sizeOf reads an annotation that records a size. If its value is no number, the Job keeps its size.
func sizeOf(job *batchv1.Job, annotation string) (int32, bool) {
	n, err := strconv.ParseInt(job.Annotations[annotation], 10, 32)
	return int32(n), err == nil && n >= 0
}

func isRestored(job *batchv1.Job) bool {
	_, isSmaller := job.Annotations[apis.SizeAnnotation]
	return childjob.IsRestored(job) && !isSmaller
}

// admitted returns a Job with the parallelism that it is admitted to, which is its own unless its quota Workload allows fewer pods.
func admitted(job *batchv1.Job, workload *kueue.Workload) *batchv1.Job {
	if !quotaworkload.HoldsQuota(workload) || workload.Spec.PodSets[0].MinCount == nil || !isRestored(job) {
		return job
	}
	assignment := childjob.AssignmentOf(workload, string(kueue.DefaultPodSetName))
	if assignment == nil || assignment.Count == nil || *assignment.Count >= childjob.PodsAtOnce(job) {
		return job
	}
	smaller := resized(job, *assignment.Count)
	metav1.SetMetaDataAnnotation(&smaller.ObjectMeta, apis.SizeAnnotation, strconv.Itoa(int(ptr.Deref(job.Spec.Parallelism, 1))))
	return smaller
}
