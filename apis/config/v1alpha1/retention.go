package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ObjectRetentionPolicies says how long objects are kept that nothing needs.
type ObjectRetentionPolicies struct {
	// Workloads is about quota Workloads of JobSets.
	Workloads WorkloadRetentionPolicy `json:"workloads,omitzero"`
}

// A WorkloadRetentionPolicy says how long quota Workloads are kept.
type WorkloadRetentionPolicy struct {
	// AfterFinished is how long a finished quota Workload is kept, but at least until its JobSet has finished: until then it says
	// which stages have succeeded. Left out, the default, it stays as long as its JobSet.
	AfterFinished *metav1.Duration `json:"afterFinished,omitempty"`
}
