package workloadstatus

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
)

// Succeeded returns the condition Finished of a quota Workload whose pods have all succeeded.
func Succeeded(message string) *metav1.Condition {
	return &metav1.Condition{
		Type: kueue.WorkloadFinished, Status: metav1.ConditionTrue, Reason: kueue.WorkloadFinishedReasonSucceeded, Message: message,
	}
}

// StageSucceeded returns the condition Finished of a quota Workload whose stage has succeeded.
func StageSucceeded(stage string) *metav1.Condition {
	return Succeeded(fmt.Sprintf("All Jobs of stage %q have succeeded", stage))
}

// Started returns the value of StartedAnnotation of a gang whose pods are ungated from a time on.
func Started(now time.Time) string { return now.UTC().Format(time.RFC3339) }

// startedAt returns since when the pods of an admitted quota Workload may run: those of a gang may start later than it was admitted.
func startedAt(workload *kueue.Workload, admitted time.Time) time.Time {
	if at, err := time.Parse(time.RFC3339, workload.Annotations[apis.StartedAnnotation]); err == nil && at.After(admitted) {
		return at
	}
	return admitted
}

// PodsReady returns the new condition PodsReady of a quota Workload, given the old one.
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
