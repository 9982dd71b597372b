// Package conditions builds the conditions that Tranche sets on JobSets and queues, and renders the statuses that controllers write.
// Nothing else in the controllers makes a condition; those of quota Workloads are made by package life.
package conditions

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// Patch returns what server-side apply must be given to make status, or the part of it that one field manager owns, that of
// the quota Workload. The write is refused if another object has taken the name, and, where resourceVersion is not empty, if
// anybody has changed the object since. What has AdmissionChecks is always refused then: the status repeats their states, and the
// controller of a check may have written another one.
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
