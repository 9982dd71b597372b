package quotaworkload_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
)

func TestPreemptors(t *testing.T) {
	const last = quotaworkload.PreemptedFor + "u1, JobUID: j) due to reclamation"
	for message, want := range map[string][]quotaworkload.Preemptor{
		"": nil,
		"Preempted to accommodate a workload (UID: u1": nil,
		last: {{UID: "u1", Times: 1}},
		last + "; earlier preemptors: u2=3, u1=1": {{UID: "u1", Times: 2}, {UID: "u2", Times: 3}},
		// What no preemption writes does not count, so that sums cannot overflow and a limit cannot be put off.
		last + "; earlier preemptors: u2=-5, u3=9223372036854775807, =1, u4, u5=x": {{UID: "u1", Times: 1}},
	} {
		w := &kueue.Workload{}
		w.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadPreempted, Message: message}}
		if diff := cmp.Diff(want, quotaworkload.Preemptors(w)); diff != "" {
			t.Errorf("%q: -want +got\n%s", message, diff)
		}
	}
}

// The message has at most the last 50 preemptors, however long the circle was.
func TestWithEarlierPreemptors(t *testing.T) {
	w := &kueue.Workload{}
	for range 200 {
		message := quotaworkload.WithEarlierPreemptors(quotaworkload.PreemptedFor+strings.Repeat("u", len(w.Status.Conditions)+1)+", JobUID: j)", w)
		w.Status.Conditions = append([]metav1.Condition{{Type: kueue.WorkloadPreempted, Message: message}}, w.Status.Conditions...)
	}
	if n := len(quotaworkload.Preemptors(w)); n != 51 {
		t.Errorf("%d preemptors, want the last one and 50 earlier ones", n)
	}
}
