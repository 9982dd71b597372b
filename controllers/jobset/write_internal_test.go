package jobset

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	k8sevents "k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/controllers/engine"
	"github.com/tranche-dev/tranche/controllers/internal/apply"
	"github.com/tranche-dev/tranche/controllers/metrics"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstatus"
	"github.com/tranche-dev/tranche/lifecycle/quotastep"
	"github.com/tranche-dev/tranche/lifecycle/schedulergang"
	"github.com/tranche-dev/tranche/lifecycle/stages"
)

// A server is an API server of one object. It accepts a patch that names the version of the object or none.
type server struct {
	client.Client
	version    int
	generation int64
	// refusals are the answers to creates and updates of objects of these names.
	refusals map[string]error
	// busy is how many patches arrive just after another client has written the status.
	busy    int
	patches int
	// isChanged is true if a JSON patch does not apply although the spec is the same: annotations were removed.
	isChanged bool
}

func (s *server) Get(_ context.Context, _ client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	object.SetResourceVersion(strconv.Itoa(s.version))
	object.SetGeneration(s.generation)
	return nil
}

func (s *server) Create(_ context.Context, object client.Object, _ ...client.CreateOption) error {
	return s.refusals[object.GetName()]
}

func (s *server) Patch(_ context.Context, object client.Object, patch client.Patch, _ ...client.PatchOption) error {
	if err := s.refusals[object.GetName()]; err != nil {
		return err
	}
	data, err := patch.Data(object)
	if err != nil {
		return err
	}
	if s.busy > 0 {
		s.busy--
		s.version++
	}
	if patch.Type() == types.JSONPatchType {
		if !strings.Contains(string(data), fmt.Sprintf(`{"op":"test","path":"/metadata/generation","value":%d}`, s.generation)) || s.isChanged {
			return apierrors.NewInvalid(schema.GroupKind{}, object.GetName(), nil)
		}
		s.patches++
		return nil
	}
	var sent metav1.PartialObjectMetadata
	if err := json.Unmarshal(data, &sent); err != nil {
		return err
	}
	if sent.ResourceVersion != "" && sent.ResourceVersion != strconv.Itoa(s.version) {
		return apierrors.NewConflict(schema.GroupResource{}, object.GetName(), nil)
	}
	s.patches++
	return nil
}

func newReconciler(s *server) *Reconciler {
	return &Reconciler{
		config: Config{Client: s, Recorder: k8sevents.NewFakeRecorder(10), Metrics: metrics.New(metrics.Replica{})},
		writer: apply.Writer{Client: s, Runner: &engine.Runner{}, Parallel: 2}, reader: s,
	}
}

// The requests of a quota Workload must not change once it is admitted.
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
			err := newReconciler(&server{version: 2}).writer.Change(t.Context(), before, after)
			if got := apierrors.IsConflict(err); got != c.wantConflict {
				t.Errorf("conflict = %t, want %t: %v", got, c.wantConflict, err)
			}
		})
	}
}

// Only the version that was checked may start. The status does not matter: it is written often at that moment.
func TestStartOfWhatHasChanged(t *testing.T) {
	cases := map[string]struct {
		server      server
		wantPatches int
	}{
		"it is unchanged":                 {server{version: 1, generation: 1}, 1},
		"its status was written":          {server{version: 2, generation: 1}, 1},
		"its status is being written":     {server{version: 1, generation: 1, busy: 3}, 1},
		"its annotations were removed":    {server{version: 2, generation: 1, busy: 3, isChanged: true}, 1},
		"it has grown":                    {server{version: 2, generation: 2}, 0},
		"it has grown, with a new status": {server{version: 3, generation: 2, busy: 1}, 0},
	}
	meta := metav1.ObjectMeta{Namespace: "ns", Name: "name", UID: "uid", ResourceVersion: "1", Generation: 1}
	job, js := &batchv1.Job{ObjectMeta: meta}, &jobsetapi.JobSet{ObjectMeta: meta}
	s := &jobsetstate.Snapshot{JobSet: js, Owned: jobsetstate.Objects{Jobs: []*batchv1.Job{job}}}
	released := job.DeepCopy()
	released.Spec.Suspend = new(false)
	admitted := &kueue.Workload{Status: kueue.WorkloadStatus{Admission: &kueue.Admission{}}}
	w := &stages.Step{Start: true, ReleaseJobs: []stages.ReleaseJobs{{Workload: admitted, Jobs: []*batchv1.Job{released}}}}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			for what, step := range map[string]func(*Reconciler) error{
				"release": func(r *Reconciler) error { return r.releaseJobs(t.Context(), s, w) },
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
	// The first Job has grown; the second Job, of another stage, is unchanged.
	grown := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "grown", ResourceVersion: "1"}}
	same := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "same", ResourceVersion: "2", Generation: 2}}
	s := &jobsetstate.Snapshot{JobSet: &jobsetapi.JobSet{}, Owned: jobsetstate.Objects{Jobs: []*batchv1.Job{grown, same}}}
	w := &stages.Step{ReleaseJobs: []stages.ReleaseJobs{
		{Workload: &kueue.Workload{Status: kueue.WorkloadStatus{Admission: &kueue.Admission{}}}, Jobs: []*batchv1.Job{grown.DeepCopy()}},
		{Workload: &kueue.Workload{Status: kueue.WorkloadStatus{Admission: &kueue.Admission{}}}, Jobs: []*batchv1.Job{same.DeepCopy()}},
	}}
	w.Progress(&kueue.Workload{}, metav1.Condition{}, nil) // of a stage that has finished, and still holds its quota
	server, hasProgressed := &server{version: 2, generation: 2}, false
	err := w.Write(&stages.Writer{
		ReleaseJobs: func(w *stages.Step) error { return newReconciler(server).releaseJobs(t.Context(), s, w) },
		Quota:       func([]quotastep.Write) error { hasProgressed = true; return nil },
		Report:      func(*stages.Step) error { return nil },
	})
	if !apierrors.IsConflict(err) || server.patches != 1 || !hasProgressed {
		t.Errorf("%d patches, progress: %t, error %v; want one patch, progress and a conflict", server.patches, hasProgressed, err)
	}
}

