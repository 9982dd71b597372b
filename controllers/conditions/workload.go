// Package conditions builds the conditions of queues, and renders the statuses that controllers write. Package jobsetstatus builds the
// conditions of JobSets, and package workloadstatus those of quota Workloads.
package conditions

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
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

// JobSetPatch returns the server-side apply patch that puts exactly these conditions of Tranche on a JobSet.
func JobSetPatch(js *jobsetapi.JobSet, all []metav1.Condition) (*unstructured.Unstructured, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&struct {
		Conditions []metav1.Condition `json:"conditions"`
	}{all})
	if err != nil {
		return nil, err
	}
	patch := &unstructured.Unstructured{Object: map[string]any{"status": fields}}
	patch.SetGroupVersionKind(jobset.GroupVersion.WithKind("JobSet"))
	patch.SetNamespace(js.Namespace)
	patch.SetName(js.Name)
	patch.SetUID(js.UID)
	return patch, nil
}
