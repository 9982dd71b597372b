package main

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/test/bench/e2e/account"
	"github.com/tranche-dev/tranche/test/bench/e2e/lab"
	"github.com/tranche-dev/tranche/test/bench/e2e/plot"
)

func named(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID(name)}
}

// holding is a quota Workload that was admitted with pods that have 8 accelerators each.
func holding(name string, pods int32) *kueue.Workload {
	w := &kueue.Workload{ObjectMeta: named(name)}
	w.Spec.PodSets = []kueue.PodSet{{Name: "cpu", Count: 2}, {Name: "gpu", Count: pods}}
	w.Status.Admission = &kueue.Admission{PodSetAssignments: []kueue.PodSetAssignment{
		{Name: "cpu", Count: new(int32(2))},
		{
			Name: "gpu", Count: &pods, Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{lab.GPU: "a100"},
			ResourceUsage: corev1.ResourceList{lab.GPU: *resource.NewQuantity(8*int64(pods), resource.DecimalSI)},
		},
	}}
	w.Status.Conditions = []metav1.Condition{
		{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionTrue}, {Type: kueue.WorkloadAdmitted, Status: metav1.ConditionTrue},
	}
	return w
}

func finished(w *kueue.Workload) *kueue.Workload {
	w.Status.Conditions = append(w.Status.Conditions, metav1.Condition{Type: kueue.WorkloadFinished, Status: metav1.ConditionTrue})
	return w
}

func gpuPod(name string, phase corev1.PodPhase) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: named(name)}
	pod.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{lab.GPU: resource.MustParse("8")},
	}}}
	pod.Status.Phase = phase
	return pod
}

func TestState(t *testing.T) {
	gated := &kueue.Workload{ObjectMeta: named("later")}
	gated.Annotations = map[string]string{apis.AdmissionGatedByAnnotation: apis.StageGate}
	reclaimed := holding("a", 3)
	reclaimed.Status.ReclaimablePods = []kueue.ReclaimablePod{{Name: "gpu", Count: 2}, {Name: "cpu", Count: 2}}
	over := &jobsetapi.JobSet{ObjectMeta: named("js")}
	over.Status.TerminalState = "Completed"
	tests := map[string]struct {
		objects []client.Object
		want    account.State
	}{
		"nothing yet":      {},
		"waits":            {[]client.Object{&kueue.Workload{ObjectMeta: named("a")}, gated}, account.State{Waits: true}},
		"not open":         {[]client.Object{gated}, account.State{}},
		"admitted":         {[]client.Object{holding("a", 3), gated}, account.State{Held: 24, Admitted: true}},
		"partly reclaimed": {[]client.Object{reclaimed}, account.State{Held: 8, Admitted: true}},
		"second waits":     {[]client.Object{holding("a", 1), &kueue.Workload{ObjectMeta: named("b")}}, account.State{Held: 8, Waits: true, Admitted: true}},
		"given back":       {[]client.Object{finished(holding("a", 3))}, account.State{Admitted: true}},
		"pods": {
			[]client.Object{holding("a", 3), gpuPod("1", corev1.PodRunning), gpuPod("2", corev1.PodPending), gpuPod("3", corev1.PodSucceeded)},
			account.State{Held: 24, Used: 8, Admitted: true},
		},
		"over": {[]client.Object{over, finished(holding("a", 3))}, account.State{Admitted: true, Finished: true}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := &sight{workloads: map[types.UID]*kueue.Workload{}, pods: map[types.UID]*corev1.Pod{}}
			for _, object := range test.objects {
				s.take(object, watch.Added)
			}
			if diff := cmp.Diff(test.want, s.state()); diff != "" {
				t.Errorf("state(): -want +got\n%s", diff)
			}
			for _, object := range test.objects {
				s.take(object, watch.Deleted)
			}
			if len(s.workloads)+len(s.pods) > 0 {
				t.Error("what is deleted is not forgotten")
			}
		})
	}
}

