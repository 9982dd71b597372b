package v1alpha2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
)

// A JobSet is the upstream JobSet with an extended spec.
//
// +kubebuilder:object:root=true
type JobSet struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what the user asks for.
	Spec JobSetSpec `json:"spec,omitempty"`
	// Status is written by the JobSet controller, except for the conditions that Tranche adds.
	Status jobset.JobSetStatus `json:"status,omitempty"`
}

// A JobSetList is a list of JobSets.
//
// +kubebuilder:object:root=true
type JobSetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []JobSet `json:"items"`
}

// A JobSetSpec is the upstream spec with additional fields.
type JobSetSpec struct {
	jobset.JobSetSpec `json:",inline"`

	// ReplicatedJobs shadows the upstream field: each may be a gang.
	ReplicatedJobs []ReplicatedJob `json:"replicatedJobs,omitempty"`

	// StartupPolicy shadows the upstream field: it may have rules.
	StartupPolicy *StartupPolicy `json:"startupPolicy,omitempty"`

	// GangConfig makes the whole JobSet one gang (KEP-1068).
	GangConfig *GangConfig `json:"gangConfig,omitempty"`

	// Scheduling is the field by which a later JobSet controller keeps the objects of gangs itself (KEP-969). Tranche only checks whether
	// it is set, and then keeps none.
	Scheduling *runtime.RawExtension `json:"scheduling,omitempty"`

	// GroupSchedulingConfig keeps main containers from starting before all pods of the group have started (KEP-498).
	GroupSchedulingConfig *GroupSchedulingConfig `json:"groupSchedulingConfig,omitempty"`
}

// A ReplicatedJob is the upstream ReplicatedJob with additional fields.
type ReplicatedJob struct {
	jobset.ReplicatedJob `json:",inline"`

	// GangConfig makes the pods of the ReplicatedJob, or of each of its Jobs, a gang (KEP-1068).
	GangConfig *GangConfig `json:"gangConfig,omitempty"`
}

// A StartupPolicy determines in which order ReplicatedJobs start.
type StartupPolicy struct {
	// StartupPolicyOrder is AnyOrder or InOrder.
	StartupPolicyOrder jobset.StartupPolicyOptions `json:"startupPolicyOrder"`

	// Rules determine, with InOrder, which status ReplicatedJobs must reach before the next ones start (KEP-672). Each ReplicatedJob except
	// the last is in exactly one rule, in the order of spec.replicatedJobs. Without rules each waits until the one before is Ready.
	Rules []StartupPolicyRule `json:"rules,omitempty"`
}

// A StartupPolicyRule names ReplicatedJobs that start together, and the status that later ReplicatedJobs wait for.
type StartupPolicyRule struct {
	// TargetReplicatedJobs are the names of the ReplicatedJobs to which the rule applies.
	TargetReplicatedJobs []string `json:"targetReplicatedJobs"`

	// WaitForReplicatedJobsStatus is the status that all targets must reach before the ReplicatedJobs after them start. It defaults to
	// Ready.
	WaitForReplicatedJobsStatus ReplicatedJobsStatus `json:"waitForReplicatedJobsStatus,omitempty"`
}

// A ReplicatedJobsStatus is the status that a rule waits for.
type ReplicatedJobsStatus string

const (
	// ReadyStatus is reached when all Jobs of the targets are ready or have succeeded.
	ReadyStatus ReplicatedJobsStatus = "Ready"
	// SucceededStatus is reached when all Jobs of the targets have succeeded.
	SucceededStatus ReplicatedJobsStatus = "Succeeded"
)

// A GangConfig determines which pods are scheduled all together or not at all.
type GangConfig struct {
	// GangMode is Off or Gang; for a ReplicatedJob it may also be ReplicatedGang.
	GangMode GangMode `json:"gangMode"`
}

// A GangMode is the extent of a gang.
type GangMode string

const (
	// GangModeOff requests no gang.
	GangModeOff GangMode = "Off"
	// GangModeGang requests one gang of all pods of the JobSet, or of the ReplicatedJob.
	GangModeGang GangMode = "Gang"
	// GangModeReplicatedGang requests a gang of the pods of each Job of a ReplicatedJob.
	GangModeReplicatedGang GangMode = "ReplicatedGang"
)

// A GroupSchedulingConfig determines which pods must all have started before their main containers run.
type GroupSchedulingConfig struct {
	// TimeoutAfterSeconds is how long a pod waits for the others before it fails.
	TimeoutAfterSeconds *int32 `json:"timeoutAfterSeconds"`

	// TargetReplicatedJobs are the names of the ReplicatedJobs in the group. Empty means all.
	TargetReplicatedJobs []string `json:"targetReplicatedJobs,omitempty"`
}
