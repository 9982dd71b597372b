// Package conditions builds the conditions that Tranche sets on JobSets and queues, and renders the statuses that controllers write. No
// other controller package builds conditions; package workloadstatus builds those of quota Workloads.
package conditions

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// Patch returns the server-side apply patch that sets the status of the quota Workload, or the part of it that one field manager owns. The
// API server rejects the write if another object has taken the name, and, if resourceVersion is not empty, if another client has changed
// the object since. A Workload with AdmissionChecks is always protected in this way: the status repeats their states, and the controller of
// a check may have written another state.
func Patch(workload *kueue.Workload, status kueue.WorkloadStatus, resourceVersion string) (*unstructured.Unstructured, error) {
	if len(status.AdmissionChecks) > 0 {
		resourceVersion = workload.ResourceVersion
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&status)
	if err != nil {
		return nil, err
	}
	patch := &unstructured.Unstructured{Object: map[string]any{"status": fields}}
	patch.SetGroupVersionKind(kueue.SchemeGroupVersion.WithKind("Workload"))
	patch.SetNamespace(workload.Namespace)
	patch.SetName(workload.Name)
	patch.SetUID(workload.UID)
	patch.SetResourceVersion(resourceVersion)
	return patch, nil
}
