package workloadstatus_test

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// TestLastPreemption: a quota Workload reports its last preemptor and the number of its preemptions, also once it holds quota again.
func TestLastPreemption(t *testing.T) {
	now := time.Unix(0, 0)
	w := &kueue.Workload{}
	expect := func(when string, preemptor types.UID, times int) {
		t.Helper()
		if p, n := quotaworkload.LastPreemption(w); p != preemptor || n != times {
			t.Errorf("%s: preempted for %q, %d times, want %q, %d times", when, p, n, preemptor, times)
		}
	}
	apply := func(status kueue.WorkloadStatus) { w = workloadstatus.Merge(w, &status) }
	admit := func() { apply(workloadstatus.Admitted(w, &kueue.Admission{ClusterQueue: "q"}, now)) }
	preempt := func(uid types.UID) {
		apply(workloadstatus.Evicted(w, workloadstatus.Eviction{
			Reason: kueue.WorkloadEvictedByPreemption, Preempted: kueue.InClusterQueueReason,
			Message: workloadstatus.PreemptionMessage(workloadstatus.Preemptor{UID: uid, JobUID: "job", Reason: kueue.InClusterQueueReason}),
		}, now))
	}
	expect("at first", "", 0)
	admit()
	preempt("u1")
	expect("evicted", "u1", 1)
	apply(workloadstatus.QuotaReleased(w, now))
	admit()
	expect("admitted again", "u1", 1)
	apply(workloadstatus.Evicted(w, workloadstatus.Eviction{Reason: kueue.WorkloadEvictedByPodsReadyTimeout, Message: "not ready"}, now))
	apply(workloadstatus.QuotaReleased(w, now))
	admit()
	expect("evicted for another reason", "u1", 1)
	preempt("u2")
	expect("preempted for another one", "u2", 2)
	for i := range w.Status.Conditions {
		w.Status.Conditions[i].Message = "by a controller with other words"
	}
	expect("with other messages", "", 0)
}
