package takeover

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// sliced returns a quota Workload of an elastic Job, which Tranche does not admit.
func sliced(namespace, name, queue string, change ...func(*kueue.Workload)) kueue.Workload {
	w := kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: map[string]string{"kueue.x-k8s.io/workload-slice-name": "slice"}}}
	w.Spec.QueueName = kueue.LocalQueueName(queue)
	for _, f := range change {
		f(&w)
	}
	return w
}

// TestUnsupportedOf finds the Workloads of the named ClusterQueues, whether they wait or have quota, and no others.
func TestUnsupportedOf(t *testing.T) {
	ofJob := func(w *kueue.Workload) {
		w.OwnerReferences = []metav1.OwnerReference{{Kind: "Job", Name: "train", Controller: new(true)}}
	}
	admitted := func(w *kueue.Workload) { w.Status.Admission = &kueue.Admission{ClusterQueue: "research"} }
	finished := func(w *kueue.Workload) {
		w.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadFinished, Status: metav1.ConditionTrue}}
	}
	inactive := func(w *kueue.Workload) { w.Spec.Active = new(false) }
	supported := func(w *kueue.Workload) { w.Annotations = nil }
	topology := func(w *kueue.Workload) {
		w.Annotations, w.Spec.PodSets = nil, []kueue.PodSet{{TopologyRequest: &kueue.PodSetTopologyRequest{Required: new("rack")}}}
	}
	queues := []kueue.LocalQueue{{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "main"}, Spec: kueue.LocalQueueSpec{ClusterQueue: "research"}}}
	workloads := []kueue.Workload{
		sliced("team", "waits", "main", ofJob), sliced("team", "runs", "gone", admitted), sliced("team", "topological", "main", topology), sliced("team", "held", "main", inactive, admitted),
		sliced("team", "finished", "main", admitted, finished), sliced("team", "inactive", "main", inactive), sliced("team", "plain", "main", supported),
		sliced("other", "elsewhere", "main"), sliced("team", "lost", "gone"),
	}
	var got []string
	for _, u := range unsupportedOf([]string{"research"}, queues, workloads) {
		if u.ClusterQueue != "research" {
			t.Errorf("%s is in ClusterQueue %s", u.Name, u.ClusterQueue)
		}
		text, _, _ := strings.Cut(u.text(), " is not supported")
		got = append(got, text)
	}
	const slice = "annotation kueue.x-k8s.io/workload-slice-name"
	want := []string{
		"Workload team/held, which has quota: " + slice, "Workload team/runs, which has quota: " + slice,
		"Workload team/topological, which waits: spec.podSets[0].topologyRequest", "Workload team/waits of Job train, which waits: " + slice,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if others := unsupportedOf([]string{"serving"}, queues, workloads); len(others) > 0 {
		t.Errorf("another ClusterQueue has %v", others)
	}
}

// TestLongList names ten Workloads in the text, and says how many others there are.
func TestLongList(t *testing.T) {
	for n, want := range map[int]string{0: "", 10: "", 11: "and 1 more: see -o json\n", 25: "and 15 more: see -o json\n"} {
		s := stateOf(func(s *state) {
			for i := range n {
				s.unsupported = append(s.unsupported, Unsupported{Namespace: "team", Name: fmt.Sprintf("w-%02d", i), Problem: "no"})
			}
		})
		out, err := textOf(t, planTakeover, s)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Count(out, "- Workload team/w-"); got != min(n, 10) {
			t.Errorf("%d of %d Workloads are named", got, n)
		}
		if !strings.HasSuffix(out, want) || want == "" && strings.Contains(out, " more: see") {
			t.Errorf("%d Workloads: %q, want %q at the end", n, out, want)
		}
	}
}
