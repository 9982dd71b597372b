package plan

import (
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/apis"
)

const jobKind = "Job"

// submitJob completes a new Job as the API server and the admission policies do: it is suspended, and queued by itself. A Job that its user has
// suspended waits for its user, too.
func (c *Change) submitJob(job *batchv1.Job) error {
	job.Status = batchv1.JobStatus{}
	if job.Labels[apis.QueueLabel] == "" && c.hasLocalQueue(job.Namespace, defaultQueue) {
		job.Labels = union(job.Labels, map[string]string{apis.QueueLabel: defaultQueue})
	}
	if job.Labels[apis.QueueLabel] == "" {
		return fmt.Errorf("metadata.labels: the Job names no LocalQueue, so it would start without quota: set the label %s", apis.QueueLabel)
	}
	job.Labels = union(job.Labels, map[string]string{apis.HoldLabel: apis.HoldQueued})
	if ptr.Deref(job.Spec.Suspend, false) {
		job.Annotations = union(job.Annotations, map[string]string{apis.SuspendedAnnotation: "true"})
	}
	job.Spec.Suspend = new(true)
	job.Spec.Parallelism = new(ptr.Deref(job.Spec.Parallelism, 1))
	if job.Spec.Completions == nil && *job.Spec.Parallelism == 1 {
		job.Spec.Completions = new(int32(1))
	}
	return nil
}