// A follower combines the objects of a JobSet, and is done when all JobSets have finished.
func TestFollower(t *testing.T) {
	f := newFollower(1)
	pod := gpuPod("pod", corev1.PodRunning)
	pod.Labels = map[string]string{"jobset.sigs.k8s.io/jobset-name": "js"}
	stage := holding("js-train", 1)
	stage.Labels = map[string]string{apis.JobSetLabel: "js"}
	running := &jobsetapi.JobSet{ObjectMeta: named("js")}
	over := running.DeepCopy()
	over.Status.TerminalState = "Completed"
	for i, object := range []client.Object{running, holding("js", 2), stage, pod, over, finished(holding("js", 2)), finished(stage.DeepCopy())} {
		select {
		case <-f.done:
			t.Errorf("is done before event %d", i)
		default:
		}
		key, ok := f.see(watch.Event{Type: watch.Modified, Object: object}, f.began.Add(time.Duration(i)*time.Second))
		if want := (types.NamespacedName{Namespace: "team", Name: "js"}); !ok || key != want {
			t.Errorf("%T %s belongs to %s, %t", object, object.GetName(), key, ok)
		}
	}
	select {
	case <-f.done:
	default:
		t.Error("is not done")
	}
	want := []account.JobSet{{Name: "team/js", Admitted: 1, Finished: 4, Held: 16 + 3*24 + 8, Idle: 16 + 24 + 2*16}}
	if diff := cmp.Diff(want, f.book.Run().JobSets); diff != "" {
		t.Errorf("JobSets: -want +got\n%s", diff)
	}
	if _, ok := f.see(watch.Event{Type: watch.Error, Object: &metav1.Status{Message: "too old"}}, f.began); ok || len(f.problems) != 1 {
		t.Errorf("an error of the watch is not reported: %v", f.problems)
	}
}

func TestTimelineSums(t *testing.T) {
	const text = `{"stages":[
		{"name":"a","queued":null,"admitted":null,"counted":null,"finished":"2026-01-01T00:00:00Z"},
		{"name":"b","queued":null,"admitted":null,"counted":null,"finished":"2026-01-01T00:00:00Z","held":{"nvidia.com/gpu":80,"x/y":7},"idle":{"nvidia.com/gpu":8}}]}`
	var sums timelineSums
	sums.add(text, 2)
	sums.add(strings.ReplaceAll(text, `,"finished":"2026-01-01T00:00:00Z"`, ""), 3)
	sums.add("", 1)
	if want := (timelineSums{held: 160, idle: 16, missing: 4}); sums != want {
		t.Errorf("the sums are %+v, want %+v", sums, want)
	}
}

func TestLinesAndLater(t *testing.T) {
	c := &account.Comparison{
		Whole:  &account.Run{JobSets: []account.JobSet{{Name: "a", Finished: 10, Held: 100, Idle: 50}, {Name: "b", Admitted: 8, Finished: 20, Held: 100}}},
		Staged: &account.Run{JobSets: []account.JobSet{{Name: "a", Finished: 12, Held: 50, Idle: 5}, {Name: "b", Admitted: 2, Finished: 20.5, Held: 50}}},
	}
	want := map[string]float64{"makespan": 1.025, "wait/mean": 0.25, "wait/p95": 0.25, "wait-all/mean": 1, "turnaround/mean": 16.25 / 15, "held": 0.5, "idle": 0.1, "idle-share": 0.2}
	for _, l := range linesOf(c) {
		if ratio, ok := want[l.name]; ok && l.ratio() != ratio {
			t.Errorf("%s is %g by %g, in short %g, want %g", l.name, l.staged, l.whole, l.ratio(), ratio)
		}
		delete(want, l.name)
	}
	if len(want) > 0 {
		t.Errorf("missing: %v", want)
	}
	if n := later(c); n != 1 {
		t.Errorf("later() = %d, want 1", n)
	}
}

var update = flag.Bool("update", false, "rewrite the table and the plot in docs")

// The table and the plot in docs/comparison.md match the measurements in the same directory.
func TestDocs(t *testing.T) {
	var c account.Comparison
	if err := json.Unmarshal([]byte(document(t, "comparison.json")), &c); err != nil {
		t.Fatal(err)
	}
	checkDocument(t, "comparison.md", replaced(t, "table", summary(&c)))
	checkDocument(t, "comparison.svg", string(plot.SVG(chartOf(&c))))
}

func document(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// replaced returns docs/comparison.md with another table between the two comments about it.
func replaced(t *testing.T, what, table string) string {
	t.Helper()
	begin, end := "<!-- begin of the "+what+" -->\n", "<!-- end of the "+what+" -->\n"
	before, rest, _ := strings.Cut(document(t, "comparison.md"), begin)
	_, after, found := strings.Cut(rest, end)
	if !found {
		t.Fatalf("docs/comparison.md has no place for the %s", what)
	}
	return before + begin + table + end + after
}

func checkDocument(t *testing.T, name, want string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(filepath.Join("..", "..", "..", "docs", name), []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(want, document(t, name)); diff != "" {
		t.Errorf("docs/%s is not current; -update rewrites it: -want +got\n%s", name, diff)
	}
}
