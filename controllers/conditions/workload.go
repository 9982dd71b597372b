// Package conditions builds the status of the objects that Tranche writes: which conditions it sets, with which reasons and
// messages, and under which field manager. Nothing else in the module makes a condition.
package conditions

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// Reasons of the conditions on quota Workloads for which Kueue has no exported constant.
const (
	reasonQuotaReserved = "QuotaReserved"
	reasonAdmitted      = "Admitted"
)

const messageAdmitted = "The quota Workload is admitted"

// Admitted returns the status of a quota Workload that has just been admitted with the given admission.
func Admitted(workload *kueue.Workload, admission *kueue.Admission) kueue.WorkloadStatus {
	d := newDraft(workload, time.Now())
	d.reserve(admission)
	d.set(kueue.WorkloadAdmitted, metav1.ConditionTrue, reasonAdmitted, messageAdmitted)
	return d.status
}

// Pending returns the status of a quota Workload that holds no quota, with the reason for which it waits. If it did hold quota
// before, this gives the quota back, and its AdmissionChecks begin anew.
func Pending(workload *kueue.Workload, reason, message string) kueue.WorkloadStatus {
	d := newDraft(workload, time.Now())
	if workload.Status.Admission != nil {
		d.resetChecks()
	}
	d.release(reason, message)
	return d.status
}

// Progress returns the part of the status of a quota Workload that tells how its pods fare: the condition PodsReady, and
// Finished where outcome is not nil.
func Progress(workload *kueue.Workload, ready metav1.Condition, outcome *metav1.Condition) kueue.WorkloadStatus {
	var status kueue.WorkloadStatus
	set(&status, workload, ready)
	if outcome != nil {
		set(&status, workload, *outcome)
	}
	return status
}

// admissionTypes are the conditions that belong to whoever admits and evicts.
func admissionTypes() []string {
	return []string{
		kueue.WorkloadQuotaReserved, kueue.WorkloadAdmitted, kueue.WorkloadEvicted, kueue.WorkloadPreempted, kueue.WorkloadRequeued,
		kueue.WorkloadDeactivationTarget,
	}
}

// admissionPart copies what a server-side apply of the admission must repeat, or it would remove it. That is all that the field
// manager of admissions owns but status.admission itself, whose absence means that nothing is held.
func admissionPart(workload *kueue.Workload) kueue.WorkloadStatus {
	var status kueue.WorkloadStatus
	for _, condition := range workload.Status.Conditions {
		if slices.Contains(admissionTypes(), condition.Type) {
			status.Conditions = append(status.Conditions, condition)
		}
	}
	seen := workload.Status.DeepCopy()
	status.RequeueState = seen.RequeueState
	status.AdmissionChecks = seen.AdmissionChecks
	status.AccumulatedPastExecutionTimeSeconds = seen.AccumulatedPastExecutionTimeSeconds
	status.SchedulingStats = seen.SchedulingStats
	return status
}

// Differs tells whether applying status, which must be complete, changes the part of the quota Workload that belongs to admission.
func Differs(workload *kueue.Workload, status *kueue.WorkloadStatus) bool {
	now := admissionPart(workload)
	now.Admission = workload.Status.Admission
	return !equality.Semantic.DeepEqual(&now, status)
}

// set puts a condition, and keeps its transition time where the workload already shows the same status.
func set(status *kueue.WorkloadStatus, workload *kueue.Workload, condition metav1.Condition) {
	condition.ObservedGeneration = workload.Generation
	if old := apimeta.FindStatusCondition(workload.Status.Conditions, condition.Type); old != nil && old.Status == condition.Status {
		condition.LastTransitionTime = old.LastTransitionTime
	}
	apimeta.SetStatusCondition(&status.Conditions, condition)
}

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

// IsTrue tells whether a quota Workload has a condition of this type with status True.
func IsTrue(workload *kueue.Workload, conditionType string) bool {
	return apimeta.IsStatusConditionTrue(workload.Status.Conditions, conditionType)
}
