package admission_test

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/stageplan"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/snapshot"
)

// TestAnonymizedSnapshot checks that the engine decides the same from the objects of a random world, from a snapshot of them, and from one with
// pseudonyms.
func TestAnonymizedSnapshot(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		for i := range rapid.IntRange(1, 6).Draw(t, "jobsets") {
			w.submit(w.drawQueue(t), fmt.Sprintf("js%d", i), drawJobs(t)...)
			if rapid.Bool().Draw(t, "decides") {
				w.decide()
			}
		}
		s, a := w.snapshot(), snapshot.NewAnonymizer()
		want := decisionsOf(t, w, s, a.Name)
		if diff := cmp.Diff(want, decisionsOf(t, w, stored(t, s, nil), a.Name)); diff != "" {
			t.Errorf("-objects +snapshot\n%s", diff)
		}
		same := func(name string) string { return name }
		if diff := cmp.Diff(want, decisionsOf(t, w, stored(t, s, a), same)); diff != "" {
			t.Errorf("-objects +anonymized\n%s", diff)
		}
	})
}

// snapshot returns the objects of the world.
func (w *world) snapshot() *snapshot.Snapshot {
	s := &snapshot.Snapshot{Namespaces: []*corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "ns", Labels: map[string]string{"team": "a"}}}}}
	for _, name := range slices.Sorted(maps.Keys(w.flavors)) {
		s.ResourceFlavors = append(s.ResourceFlavors, w.flavors[name])
	}
	for _, name := range slices.Sorted(maps.Keys(w.queues)) {
		s.ClusterQueues = append(s.ClusterQueues, w.queues[name])
		s.LocalQueues = append(s.LocalQueues, &kueue.LocalQueue{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("lq-" + name)},
			Spec:       kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(name)},
		})
	}
	for _, name := range slices.Sorted(maps.Keys(w.jobSets)) {
		js := w.jobSets[name]
		s.JobSets = append(s.JobSets, &jobsetapi.JobSet{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: js.uid, CreationTimestamp: metav1.NewTime(js.submitted)}, Spec: *js.spec,
		})
	}
	for _, key := range slices.SortedFunc(maps.Keys(w.workloads), compareNames) {
		s.Workloads = append(s.Workloads, w.workloads[key])
	}
	return s
}

type openFile struct{ *bytes.Buffer }

func (openFile) Close() error { return nil }

// stored returns what is read from the files of a snapshot.
func stored(t *rapid.T, s *snapshot.Snapshot, a *snapshot.Anonymizer) *snapshot.Snapshot {
	content := map[string]*bytes.Buffer{}
	err := s.Write(func(name string) (io.WriteCloser, error) {
		content[name] = &bytes.Buffer{}
		return openFile{content[name]}, nil
	}, a)
	if err != nil {
		t.Fatal(err)
	}
	files := fstest.MapFS{}
	for name, buffer := range content {
		files[name] = &fstest.MapFile{Data: buffer.Bytes()}
	}
	read, err := snapshot.ReadDir(files)
	if err != nil {
		t.Fatal(err)
	}
	return read
}

// decisionsOf lets a new Engine observe the objects, decide, and observe its decisions, until it is idle. UIDs identify the stages, and name
// translates the other names.
func decisionsOf(t *rapid.T, w *world, s *snapshot.Snapshot, name func(string) string) []string {
	engine, err := admission.New(w.config)
	if err != nil {
		t.Fatal(err)
	}
	observeAll(t, engine, s)
	byUID := map[types.UID]*kueue.Workload{}
	for _, wl := range s.Workloads {
		byUID[wl.UID] = wl.DeepCopy()
	}
	var lines []string
	for version := 1_000_000; ; {
		decisions, before := engine.Decide(w.now()), len(lines)
		for _, d := range decisions {
			var uid types.UID
			var id admission.DecisionID
			switch d := d.(type) {
			case admission.Refuse:
				lines = append(lines, fmt.Sprintf("refuse %s %s %s", d.UID, d.Refusal.Check, d.Refusal.Reason))
				continue
			case admission.Evict:
				uid, id = d.UID, d.ID
				lines = append(lines, fmt.Sprintf("evict %s %s", d.UID, d.Reason))
				setCondition(byUID[uid], kueue.WorkloadEvicted, metav1.ConditionTrue)
			case admission.Notice:
				t.Fatalf("%s, although no victim has notice", d)
			case admission.Admit:
				uid, id = d.UID, d.ID
				lines = append(lines, fmt.Sprintf("admit %s %s %s", d.UID, name(string(d.Admission.ClusterQueue)), assignments(&d.Admission, name)))
				reserve(byUID[uid], &d.Admission)
			}
			version++
			byUID[uid].ResourceVersion = strconv.Itoa(version)
			engine.Apply(admission.WorkloadObserved{Workload: byUID[uid].DeepCopy()})
			engine.Settle(id)
		}
		// Queues without a common Cohort decide in the order of their names.
		slices.Sort(lines[before:])
		if len(lines) == before {
			return lines
		}
		if len(lines) > 1000 {
			t.Fatalf("still deciding: %q", lines)
		}
	}
}

func observeAll(t *rapid.T, engine *admission.Engine, s *snapshot.Snapshot) {
	for _, o := range s.Namespaces {
		engine.Apply(admission.NamespaceObserved{Name: o.Name, Labels: o.Labels})
	}
	for _, o := range s.ResourceFlavors {
		engine.Apply(admission.FlavorObserved{Flavor: o})
	}
	for _, o := range s.ClusterQueues {
		engine.Apply(admission.ClusterQueueObserved{ClusterQueue: o})
	}
	for _, o := range s.LocalQueues {
		engine.Apply(admission.LocalQueueObserved{LocalQueue: o})
	}
	for _, o := range s.JobSets {
		plan, err := stageplan.New(&o.Spec)
		if err != nil {
			t.Fatal(err)
		}
		engine.Apply(admission.PlanObserved{
			Owner: admission.Owner{Kind: admission.JobSetOwner, Key: types.NamespacedName{Namespace: o.Namespace, Name: o.Name}}, UID: o.UID,
			Submitted: o.CreationTimestamp.Time, Plan: plan,
		})
	}
	for _, o := range s.Workloads {
		engine.Apply(admission.WorkloadObserved{Workload: o.DeepCopy()})
	}
}

// assignments returns the flavors of an admission.
func assignments(a *kueue.Admission, name func(string) string) string {
	var all []string
	for i := range a.PodSetAssignments {
		p := &a.PodSetAssignments[i]
		for resource, flavor := range p.Flavors {
			amount := p.ResourceUsage[resource]
			all = append(all, fmt.Sprintf("%s/%s=%s:%s", name(string(p.Name)), resource, name(string(flavor)), amount.String()))
		}
	}
	slices.Sort(all)
	return strings.Join(all, ",")
}
