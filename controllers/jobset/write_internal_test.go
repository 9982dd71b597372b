package jobset

import (
	"context"
	"encoding/json"
	"strconv"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	k8sevents "k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
)

// A server is an API server of one object, which it lets be patched if the patch names its version or none.
type server struct {
	client.Client
	version    int
	generation int64
	// busy is how many patches come just after somebody else has written the status.
	busy    int
	patches int
}

func (s *server) Get(_ context.Context, _ client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	object.SetResourceVersion(strconv.Itoa(s.version))
	object.SetGeneration(s.generation)
	return nil
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
	return &Reconciler{config: Config{Client: s, Recorder: k8sevents.NewFakeRecorder(10), Releases: 2}, reader: s}
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

// What was checked before it may start must be what starts. The status is of no matter: it is written a lot just then.
func TestStartOfWhatHasChanged(t *testing.T) {
	cases := map[string]struct {
		server      server
		wantPatches int
	}{
		"nobody has written to it":              {server{version: 1, generation: 1}, 1},
		"its status was written":                {server{version: 2, generation: 1}, 1},
		"its status is being written":           {server{version: 1, generation: 1, busy: 3}, 1},
		"it has grown":                          {server{version: 2, generation: 2}, 0},
		"it has grown, and its status was told": {server{version: 3, generation: 2, busy: 1}, 0},
	}
	meta := metav1.ObjectMeta{Namespace: "ns", Name: "name", UID: "uid", ResourceVersion: "1", Generation: 1}
	job, js := &batchv1.Job{ObjectMeta: meta}, &jobsetapi.JobSet{ObjectMeta: meta}
	s := &seen{jobSet: js, mine: belongings{jobs: []*batchv1.Job{job}}}
	released := job.DeepCopy()
	released.Spec.Suspend = new(false)
	w := &wanted{start: true, release: []release{{workload: &kueue.Workload{}, jobs: []*batchv1.Job{released}}}}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			for what, step := range map[string]func(*Reconciler) error{
				"release": func(r *Reconciler) error { return r.release(t.Context(), s, w) },
				"start":   func(r *Reconciler) error { return r.start(t.Context(), s, w) },
			} {
				server := c.server
				err := step(newReconciler(&server))
				if server.patches != c.wantPatches || apierrors.IsConflict(err) != (c.wantPatches == 0) {
					t.Errorf("%s: %d patches, want %d; error %v", what, server.patches, c.wantPatches, err)
				}
			}
		})
	}
}

func TestReleaseGoesOn(t *testing.T) {
	// The first Job has grown; the second, of another stage, is as it was.
	grown := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "grown", ResourceVersion: "1"}}
	same := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "same", ResourceVersion: "2", Generation: 2}}
	s := &seen{jobSet: &jobsetapi.JobSet{}, mine: belongings{jobs: []*batchv1.Job{grown, same}}}
	w := &wanted{release: []release{
		{workload: &kueue.Workload{}, jobs: []*batchv1.Job{grown.DeepCopy()}},
		{workload: &kueue.Workload{}, jobs: []*batchv1.Job{same.DeepCopy()}},
	}}
	server := &server{version: 2, generation: 2}
	if err := newReconciler(server).release(t.Context(), s, w); !apierrors.IsConflict(err) || server.patches != 1 {
		t.Errorf("%d patches, error %v; want one patch and a conflict", server.patches, err)
	}
}
