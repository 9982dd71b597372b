package conditions_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/controllers/conditions"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// A writer repeats the states of AdmissionChecks, so no other client may have changed them since.
func TestPatchWithChecksIsConditional(t *testing.T) {
	w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "7"}}
	for checks, want := range map[int]string{0: "", 1: "7"} {
		w.Status.AdmissionChecks = make([]kueue.AdmissionCheckState, checks)
		patch, err := conditions.Patch(w, workloadstatus.Pending(w, quotaworkload.Wait{Reason: "WaitingForQuota", Message: "no quota"}, time.Now()), "")
		if err != nil {
			t.Fatal(err)
		}
		if got := patch.GetResourceVersion(); got != want {
			t.Errorf("with %d checks: resourceVersion %q, want %q", checks, got, want)
		}
	}
}
