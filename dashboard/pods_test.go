package dashboard_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/tranche-dev/tranche/dashboard"
)

// podOf returns a pod of a ReplicatedJob.
func podOf(replicatedJob, name string, change func(p *corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, Labels: map[string]string{jobset.ReplicatedJobNameKey: replicatedJob}}}
	p.Spec.Containers = make([]corev1.Container, 2)
	p.Status.Phase = corev1.PodPending
	change(p)
	return p
}

func runs(node string) func(p *corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.NodeName, p.Status.Phase = node, corev1.PodRunning
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		p.Status.InitContainerStatuses = []corev1.ContainerStatus{{RestartCount: 1}}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Ready: true, RestartCount: 2}, {Ready: true}}
	}
}

// Pods are counted by stage, and those that need attention come first.
func TestPods(t *testing.T) {
	js := jobSet("team", "js", "download", "train")
	fill := func(stage string) *dashboard.Pods {
		pods := dashboard.NewPods(js, stage)
		for _, pod := range []*corev1.Pod{
			podOf("download", "js-download-0", func(p *corev1.Pod) { p.Spec.NodeName, p.Status.Phase = "n1", corev1.PodSucceeded }),
			podOf("train", "js-train-2", runs("n1")), podOf("train", "js-train-1", runs("n1")), podOf("train", "js-train-0", runs("n2")),
			podOf("train", "js-train-3", func(p *corev1.Pod) {
				p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/2 nodes are available"}}
			}),
			podOf("train", "js-train-4", func(p *corev1.Pod) { runs("n3")(p); p.DeletionTimestamp = &metav1.Time{Time: start} }),
			podOf("train", "js-train-5", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }),
			podOf("other", "stranger", runs("n9")),
		} {
			pods.Add(pod)
		}
		return pods
	}
	names := func(a dashboard.PodsAnswer) (names []string) {
		for _, row := range a.Items {
			names = append(names, row.Name)
		}
		return names
	}
	all := fill("").Answer(dashboard.Window{})
	want := []string{"js-train-3", "js-train-5", "js-train-0", "js-train-1", "js-train-2", "js-train-4", "js-download-0"}
	if got := names(all); !slices.Equal(got, want) || all.Total != len(want) {
		t.Errorf("%d pods: %q, want %q", all.Total, got, want)
	}
	if got, want := fmt.Sprint(all.Counts), "[{download map[Succeeded:1] 0 0} {train map[Failed:1 Pending:1 Running:3 Terminating:1] 3 3}]"; got != want {
		t.Errorf("counts %s, want %s", got, want)
	}
	if got := all.Items[0]; got.Why != "no node: 0/2 nodes are available" || got.Stage != "train" || got.Ready != 0 || got.Containers != 2 {
		t.Errorf("the pod that waits is %+v", got)
	}
	if got := all.Items[2]; got.Why != "" || got.Node != "n2" || got.Restarts != 3 || got.Ready != 2 || got.Phase != "Running" {
		t.Errorf("a pod that runs is %+v", got)
	}
	of := fill("train")
	if got := names(of.Answer(dashboard.Window{Offset: 1, Limit: 2})); !slices.Equal(got, []string{"js-train-5", "js-train-0"}) {
		t.Errorf("a page of the stage has %q", got)
	}
	if got := of.ReplicatedJobs(); !slices.Equal(got, []string{"train"}) {
		t.Errorf("the ReplicatedJobs of the stage are %q", got)
	}
	if dashboard.NewPods(js, "none") != nil {
		t.Error("a stage that does not exist has pods")
	}
}

// A page of many pods is small, whatever they report.
func TestManyPods(t *testing.T) {
	js := jobSet("team", "js", "train")
	pods := dashboard.NewPods(js, "")
	for i := range 5000 {
		pods.Add(podOf("train", fmt.Sprintf("js-train-%04d", i), func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: strings.Repeat("x", 30_000)}}
		}))
	}
	a := pods.Answer(dashboard.Window{})
	if a.Total != 5000 || len(a.Items) != dashboard.DefaultLimit || len(a.Items[0].Why) > 1100 || a.Counts[0].Phases["Pending"] != 5000 {
		t.Errorf("%d of %d pods, %v, the reason of one has %d bytes", len(a.Items), a.Total, a.Counts, len(a.Items[0].Why))
	}
}
