// Package snapshot holds the API objects that decide admission, as they were at one time: a cluster, a file, or a directory of manifests. The
// command-line verbs answer questions about a snapshot without a cluster.
package snapshot

import (
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	resourcev1 "k8s.io/api/resource/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
)

// A Snapshot has every object that decides admission. Objects of a kind are in the order of namespace and name.
type Snapshot struct {
	// TakenAt is when the objects were read.
	TakenAt time.Time
	// Configuration is that of the manager. It is nil if it could not be read: then the defaults count.
	Configuration *configapi.Configuration

	Namespaces      []*corev1.Namespace
	Nodes           []*corev1.Node
	ResourceFlavors []*kueue.ResourceFlavor
	AdmissionChecks []*kueue.AdmissionCheck
	PriorityClasses []*kueue.WorkloadPriorityClass
	Cohorts         []*kueue.Cohort
	ClusterQueues   []*kueue.ClusterQueue
	LocalQueues     []*kueue.LocalQueue
	LimitRanges     []*corev1.LimitRange
	RuntimeClasses  []*nodev1.RuntimeClass
	DeviceClasses   []*resourcev1.DeviceClass
	JobSets         []*jobsetapi.JobSet
	// Jobs are the child Jobs of the JobSets.
	Jobs []*batchv1.Job
	// Pods are those that hold quota as members of a gang of pods, or that a Job of a JobSet still has although its status no longer counts them.
	Pods      []*corev1.Pod
	Workloads []*kueue.Workload
}
