package patch

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
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

// TestLocked: a patch contains the change, with removed fields, and the conditions under which it holds, and nothing else.
func TestLocked(t *testing.T) {
	before := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod", UID: "1a", ResourceVersion: "7", Annotations: map[string]string{"a": "1", "b": "2"}}}
	after := before.DeepCopy()
	after.Annotations = map[string]string{"a": "3"}
	for version, want := range map[string]map[string]any{
		"":  {"annotations": map[string]any{"a": "3", "b": nil}, "uid": "1a"},
		"8": {"annotations": map[string]any{"a": "3", "b": nil}, "uid": "1a", "resourceVersion": "8"},
	} {
		data, err := Locked(before, version).Data(after)
		if err != nil {
			t.Fatal(err)
		}
		var got map[string]any
		if err := json.Unmarshal(data, &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(map[string]any{"metadata": want}, got); diff != "" {
			t.Errorf("version %q (-want +got):\n%s", version, diff)
		}
	}
}
