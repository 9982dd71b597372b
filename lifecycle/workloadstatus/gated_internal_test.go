package workloadstatus

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
)

// The refusal of a stage before it was gated is not why it waits now.
func TestGatedAgain(t *testing.T) {
	waits := "Not in the queue: the stage waits for earlier stages of its JobSet"
	for name, tc := range map[string]struct{ gates, said, message, want string }{
		"in the queue":                    {"", "WaitingForQuota", "", ""},
		"closed":                          {apis.StageGate, "WaitingForPreemptedWorkloads", "", "AdmissionGated"},
		"suspended":                       {apis.StageGate + "," + apis.SuspendedGate, "WaitingForQuota", "", "OnHold"},
		"says so already":                 {apis.StageGate, "AdmissionGated", waits, ""},
		"has got a gate that counts more": {apis.StageGate + "," + apis.DeactivatedGate, "AdmissionGated", waits, "AdmissionGated"},
		"said so when it was released":    {apis.SuspendedGate, "OnHold", "The JobSet is suspended by its user", ""},
		"was evicted":                     {apis.StageGate, "PendingEvaluation", "", ""},
		"closed from the start":           {apis.StageGate, "", "", ""},
	} {
		w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{apis.AdmissionGatedByAnnotation: tc.gates}}}
		if tc.said != "" {
			w.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionFalse, Reason: tc.said, Message: tc.message}}
		}
		got := ""
		if step := gatedAgain(w, time.Unix(0, 0)); step != nil {
			got = step.Status.Conditions[0].Reason
		}
		if got != tc.want {
			t.Errorf("%s: says %q, want %q", name, got, tc.want)
		}
	}
}
