package patch

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// A writer repeats the states of AdmissionChecks, so no other client may have changed them since.
func TestStatusWithChecksIsConditional(t *testing.T) {
	w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "7"}}
	for checks, want := range map[int]string{0: "", 1: "7"} {
		s := Status{Part: kueue.WorkloadStatus{AdmissionChecks: make([]kueue.AdmissionCheckState, checks)}}
		if got := s.resourceVersion(w); got != want {
			t.Errorf("with %d checks: resourceVersion %q, want %q", checks, got, want)
		}
	}
}
