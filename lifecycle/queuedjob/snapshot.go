// Package queuedjob decides what comes next for a queued Job: a Job with a queue label that is a submission of its own. It has one quota
// Workload, as Kueue makes it. Next computes a Step from a Snapshot, without I/O. The manager writes the Step to the API server, and the
// simulator to its objects:
//
//	created, held  ->  quota Workload admitted  ->  released with the node labels of its flavors  ->  finished
//	released  ->  evicted or suspended by its user: held  ->  no pod left: template restored  ->  quota released  ->  queued again
//
// A Step may be cut after any write, because the next Step is computed from the objects alone.
package queuedjob

import (
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	"github.com/tranche-dev/tranche/lifecycle/adoption"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
)

// A Snapshot is what the next Step depends on. It must not be changed.
type Snapshot struct {
	Key types.NamespacedName
	// Job is nil if the Job does not exist, is being deleted, or is not managed by Tranche.
	Job *batchv1.Job
	// Leaving is a Job that is being deleted, or nil.
	Leaving *batchv1.Job
	// Refusal is why the Job cannot be queued, or empty.
	Refusal string
	// Template is the pod template of the Job without the additions of an admission, and with what the cluster adds to its pods.
	Template *corev1.PodTemplateSpec
	Priority jobsetstate.Priority
	// UnknownPriority reports that the Job names a priority class which does not exist, or is empty.
	UnknownPriority string
	// Owned belong to the Job; Orphans belong to Jobs of the same name that were or are being deleted.
	Owned   Objects
	Orphans map[types.UID]Objects

	Flavors map[kueue.ResourceFlavorReference]*kueue.ResourceFlavor
	// Target is where a Job is charged that was there before the admission policies, or nil for other Jobs.
	Target *adoption.Target
	// Foreign has the other Workloads that Kueue has made for such a Job.
	Foreign []*kueue.Workload
	// Charged has the quota Workloads that the engine counts as admitted now, regardless of the cache.
	Charged map[types.UID]bool
	// Retention configures how long finished quota Workloads are kept, and Jobs that the manager has deactivated.
	Retention configapi.WorkloadRetentionPolicy
	Now       time.Time
}

// Objects has the objects of one Job.
type Objects struct {
	Workloads []*kueue.Workload
	// Pods has the pods of the Job that are not terminal. Only a snapshot that was read past the cache has them.
	Pods []*corev1.Pod
}

// IsQueued reports whether a Job is a queued Job. A Job of a JobSet is not: it waits for the quota of its stage. The admission policies keep
// other users from adding or removing these labels and owners.
func IsQueued(job *batchv1.Job) bool {
	return job.Labels[apis.HoldLabel] == apis.HoldQueued && jobsetstate.JobSetOfJob(job) == ""
}

// IsSuspendedByUser reports whether its user has suspended a Job.
func IsSuspendedByUser(job *batchv1.Job) bool {
	_, suspended := job.Annotations[apis.SuspendedAnnotation]
	return suspended
}
