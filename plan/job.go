package plan

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/childjob"
	"github.com/tranche-dev/tranche/lifecycle/queuedjob"
)

const jobKind = "Job"

// notQueued returns why Tranche does not queue a Job that a manifest describes. It returns nothing if Tranche does.
func (c *Change) notQueued(job *batchv1.Job) string {
	if owner := metav1.GetControllerOf(job); owner != nil {
		return fmt.Sprintf("metadata.ownerReferences: %s %s creates this Job: apply that object instead", owner.Kind, owner.Name)
	}
	i := slices.IndexFunc(c.after.Jobs, func(old *batchv1.Job) bool { return old.Namespace == job.Namespace && old.Name == job.Name })
	switch {
	case i >= 0 && c.after.Jobs[i].Labels[apis.HoldLabel] != apis.HoldQueued:
		return "metadata.name: a Job of this name exists that is not queued: give it another name"
	case i < 0 && job.Labels[apis.QueueLabel] == "" && !c.hasLocalQueue(job.Namespace, defaultQueue):
		return "metadata.labels: the Job names no LocalQueue, so it would start without quota: set the label " + apis.QueueLabel
	}
	return ""
}

// submitJob completes a new Job as the API server and the admission policies do: it is suspended, whatever its spec.suspend, and queued by itself.
func submitJob(job *batchv1.Job) {
	job.Status = batchv1.JobStatus{}
	if job.Labels[apis.QueueLabel] == "" {
		job.Labels = union(job.Labels, map[string]string{apis.QueueLabel: defaultQueue})
	}
	job.Labels = union(job.Labels, map[string]string{apis.HoldLabel: apis.HoldQueued})
	job.Spec.Suspend = new(true)
	if job.Spec.Completions == nil && job.Spec.Parallelism == nil {
		job.Spec.Completions = new(int32(1))
	}
	job.Spec.Parallelism = new(ptr.Deref(job.Spec.Parallelism, 1))
}

// mergeJob returns a queued Job as it is after a manifest was applied. The API server, admission policies and the manager have added fields to it, so
// the fields of the manifest are laid over those that its user has written.
func mergeJob(before, manifest *batchv1.Job) (*batchv1.Job, error) {
	own, wanted := queuedjob.Restored(before), &batchv1.Job{}
	if err := layOver(own, manifest, wanted); err != nil {
		return nil, err
	}
	fields, err := fieldsOf(own, wanted)
	if err != nil {
		return nil, err
	}
	if err := refuseFields(fields, isMutableInJob); err != nil {
		return nil, err
	}
	merged := wanted.DeepCopy()
	keepMetadata(before, merged)
	merged.Labels, merged.Annotations = union(before.Labels, manifest.Labels), union(before.Annotations, manifest.Annotations)
	merged.Spec.Template, merged.Status = before.Spec.Template, before.Status
	followSuspension(before, manifest, merged)
	merged.Spec.Parallelism, merged.Spec.Completions = before.Spec.Parallelism, before.Spec.Completions
	if !hasSizeOf(own, wanted) {
		return merged, resize(before, wanted, merged)
	}
	return merged, nil
}

// followSuspension sets spec.suspend as the admission policy tranche-hold-queued-jobs does: only the manager releases a Job, and a user who suspends
// a released one is recorded.
func followSuspension(before, manifest, merged *batchv1.Job) {
	wasSuspended, wants := ptr.Deref(before.Spec.Suspend, false), manifest.Spec.Suspend
	merged.Spec.Suspend = new(wasSuspended)
	switch {
	case wants == nil:
	case *wants && !wasSuspended:
		merged.Spec.Suspend = new(true)
		merged.Annotations = union(merged.Annotations, map[string]string{apis.SuspendedAnnotation: "true"})
	case !*wants && wasSuspended:
		delete(merged.Annotations, apis.SuspendedAnnotation)
	}
}

func hasSizeOf(a, b *batchv1.Job) bool {
	return equality.Semantic.DeepEqual(a.Spec.Parallelism, b.Spec.Parallelism) && equality.Semantic.DeepEqual(a.Spec.Completions, b.Spec.Completions)
}

// resize gives a Job another size. An elastic Job that runs asks for more pods by its annotations, as the admission policy
// tranche-hold-queued-job-growth writes them.
func resize(before, wanted, merged *batchv1.Job) error {
	wasSuspended, isSuspended := ptr.Deref(before.Spec.Suspend, false), ptr.Deref(merged.Spec.Suspend, false)
	if wasSuspended != isSuspended || !wasSuspended && !queuedjob.Elastic(before) {
		return errors.New("spec.parallelism, spec.completions: cannot be changed while the Job runs: suspend it first, or submit a Job of another name")
	}
	delete(merged.Annotations, apis.SizeAnnotation)
	delete(merged.Annotations, apis.CompletionsAnnotation)
	if wasSuspended || childjob.PodsAtOnce(wanted) <= childjob.PodsAtOnce(before) {
		merged.Spec.Parallelism, merged.Spec.Completions = wanted.Spec.Parallelism, wanted.Spec.Completions
		return nil
	}
	sizes := map[string]string{apis.SizeAnnotation: sizeText(wanted.Spec.Parallelism)}
	if wanted.Spec.Completions != nil && !equality.Semantic.DeepEqual(wanted.Spec.Completions, before.Spec.Completions) {
		sizes[apis.CompletionsAnnotation] = sizeText(wanted.Spec.Completions)
	}
	merged.Annotations = union(merged.Annotations, sizes)
	return nil
}

func sizeText(n *int32) string { return strconv.Itoa(int(ptr.Deref(n, 1))) }

// isMutableInJob reports whether the API server accepts another value of a field of a queued Job, for some Jobs. Package plan judges sizes itself.
func isMutableInJob(path string) bool {
	return !slices.ContainsFunc([]string{"spec.template", "spec.completionMode", "spec.podFailurePolicy", "spec.successPolicy", "spec.managedBy", "spec.backoffLimitPerIndex"},
		func(fixed string) bool { return isWithin(path, fixed) })
}
