package quotaworkload

import (
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
)

// IsTrue reports whether a quota Workload has a condition of this type with status True.
func IsTrue(workload *kueue.Workload, conditionType string) bool {
	return apimeta.IsStatusConditionTrue(workload.Status.Conditions, conditionType)
}

// FindTrue returns the condition of this type of a quota Workload if its status is True, or nil.
func FindTrue(workload *kueue.Workload, conditionType string) *metav1.Condition {
	if c := apimeta.FindStatusCondition(workload.Status.Conditions, conditionType); c != nil && c.Status == metav1.ConditionTrue {
		return c
	}
	return nil
}

// HoldsQuota reports whether a quota Workload holds quota.
func HoldsQuota(workload *kueue.Workload) bool {
	return workload.Status.Admission != nil && IsTrue(workload, kueue.WorkloadQuotaReserved)
}

// IsCharged reports whether a quota Workload holds quota and has not finished.
func IsCharged(workload *kueue.Workload) bool {
	return HoldsQuota(workload) && !IsTrue(workload, kueue.WorkloadFinished)
}

// AnyCharged reports whether one of some quota Workloads holds quota and has not finished.
func AnyCharged(workloads []kueue.Workload) bool {
	for i := range workloads {
		if IsCharged(&workloads[i]) {
			return true
		}
	}
	return false
}

// MayQueue reports whether nothing in a quota Workload itself keeps it out of its queue.
func MayQueue(workload *kueue.Workload) bool {
	return !HoldsQuota(workload) && !IsTrue(workload, kueue.WorkloadFinished) && len(Gates(workload)) == 0
}

// HasNoPodsYet reports whether a quota Workload is for pods of a gang that cannot have been ungated: either the gang gathers quota, until all its
// parts are admitted, or it was reserved before the pods existed. The gang determines how long it is kept, and no Workload waits until the pods
// are ready, least of all the other parts.
func HasNoPodsYet(workload *kueue.Workload) bool {
	if workload.Annotations[apis.PodGroupKey] == "" || workload.Annotations[apis.StartedAnnotation] != "" {
		return false
	}
	return workload.Labels[apis.PlanUIDLabel] != "" || len(workload.Spec.PodSets) > 0 && workload.Spec.PodSets[0].Name == apis.ReservedPodSet
}
