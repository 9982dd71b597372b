package patch

import (
	"encoding/json"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
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

// TestIfSameSpec: a JSON patch makes the same change as a merge patch, to an object of the same UID and spec only.
func TestIfSameSpec(t *testing.T) {
	before := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "job", UID: "1a", Generation: 2, Annotations: map[string]string{"a/b": "1", "c~d": "2"}}}
	before.Spec.Suspend = new(true)
	before.Spec.Template.Spec.Tolerations = []corev1.Toleration{{Key: "a"}}
	after := before.DeepCopy()
	after.Annotations = map[string]string{"a/b": "3"}
	after.Labels = map[string]string{"new": "label"}
	after.Spec.Suspend = new(false)
	after.Spec.Template.Spec.NodeSelector = map[string]string{"pool": "gpu"}
	after.Spec.Template.Spec.Tolerations = append(after.Spec.Template.Spec.Tolerations, corev1.Toleration{Key: "b"})
	data, err := IfSameSpec(before).Data(after)
	if err != nil {
		t.Fatal(err)
	}
	change, err := jsonpatch.DecodePatch(data)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*batchv1.Job)
		want   bool
	}{
		"the same":              {func(*batchv1.Job) {}, true},
		"another status":        {func(j *batchv1.Job) { j.ResourceVersion, j.Status.Active = "9", 1 }, true},
		"another annotation":    {func(j *batchv1.Job) { j.Annotations["e"] = "4" }, true},
		"another spec":          {func(j *batchv1.Job) { j.Generation = 3 }, false},
		"another object":        {func(j *batchv1.Job) { j.UID = "2b" }, false},
		"labels that are new":   {func(j *batchv1.Job) { j.Labels = map[string]string{"by": "others"} }, false},
		"no annotations at all": {func(j *batchv1.Job) { j.Annotations = nil }, false},
	} {
		t.Run(name, func(t *testing.T) {
			current := before.DeepCopy()
			c.change(current)
			document, err := json.Marshal(current)
			if err != nil {
				t.Fatal(err)
			}
			patched, err := change.Apply(document)
			if (err == nil) != c.want {
				t.Fatalf("it applies: %t, want %t: %v", err == nil, c.want, err)
			}
			if err != nil {
				return
			}
			var got batchv1.Job
			if err := json.Unmarshal(patched, &got); err != nil {
				t.Fatal(err)
			}
			want := after.DeepCopy()
			c.change(want)
			if diff := cmp.Diff(want, &got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
