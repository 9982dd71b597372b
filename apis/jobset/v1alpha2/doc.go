// Package v1alpha2 holds the JobSet API as Tranche extends it: every field of jobset.x-k8s.io/v1alpha2 as it is upstream, and
// those that the JobSet enhancement proposals 672 (startup rules), 1068 (gangs) and 498 (group start) add.
//
// The types embed the upstream ones and shadow the fields that differ, so that a newer upstream version brings its new fields
// along. Never read or write the shadowed fields of the embedded structs, such as JobSetSpec.JobSetSpec.ReplicatedJobs. JSON does
// not; but the converter between unstructured objects and structs in apimachinery knows nothing of shadowing: it fills both fields,
// and its strict mode calls the fields that only the outer one has unknown. Decode JSON instead.
//
// +kubebuilder:object:generate=true
// +groupName=jobset.x-k8s.io
package v1alpha2
