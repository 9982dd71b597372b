// Package jobsetstate has what one reconcile reads of a JobSet, and what follows from that alone: whether it runs, which pods use its quota, which
// scheduler places its gangs and what keeps them waiting, and the names of its quota Workloads. Package stages decides what comes next.
package jobsetstate

import (
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/lifecycle/adoption"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstatus"
	"github.com/tranche-dev/tranche/lifecycle/schedulergang"
)

// Snapshot is the snapshot that one reconcile works on. It is not changed after read has returned it, and its objects belong to the cache.
type Snapshot struct {
	Key types.NamespacedName
	// JobSet is nil if the JobSet does not exist, or is not managed by Tranche.
	JobSet *jobsetapi.JobSet
	// IsUnqueued is true if the JobSet has no queue, and Tranche runs its stages without quota.
	IsUnqueued bool
	// Leaving is a JobSet that is being deleted and has finalizers, or nil. Tranche no longer manages it.
	Leaving *jobsetapi.JobSet
	// Plan is nil if refusal says why there is none.
	Plan    *stageplan.Plan
	Refusal string

	// Lost has the fields that the JobSet was created with and no longer has in the cluster. JobSet has them. HasUnknownRules is true if the JobSet may have
	// lost startupPolicy.rules, and no record shows which; then it is refused.
	Lost            []string
	HasUnknownRules bool

	// Target is where a JobSet is charged that ran when Tranche was installed, or nil for other JobSets.
	Target *adoption.Target

	// StartedTarget is where the Jobs are charged that the JobSet controller has started while no admission policy was in force, between a removal of Tranche and
	// its installation, or nil if there are none. StartedBefore has their names.
	StartedTarget *adoption.Target
	StartedBefore map[string]bool

	// Scheduler places the gangs of the JobSet, and gangs is nil if the JobSet asks for none.
	Scheduler Scheduler
	Gangs     *schedulergang.State
	// Now and Patience determine which pods have waited long for a node.
	Now      time.Time
	Patience time.Duration
	// Retention configures how long finished quota Workloads and deactivated JobSets are kept.
	Retention configapi.WorkloadRetentionPolicy

	Priority Priority
	// UnknownPriority reports that the JobSet names a priority class which does not exist, or is empty.
	UnknownPriority string
	// Owned belong to jobSet; Orphans belong to JobSets of the same name that were or are being deleted.
	Owned   Objects
	Orphans map[types.UID]Objects

	Flavors map[kueue.ResourceFlavorReference]*kueue.ResourceFlavor
	// ExpectedStart is when the first waiting stage is expected to start, or nil if that is to be no condition of the JobSet.
	ExpectedStart *jobsetstatus.ExpectedStart
	// Charged has the quota Workloads that the engine counts as admitted now, regardless of the cache.
	Charged map[types.UID]bool

	// OtherEngine is true if another engine than Tranche's admits the quota Workloads of the JobSet. Then Unsafe says, by name, why stages whose
	// start conditions are met must not open yet.
	OtherEngine bool
	Unsafe      map[string]string
	// Whole is why all stages are admitted together, or empty, when the quota Workloads are to be created.
	Whole string
}

// Objects has the objects of one JobSet.
type Objects struct {
	Workloads []*kueue.Workload
	Jobs      []*batchv1.Job
	// Pods has only pods that use quota: a Job of the JobSet controls or has created them, and they are not terminal.
	Pods []*corev1.Pod
	// Abandoned has those of the pods that no Job ends.
	Abandoned []AbandonedPod
	// HasUnwatchedPods is true if the cache lacks some of the pods.
	HasUnwatchedPods bool
}

// Priority is the priority of the quota Workloads of a JobSet.
type Priority struct {
	Value int32
	Class *kueue.PriorityClassRef
}

// InsteadOfMissing returns a message that a JobSet keeps its priority because the class that it names now does not exist, or "" if the JobSet got
// its priority from that class.
func (p Priority) InsteadOfMissing(js *jobsetapi.JobSet) string {
	name := js.Labels[apis.PriorityClassLabel]
	if name == "" || p.Class != nil && p.Class.Kind == kueue.WorkloadPriorityClassKind && p.Class.Name == name {
		return ""
	}
	return fmt.Sprintf("Label %s names WorkloadPriorityClass %q, which does not exist: the JobSet keeps priority %d; create the class or name another",
		apis.PriorityClassLabel, name, p.Value)
}
