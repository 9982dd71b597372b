// Package v1alpha2 holds the JobSet API as Tranche extends it: every field of jobset.x-k8s.io/v1alpha2 as it is upstream, and those that
// the JobSet enhancement proposals 672 (startup rules), 1068 (gangs) and 498 (group start) add.
//
// The types embed the upstream types and shadow the fields that differ, so that a newer upstream version includes its new fields. Never
// read or write the shadowed fields of the embedded structs, such as JobSetSpec.JobSetSpec.ReplicatedJobs. JSON does not; but the converter
// between unstructured objects and structs in apimachinery ignores shadowing: it fills both fields, and its strict mode reports fields that
// only the outer struct has as unknown. Decode JSON instead.
//
// +kubebuilder:object:generate=true
// +groupName=jobset.x-k8s.io
package v1alpha2
