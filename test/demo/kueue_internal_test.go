package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/cmd/tranche/takeover"
	"github.com/tranche-dev/tranche/test/testenv"
)

// read decodes the objects of one kind from a manifest of the samples.
func read[T any](t *testing.T, file, kind string) []*T {
	t.Helper()
	root, err := testenv.Root()
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(root, "config", "samples", "queues", file))
	if err != nil {
		t.Fatal(err)
	}
	var all []*T
	for reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(content))); ; {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		if object := new(T); strings.Contains(string(document), "\nkind: "+kind+"\n") && yaml.UnmarshalStrict(document, object) == nil {
			all = append(all, object)
		}
	}
}

// TestBesideCohort: nothing in the queues of the demo keeps their cohort from being taken over, and a Job of Kueue fits into each of them.
func TestBesideCohort(t *testing.T) {
	engine, err := admission.New(admission.Config{Leader: admission.LedByKueue})
	if err != nil {
		t.Fatal(err)
	}
	for _, flavor := range read[kueue.ResourceFlavor](t, "resource-flavors.yaml", "ResourceFlavor") {
		engine.Apply(admission.FlavorObserved{Flavor: flavor})
	}
	engine.Apply(admission.CheckObserved{AdmissionCheck: safetyCheck()})
	var names []string
	for _, queue := range read[kueue.ClusterQueue](t, "cluster-queues.yaml", "ClusterQueue") {
		join(queue)
		queue.Annotations = map[string]string{apis.EngineAnnotation: apis.EngineTranche}
		queue.Spec.StopPolicy = new(kueue.Hold)
		engine.Apply(admission.ClusterQueueObserved{ClusterQueue: queue})
		names = append(names, queue.Name)
		sweep := newSweep(queue.Name, "sweep-1")
		request := sweep.Spec.Template.Spec.Containers[0].Resources.Requests[gpu]
		if needed := request.Value() * int64(*sweep.Spec.Parallelism); needed != sweepPods*sweepGPUs || needed > gpuQuota(queue) {
			t.Errorf("a Job of Kueue needs %d GPUs, and ClusterQueue %s has %d", needed, queue.Name, gpuQuota(queue))
		}
	}
	tree := engine.TakeoverOf(names[0])
	if tree.Problem() != "" || !cmp.Equal(tree.ClusterQueues, []string{"team-a", "team-b"}) {
		t.Errorf("the tree has ClusterQueues %v, and the problem %q", tree.ClusterQueues, tree.Problem())
	}
	for _, queue := range read[kueue.LocalQueue](t, "local-queues.yaml", "LocalQueue") {
		if sweep := newSweep(queue.Namespace, "sweep-1"); sweep.Labels[apis.QueueLabel] != queue.Name {
			t.Errorf("Jobs of Kueue name LocalQueue %s, and namespace %s has %s", sweep.Labels[apis.QueueLabel], queue.Namespace, queue.Name)
		}
	}
}

// TestBesideIdeas: the commands that the demo suggests exist, and are about its teams.
func TestBesideIdeas(t *testing.T) {
	root, err := testenv.Root()
	if err != nil {
		t.Fatal(err)
	}
	verbs := map[string]*cobra.Command{"takeover": takeover.NewCommand(""), "hand-back": takeover.NewHandBackCommand("")}
	for _, idea := range besideScene().ideas {
		command, _, _ := strings.Cut(idea, "#")
		words := strings.Fields(command)
		switch words[0] {
		case "kubectl":
			if _, err := os.Stat(filepath.Join(root, words[len(words)-1])); err != nil {
				t.Error(err)
			}
		case "tranche":
			verb := verbs[words[1]]
			if verb == nil || verb.Flags().Lookup("yes") == nil || !cmp.Equal(words[2:], teams()) {
				t.Errorf("the demo suggests %q", command)
			}
			delete(verbs, words[1])
		}
	}
	if len(verbs) > 0 {
		t.Errorf("the demo does not suggest %v", verbs)
	}
}

// TestJobRow has the line of a Job that Kueue manages, from its creation to its end.
func TestJobRow(t *testing.T) {
	condition := func(name string, status metav1.ConditionStatus, message string) metav1.Condition {
		return metav1.Condition{Type: name, Status: status, Message: message}
	}
	admitted := func(w *kueue.Workload) {
		w.Status.Admission = &kueue.Admission{PodSetAssignments: []kueue.PodSetAssignment{{
			Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{gpu: "a100"}, ResourceUsage: newSweep("", "").Spec.Template.Spec.Containers[0].Resources.Requests,
		}}}
		w.Status.Conditions = append(w.Status.Conditions, condition(kueue.WorkloadQuotaReserved, metav1.ConditionTrue, ""))
	}
	for want, change := range map[string][]func(*kueue.Workload){
		"Queued  ": nil,
		"Waiting held by Kueue ": {func(w *kueue.Workload) {
			w.Status.Conditions = []metav1.Condition{condition(kueue.WorkloadQuotaReserved, metav1.ConditionFalse, "held by Kueue")}
		}},
		"Waiting for quota of Tranche ": {func(w *kueue.Workload) {
			w.Status.Conditions = []metav1.Condition{
				condition(kueue.WorkloadQuotaReserved, metav1.ConditionFalse, "ClusterQueue is inactive"), condition(apis.WaitingCondition, metav1.ConditionTrue, "for quota of Tranche"),
			}
		}},
		"Starting  4 nvidia.com/gpu of a100": {admitted},
		"Running  4 nvidia.com/gpu of a100": {admitted, func(w *kueue.Workload) {
			w.Status.Conditions = append(w.Status.Conditions, condition(kueue.WorkloadPodsReady, metav1.ConditionTrue, ""))
		}},
		"Completed  ": {admitted, func(w *kueue.Workload) {
			w.Status.Conditions = append(w.Status.Conditions, condition(kueue.WorkloadFinished, metav1.ConditionTrue, ""))
		}},
	} {
		w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "job-sweep-1-5a7d3"}}
		for _, f := range change {
			f(w)
		}
		r := jobRow(w, &metav1.OwnerReference{Kind: "Job", Name: "sweep-1"})
		if got := r.state + " " + r.why + " " + describe(r.held); got != want || r.jobSet != "team-a/sweep-1" || r.finished != (r.state == "Completed") {
			t.Errorf("the row is %q of %s, finished %t, want %q", got, r.jobSet, r.finished, want)
		}
	}
}

// TestSummaryBeside compares what stages have held with what whole JobSets would have.
func TestSummaryBeside(t *testing.T) {
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close() //nolint:errcheck // only the content matters
	stdout := os.Stdout
	os.Stdout = out
	summarizeBeside(figures{held: 812.4, idle: 31, makespan: 61240 * time.Millisecond}, figures{held: 1904, idle: 1123}, 8)
	os.Stdout = stdout
	got, err := os.ReadFile(out.Name())
	if err != nil {
		t.Fatal(err)
	}
	const want = `
JobSets                        GPU-seconds held      of these idle
by stage (measured)                         812                 31
whole JobSets (computed)                   1904               1123
First Kueue admitted the stages, and 8 Jobs of its own in the same cohort, then Tranche did: all in 1m1.2s.

`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
