package workloadstatus_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// admittedWorkload returns a quota Workload that has been admitted for a minute, and a little more since times are cut to seconds.
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
			status := workloadstatus.QuotaReleased(workload, now())
			conditionsWant := []string{"QuotaReserved=False Pending", "Admitted=False NoReservationUnsatisfiedChecks", "Evicted=True " + reason}
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
	status := workloadstatus.Suspended(admittedWorkload(), now())
	want := []string{"QuotaReserved=False OnHold", "Admitted=False NoReservationUnsatisfiedChecks"}
	if diff := cmp.Diff(want, conditionLines(status)); diff != "" {
		t.Errorf("conditions (-want +got):\n%s", diff)
	}
	if status.Admission != nil || len(status.AdmissionChecks) != 3 || *status.AccumulatedPastExecutionTimeSeconds < 60 {
		t.Errorf("status = %+v, want no admission, all checks, and the time of the admission", status)
	}
}

// A preemptor in the namespace of the victim is named where the user reads, but not in the condition that Kueue writes, too.
func TestPreemptorByName(t *testing.T) {
	e := workloadstatus.Eviction{Reason: kueue.WorkloadEvictedByPreemption, Message: "Preempted", Preempted: kueue.InClusterQueueReason, Preemptor: `JobSet "urgent"`}
	status := workloadstatus.Evicted(admittedWorkload(), e, now())
	for conditionType, want := range map[string]string{kueue.WorkloadEvicted: `Preempted; preemptor: JobSet "urgent"`, kueue.WorkloadPreempted: "Preempted"} {
		if got := apimeta.FindStatusCondition(status.Conditions, conditionType).Message; got != want {
			t.Errorf("condition %s: %s, want %s", conditionType, got, want)
		}
	}
}

// The message to a victim's owner is that of Kueue: the rule, UIDs and paths, and no name of another namespace.
func TestPreemptionMessage(t *testing.T) {
	for reason, want := range map[string]string{
		kueue.InClusterQueueReason: "prioritization in the ClusterQueue", kueue.InCohortReclamationReason: "reclamation within the cohort",
		kueue.InCohortFairSharingReason: "Fair Sharing within the cohort", "": "UNKNOWN",
		kueue.InCohortReclaimWhileBorrowingReason: "reclamation within the cohort while borrowing",
	} {
		got := workloadstatus.PreemptionMessage(workloadstatus.Preemptor{UID: "u1", Reason: reason, Path: "/all/b", VictimPath: "/all/a"})
		want = "Preempted to accommodate a workload (UID: u1, JobUID: UNKNOWN) due to " + want + "; preemptor path: /all/b; preemptee path: /all/a"
		if got != want {
			t.Errorf("message about %s = %q, want %q", reason, got, want)
		}
	}
	owned := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "x", OwnerReferences: []metav1.OwnerReference{{Kind: "JobSet", Name: "urgent", Controller: new(true)}}}}
	lone := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "x"}}
	for namespace, want := range map[string][2]string{"a": {`JobSet "urgent"`, `Workload "x"`}, "b": {}} {
		if got := [2]string{workloadstatus.OwnerNameOf(namespace, owned), workloadstatus.OwnerNameOf(namespace, lone)}; got != want {
			t.Errorf("owners in %s: %q, want %q", namespace, got, want)
		}
	}
	for namespace, want := range map[string]string{"a": `Workload "x"`, "b": "a Workload of another namespace"} {
		if got := workloadstatus.NameOf(namespace, types.NamespacedName{Namespace: "a", Name: "x"}); got != want {
			t.Errorf("in %s it is %s, want %s", namespace, got, want)
		}
	}
}
