package workloadstatus_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// TestPreemptors: a quota Workload reports its preemptors, also once it holds quota again.
func TestPreemptors(t *testing.T) {
	now := time.Unix(0, 0)
	w := &kueue.Workload{}
	expect := func(when string, want ...quotaworkload.Preemptor) {
		t.Helper()
		if diff := gocmp.Diff(want, quotaworkload.Preemptors(w)); diff != "" {
			t.Errorf("%s: -want +got\n%s", when, diff)
		}
	}
	apply := func(status kueue.WorkloadStatus) { w = workloadstatus.Merge(w, &status) }
	evict := func(e workloadstatus.Eviction) {
		apply(workloadstatus.Admitted(w, &kueue.Admission{ClusterQueue: "q"}, now))
		apply(workloadstatus.Evicted(w, e, now))
		apply(workloadstatus.QuotaReleased(w, now))
	}
	preempt := func(uid types.UID) {
		evict(workloadstatus.Eviction{
			Reason: kueue.WorkloadEvictedByPreemption, Preempted: kueue.InClusterQueueReason,
			Message: workloadstatus.PreemptionMessage(workloadstatus.Preemptor{UID: uid, JobUID: "job", Reason: kueue.InClusterQueueReason}),
		})
	}
	expect("at first")
	preempt("u1")
	expect("preempted", quotaworkload.Preemptor{UID: "u1", Times: 1})
	evict(workloadstatus.Eviction{Reason: kueue.WorkloadEvictedByPodsReadyTimeout, Message: "not ready"})
	apply(workloadstatus.Admitted(w, &kueue.Admission{ClusterQueue: "q"}, now))
	expect("evicted for another reason, and admitted", quotaworkload.Preemptor{UID: "u1", Times: 1})
	preempt("u2")
	preempt("u1")
	preempt("u2")
	expect("preempted for others", quotaworkload.Preemptor{UID: "u2", Times: 2}, quotaworkload.Preemptor{UID: "u1", Times: 2})
	for i := range 60 {
		preempt(types.UID(fmt.Sprintf("v%d", i)))
	}
	if got := len(quotaworkload.Preemptors(w)); got != 51 {
		t.Errorf("%d preemptors of 62 are reported, want the last one and 50 before it", got)
	}
	for _, part := range []string{"u1=0", "u1=-1", "u1=x", "u1", "", "u1=99999999999999999999"} {
		preemptedWith(w, "; earlier preemptors: "+part)
		expect("with "+part, quotaworkload.Preemptor{UID: "u3", Times: 1})
	}
	preemptedWith(w, "; earlier preemptors: "+strings.Repeat("u=1, ", 6000))
	if got := len(quotaworkload.Preemptors(w)); got != 51 {
		t.Errorf("%d preemptors are read of a long list, want 51", got)
	}
	for i := range w.Status.Conditions {
		w.Status.Conditions[i].Message = "by a controller with other words"
	}
	expect("with other messages")
}

// preemptedWith makes the last preemption of a quota Workload one for u3, and adds a text to its message.
func preemptedWith(w *kueue.Workload, text string) {
	c := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadPreempted)
	c.Message = workloadstatus.PreemptionMessage(workloadstatus.Preemptor{UID: "u3"}) + text
}
