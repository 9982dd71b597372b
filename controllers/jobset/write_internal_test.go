package jobset

import (
	"context"
	"encoding/json"
	"strconv"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// A server is an API server of one object, which it lets be patched if the patch names its version or none.
type server struct {
	client.Client
	version int
	// busy is how many patches come just after somebody else has written the status.
	busy    int
	patches int
}

func (s *server) Patch(_ context.Context, object client.Object, patch client.Patch, _ ...client.PatchOption) error {
	data, err := patch.Data(object)
	if err != nil {
		return err
	}
	var sent metav1.PartialObjectMetadata
	if err := json.Unmarshal(data, &sent); err != nil {
		return err
	}
	if s.busy > 0 {
		s.busy--
		s.version++
	}
	if sent.ResourceVersion != "" && sent.ResourceVersion != strconv.Itoa(s.version) {
		return apierrors.NewConflict(schema.GroupResource{}, object.GetName(), nil)
	}
	s.patches++
	return nil
}

func newReconciler(s *server) *Reconciler {
	return &Reconciler{config: Config{Client: s, Releases: 2}}
}

// What a quota Workload asks for must not change once it is admitted.
func TestResizeOfWhatHasBeenAdmitted(t *testing.T) {
	cases := map[string]struct {
		change       func(*kueue.Workload)
		wantConflict bool
	}{
		"another count": {func(w *kueue.Workload) { w.Spec.PodSets[0].Count = 8 }, true},
		"a gate":        {func(w *kueue.Workload) { w.Annotations = map[string]string{"a": "b"} }, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			before := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{UID: "uid", ResourceVersion: "1"}, Spec: kueue.WorkloadSpec{PodSets: []kueue.PodSet{{Count: 4}}}}
			after := before.DeepCopy()
			c.change(after)
			err := newReconciler(&server{version: 2}).change(t.Context(), &seen{}, &wanted{change: []change{{before: before, after: after}}})
			if got := apierrors.IsConflict(err); got != c.wantConflict {
				t.Errorf("conflict = %t, want %t: %v", got, c.wantConflict, err)
			}
		})
	}
}