// A stage whose PodGroup cannot be written waits alone: the other stages start, and release their quota.
func TestGangsThatCannotBe(t *testing.T) {
	resource := schema.GroupResource{Group: "scheduling.volcano.sh", Resource: "podgroups"}
	refused := apierrors.NewForbidden(resource, "bad", errors.New("the queue is closed"))
	broken := apierrors.NewInternalError(errors.New("no endpoints"))
	const told = `stage "bad" starts no Jobs until the objects of its gangs exist, which the API server rejects; ` +
		`fix what it names, or ask your administrator: `
	object := func(name string) *unstructured.Unstructured {
		group := &unstructured.Unstructured{Object: map[string]any{"kind": "PodGroup", "spec": map[string]any{}}}
		group.SetNamespace("ns")
		group.SetName(name)
		return group
	}
	missing := func(name string) stages.EnsureGangs {
		return stages.EnsureGangs{Stage: name, Missing: []*unstructured.Unstructured{object(name)}}
	}
	amiss := func(name string) stages.EnsureGangs {
		return stages.EnsureGangs{Stage: name, Drifted: []schedulergang.Update{{Existing: object(name), Wanted: object(name)}}}
	}
	answer := `podgroups.scheduling.volcano.sh "bad" is forbidden: the queue is closed`
	cases := map[string]struct {
		gather       []stages.EnsureGangs
		refusal      error
		wantReleased []string
		wantSays     string
		wantRetry    bool
	}{
		"all can be":          {[]stages.EnsureGangs{missing("good"), missing("bad")}, nil, []string{"bad", "good"}, "", false},
		"one cannot be made":  {[]stages.EnsureGangs{missing("bad"), missing("good")}, refused, []string{"good"}, told + "create PodGroup ns/bad: " + answer, false},
		"one cannot be fixed": {[]stages.EnsureGangs{amiss("bad"), missing("good")}, refused, []string{"good"}, told + "change PodGroup ns/bad: " + answer, false},
		"the API of one is gone": {
			[]stages.EnsureGangs{missing("bad"), missing("good")},
			apierrors.NewNotFound(resource, "bad"),
			[]string{"good"},
			`stage "bad" starts no Jobs until the objects of its gangs exist, which the API server rejects; ask your administrator to serve the API again: ` +
				`create PodGroup ns/bad: podgroups.scheduling.volcano.sh "bad" not found`, false,
		},
		"it is not known whether one can be": {[]stages.EnsureGangs{missing("bad"), amiss("good")}, broken, []string{"good"}, "", true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			js := &jobsetapi.JobSet{}
			js.Spec.GangConfig = &jobsetapi.GangConfig{GangMode: jobsetapi.GangModeGang}
			s := &jobsetstate.Snapshot{JobSet: js}
			w := &stages.Step{EnsureGangs: c.gather, Conditions: jobsetstatus.WithGangs(js, nil, jobsetstatus.GangsKept, "1 gang")}
			w.ReleaseJobs = []stages.ReleaseJobs{{Stage: "bad", Workload: &kueue.Workload{}}, {Stage: "good", Workload: &kueue.Workload{}}}
			err := newReconciler(&server{refusals: map[string]error{"bad": c.refusal}}).ensureGangs(t.Context(), s, w)
			var released []string
			for _, rel := range w.ReleaseJobs {
				released = append(released, rel.Stage)
			}
			if diff := cmp.Diff(c.wantReleased, released); diff != "" {
				t.Errorf("released: -want +got\n%s", diff)
			}
			if got := strings.Join(w.Complaints, "; "); got != c.wantSays {
				t.Errorf("complains %q, want %q", got, c.wantSays)
			}
			condition := apimeta.FindStatusCondition(w.Conditions, jobsetstatus.GangScheduling)
			if len(w.Conditions) != 1 || (condition.Reason != jobsetstatus.GangsKept) != (c.wantSays != "") || !strings.Contains(condition.Message, c.wantSays) {
				t.Errorf("the conditions are %v", w.Conditions)
			}
			if got := err != nil; got != c.wantRetry {
				t.Errorf("is tried again = %t, want %t", got, c.wantRetry)
			}
		})
	}
}
