package life_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/life"
)

// admittedWorkload is a quota Workload that has been admitted for a minute, and a little more since times are cut to seconds.
func admittedWorkload() *kueue.Workload {
	since := metav1.NewTime(now().Add(-62 * time.Second))
	return &kueue.Workload{Status: kueue.WorkloadStatus{
		Admission: &kueue.Admission{ClusterQueue: "research"},
		Conditions: []metav1.Condition{
			{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionTrue, Reason: "QuotaReserved", LastTransitionTime: since},
			{Type: kueue.WorkloadAdmitted, Status: metav1.ConditionTrue, Reason: "Admitted", LastTransitionTime: since},
			{Type: kueue.WorkloadPodsReady, Status: metav1.ConditionTrue, Reason: "Started", LastTransitionTime: since},
		},
		AdmissionChecks: []kueue.AdmissionCheckState{
			{Name: "ready", State: kueue.CheckStateReady, PodSetUpdates: []kueue.PodSetUpdate{{Name: "main"}}},
			{Name: "retry", State: kueue.CheckStateRetry, RetryCount: new(int32(1)), RequeueAfterSeconds: new(int32(60))},
			{Name: "pending", State: kueue.CheckStatePending, Message: "queued"},
		},
		RequeueState:     &kueue.RequeueState{Count: new(int32(2))},
		ResourceRequests: []kueue.PodSetRequest{{Name: "main"}},
	}}
}

// conditionLines lists conditions as TYPE=STATUS REASON.
func conditionLines(status kueue.WorkloadStatus) []string {
	var lines []string
	for _, c := range status.Conditions {
		lines = append(lines, c.Type+"="+string(c.Status)+" "+c.Reason)
	}
	return lines
}

func TestGivenBack(t *testing.T) {
	for reason, want := range map[string]string{
		"Preempted": "True", "NodeFailures": "True", "ClusterQueueStopped": "False", "Deactivated": "False", "PodsReadyTimeout": "False",
	} {
		t.Run(reason, func(t *testing.T) {
			workload := admittedWorkload()
			workload.Status.AccumulatedPastExecutionTimeSeconds = new(int32(100))
			workload.Status.Conditions = append(workload.Status.Conditions, metav1.Condition{Type: kueue.WorkloadEvicted, Status: metav1.ConditionTrue, Reason: reason, Message: "why"})
			status := life.GivenBack(workload, now())
			conditionsWant := []string{"QuotaReserved=False Pending", "Admitted=False NoReservation", "Evicted=True " + reason}
			if reason == "Deactivated" {
				conditionsWant = append(conditionsWant, "tranche.dev/Waiting=True Deactivated")
			}
			conditionsWant = append(conditionsWant, "Requeued="+want+" "+reason)
			if diff := cmp.Diff(conditionsWant, conditionLines(status)); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
			if status.Admission != nil || status.RequeueState == nil {
				t.Errorf("admission = %v, requeueState = %v, want none and what it was", status.Admission, status.RequeueState)
			}
			if got := *status.AccumulatedPastExecutionTimeSeconds; got < 160 || got > 170 {
				t.Errorf("it was admitted for %d s in all, want 160", got)
			}
		})
	}
}

func TestSuspended(t *testing.T) {
	status := life.Suspended(admittedWorkload(), now())
	want := []string{"QuotaReserved=False OnHold", "Admitted=False NoReservation"}
	if diff := cmp.Diff(want, conditionLines(status)); diff != "" {
		t.Errorf("conditions (-want +got):\n%s", diff)
	}
	if status.Admission != nil || len(status.AdmissionChecks) != 3 || *status.AccumulatedPastExecutionTimeSeconds < 60 {
		t.Errorf("status = %+v, want no admission, all checks, and the time of the admission", status)
	}
}

// A victim's owner reads the rule and the UIDs, and the preemptor's name only if it is in the same namespace.
func TestPreemptionMessage(t *testing.T) {
	for reason, want := range map[string]string{
		kueue.InClusterQueueReason: "priority", kueue.InCohortReclamationReason: "nominal", kueue.InCohortFairSharingReason: "fair sharing",
		kueue.InCohortReclaimWhileBorrowingReason: "borrowing", "Another": "Another",
	} {
		preemptor := life.Preemptor{Namespace: "team-b", Name: "jobset-x", UID: "u1", Reason: reason}
		for namespace, who := range map[string]string{"team-b": `for Workload "jobset-x" `, "team-a": "for a Workload of another namespace "} {
			got := life.PreemptionMessage(namespace, preemptor)
			for _, part := range []string{who, "UID: u1", "JobUID: UNKNOWN", want} {
				if !strings.Contains(got, part) {
					t.Errorf("message about %s in %s = %q, want %q in it", reason, namespace, got, part)
				}
			}
			if namespace == "team-a" && (strings.Contains(got, "team-b") || strings.Contains(got, "jobset-x")) {
				t.Errorf("message about %s in %s = %q names the preemptor", reason, namespace, got)
			}
		}
	}
}
