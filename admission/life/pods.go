package life

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// StageSucceeded is the condition Finished of a quota Workload whose stage has succeeded.
func StageSucceeded(stage string) *metav1.Condition {
	return &metav1.Condition{
		Type: kueue.WorkloadFinished, Status: metav1.ConditionTrue, Reason: kueue.WorkloadFinishedReasonSucceeded,
		Message: fmt.Sprintf("All Jobs of stage %q have succeeded", stage),
	}
}

// PodsReady is the condition PodsReady of a quota Workload that had the old one.
func PodsReady(old *metav1.Condition, ready bool) metav1.Condition {
	wasReady := old != nil && old.Status == metav1.ConditionTrue
	lost := old != nil && old.Reason == kueue.WorkloadWaitForRecovery
	c := metav1.Condition{Type: kueue.WorkloadPodsReady, Status: metav1.ConditionFalse}
	switch {
	case ready && (lost || wasReady && old.Reason == kueue.WorkloadRecovered):
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, kueue.WorkloadRecovered, "All pods are ready again or have succeeded"
	case ready:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, kueue.WorkloadStarted, "All pods are ready or have succeeded"
	case wasReady || lost:
		c.Reason, c.Message = kueue.WorkloadWaitForRecovery, "At least one pod has failed, the stage waits for its recovery"
	default:
		c.Reason, c.Message = kueue.WorkloadWaitForStart, "Not all pods are ready or have succeeded"
	}
	return c
}
