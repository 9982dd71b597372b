package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ObjectRetentionPolicies set how long objects are kept that are no longer needed. Their fields are those of Kueue.
type ObjectRetentionPolicies struct {
	// Workloads applies to quota Workloads, and to the JobSets, Jobs and pods that they belong to.
	Workloads WorkloadRetentionPolicy `json:"workloads,omitzero"`
}

// A WorkloadRetentionPolicy sets how long quota Workloads are kept.
type WorkloadRetentionPolicy struct {
	// AfterFinished is how long a finished quota Workload is kept, but at least until its JobSet, Job or gang has finished: until then
	// it records which stages have succeeded. If it is not set, the default, the quota Workload is kept as long as its JobSet, Job or gang.
	AfterFinished *metav1.Duration `json:"afterFinished,omitempty"`

	// AfterDeactivatedByKueue is how long a JobSet or a Job is kept after the manager has deactivated one of its quota Workloads: because
	// it was requeued too often, ran for too long, or an AdmissionCheck rejected it. Then the manager deletes the JobSet or the Job. Of a gang
	// of pods it deletes the pods that no controller would recreate. A quota Workload that a user has deactivated does not count. If it is not
	// set, the default, JobSets, Jobs and pods are kept.
	AfterDeactivatedByKueue *metav1.Duration `json:"afterDeactivatedByKueue,omitempty"`
}

func (r *WorkloadRetentionPolicy) validate(path *field.Path) field.ErrorList {
	return append(notNegative(path.Child("afterFinished"), r.AfterFinished), notNegative(path.Child("afterDeactivatedByKueue"), r.AfterDeactivatedByKueue)...)
}
