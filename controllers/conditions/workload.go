// Package conditions builds the status of the objects that Tranche writes: which conditions it sets, with which reasons and
// messages, and under which field manager. Nothing else in the module makes a condition.
package conditions

import (
	"slices"

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

// Admitted returns the status of a quota Workload that has just been admitted with the given admission.
func Admitted(workload *kueue.Workload, admission *kueue.Admission) kueue.WorkloadStatus {
	status := admissionPart(workload)
	status.Admission = admission
	message := "Quota reserved in ClusterQueue " + string(admission.ClusterQueue)
	set(&status, workload, metav1.Condition{
		Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionTrue, Reason: reasonQuotaReserved, Message: message,
	})
	set(&status, workload, metav1.Condition{
		Type: kueue.WorkloadAdmitted, Status: metav1.ConditionTrue, Reason: reasonAdmitted, Message: "The quota Workload is admitted",
	})
	lower(&status, workload, kueue.WorkloadEvicted, reasonQuotaReserved, "Previously: ")
	lower(&status, workload, kueue.WorkloadPreempted, reasonQuotaReserved, "Previously: ")
	return status
}

// Pending returns the status of a quota Workload that holds no quota, with the reason for which it waits. If it did hold quota
// before, this gives the quota back.
func Pending(workload *kueue.Workload, reason, message string) kueue.WorkloadStatus {
	status := admissionPart(workload)
	set(&status, workload, metav1.Condition{
		Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionFalse, Reason: reason, Message: message,
	})
	lower(&status, workload, kueue.WorkloadAdmitted, kueue.WorkloadAdmittedReasonNoReservation, "")
	return status
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
	}
}

// admissionPart copies the conditions that a server-side apply of the admission must repeat, or it would remove them.
func admissionPart(workload *kueue.Workload) kueue.WorkloadStatus {
	var status kueue.WorkloadStatus
	for _, condition := range workload.Status.Conditions {
		if slices.Contains(admissionTypes(), condition.Type) {
			status.Conditions = append(status.Conditions, condition)
		}
	}
	status.RequeueState = workload.Status.RequeueState
	status.SchedulingStats = workload.Status.SchedulingStats
	return status
}

// set puts a condition, and keeps its transition time where the workload already shows the same status.
func set(status *kueue.WorkloadStatus, workload *kueue.Workload, condition metav1.Condition) {
	condition.ObservedGeneration = workload.Generation
	if old := apimeta.FindStatusCondition(workload.Status.Conditions, condition.Type); old != nil && old.Status == condition.Status {
		condition.LastTransitionTime = old.LastTransitionTime
	}
	apimeta.SetStatusCondition(&status.Conditions, condition)
}

// lower turns a condition to False if it is True, and keeps what it said behind the prefix.
func lower(status *kueue.WorkloadStatus, workload *kueue.Workload, conditionType, reason, prefix string) {
	old := apimeta.FindStatusCondition(workload.Status.Conditions, conditionType)
	if old == nil || old.Status != metav1.ConditionTrue {
		return
	}
	message := "The quota Workload holds no quota"
	if prefix != "" {
		message = prefix + old.Message
	}
	set(status, workload, metav1.Condition{Type: conditionType, Status: metav1.ConditionFalse, Reason: reason, Message: message})
}

// Patch returns what server-side apply must be given to make status, or the part of it that one field manager owns, that of
// the quota Workload. The write is refused if another object has taken the name, and, where resourceVersion is not empty, if
// anybody has changed the object since.
func Patch(workload *kueue.Workload, status kueue.WorkloadStatus, resourceVersion string) (*unstructured.Unstructured, error) {
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
