// Package snapshot holds the API objects that decide admission, as they were at one time: a cluster, a file, or a directory of manifests. The
// command-line verbs answer questions about a snapshot without a cluster.
//
// A snapshot is written as a directory or a tar archive with one file for each kind: one object in JSON per line, reduced to the fields that
// decide admission (reduce.go). The file snapshot.json describes the snapshot and what is missing from it. The objects can be anonymized
// (anonymize.go). The output of kubectl is read, too (manifest.go).
package snapshot

import (
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
)

// A Snapshot has every object that decides admission. Objects of a kind are in the order of namespace and name.
type Snapshot struct {
	// TakenAt is when the objects were read. It is zero if they are manifests.
	TakenAt time.Time
	// Version is the version of Tranche that took the snapshot, or "" if the objects are manifests.
	Version string
	// IsAnonymized is true if names are pseudonyms.
	IsAnonymized bool
	// OnlyNamespaces are the namespaces whose objects were read. If it is empty, those of all namespaces were read.
	OnlyNamespaces []string
	// Gaps are the kinds of which objects are missing.
	Gaps []Gap
	// Skipped names the objects of manifests whose kinds do not decide admission.
	Skipped []string
	// Creators names the CronJobs, Deployments and the like of manifests: the Jobs and pods that they create may wait for quota, but no object shows them yet.
	Creators []string

	// Configuration is that of the manager. It is nil if it could not be read: then the defaults count.
	Configuration *configapi.Configuration

	Namespaces      []*corev1.Namespace
	Nodes           []*corev1.Node
	ResourceFlavors []*kueue.ResourceFlavor
	AdmissionChecks []*kueue.AdmissionCheck
	PriorityClasses []*kueue.WorkloadPriorityClass
	// PodPriorityClasses are those of Kubernetes. They count for JobSets and pods that name no WorkloadPriorityClass.
	PodPriorityClasses []*schedulingv1.PriorityClass
	Cohorts            []*kueue.Cohort
	ClusterQueues      []*kueue.ClusterQueue
	LocalQueues        []*kueue.LocalQueue
	LimitRanges        []*corev1.LimitRange
	RuntimeClasses     []*nodev1.RuntimeClass
	DeviceClasses      []*resourcev1.DeviceClass
	// ResourceClaimTemplates determine which devices pods claim.
	ResourceClaimTemplates []*resourcev1.ResourceClaimTemplate
	JobSets                []*jobsetapi.JobSet
	// Jobs are the child Jobs of the JobSets, and the queued Jobs.
	Jobs []*batchv1.Job
	// Pods are those that hold quota as members of a gang of pods, or that a Job of a JobSet still has although its status no longer counts them.
	Pods      []*corev1.Pod
	Workloads []*kueue.Workload
}

// A Gap is a kind of which objects are missing from a snapshot.
type Gap struct {
	// Resource is the resource, as in "workloads.kueue.x-k8s.io".
	Resource string `json:"resource"`
	// Namespaces are those where the objects are missing. If it is empty, they are missing everywhere.
	Namespaces []string `json:"namespaces,omitempty"`
	// Reason is why they could not be read, and Cure what to do.
	Reason string `json:"reason"`
	Cure   string `json:"cure,omitempty"`
	// IsAbsent is true if there are no objects that could be read: the API server does not serve the kind, or the ConfigMap does not exist.
	IsAbsent bool `json:"absent,omitempty"`
}

// String returns one line for users.
func (g *Gap) String() string {
	text := g.Resource
	if len(g.Namespaces) > 0 {
		text += " in namespace " + strings.Join(g.Namespaces, ", ")
	}
	text += ": " + g.Reason
	if g.Cure != "" {
		text += "; " + g.Cure
	}
	return text
}
