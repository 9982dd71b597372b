package workloadstatus

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
)

// Passed sets AdmissionChecks to Ready in the status of a quota Workload that is being admitted.
func Passed(status kueue.WorkloadStatus, checks []kueue.AdmissionCheckReference, now time.Time) kueue.WorkloadStatus {
	for _, name := range checks {
		i := slices.IndexFunc(status.AdmissionChecks, func(c kueue.AdmissionCheckState) bool { return c.Name == name })
		if i < 0 {
			i = len(status.AdmissionChecks)
			status.AdmissionChecks = append(status.AdmissionChecks, kueue.AdmissionCheckState{Name: name})
		}
		check := &status.AdmissionChecks[i]
		check.State, check.Message, check.LastTransitionTime = kueue.CheckStateReady, "Tranche admits in this ClusterQueue", metav1.NewTime(now.Truncate(time.Second))
	}
	return status
}

// WaitingBeside returns the condition that says why a quota Workload waits, where the condition QuotaReserved is Kueue's.
func WaitingBeside(workload *kueue.Workload, wait quotaworkload.Wait, now time.Time) kueue.WorkloadStatus {
	s := &statusBuilder{workload: workload, now: now.Truncate(time.Second)}
	s.set(apis.WaitingCondition, metav1.ConditionTrue, wait.Reason, wait.Message)
	return s.status
}
