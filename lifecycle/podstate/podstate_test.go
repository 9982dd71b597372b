package podstate_test

import (
	"fmt"
	"slices"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/lifecycle/podstate"
)

// Pods with the same reason are counted together, and an Event is asked for once for each reason that is not known without it.
func TestReasons(t *testing.T) {
	pod := func(name string, change func(*corev1.Pod)) corev1.Pod {
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}}
		change(&p)
		return p
	}
	condition := func(conditionType corev1.PodConditionType, status corev1.ConditionStatus, message string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.NodeName = map[bool]string{true: "node"}[status == corev1.ConditionTrue]
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: conditionType, Status: status, Message: message})
		}
	}
	waiting := func(reason, message string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			condition(corev1.PodScheduled, corev1.ConditionTrue, "")(p)
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}}
		}
	}
	unschedulable := condition(corev1.PodScheduled, corev1.ConditionFalse, "0/3 nodes are available")
	pods := []corev1.Pod{
		pod("b", unschedulable), pod("a", unschedulable), pod("ready", condition(corev1.PodReady, corev1.ConditionTrue, "")),
		pod("ended", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }), pod("leaves", func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }),
		pod("image", waiting("ImagePullBackOff", "no such image")), pod("mounts", waiting("ContainerCreating", "")), pod("mounts-too", waiting("ContainerCreating", "")),
		pod("new", func(*corev1.Pod) {}),
		pod("starts", func(p *corev1.Pod) {
			condition(corev1.PodScheduled, corev1.ConditionTrue, "")(p)
			p.Status.Phase = corev1.PodRunning
		}),
	}
	asked := 0
	var reasons podstate.Reasons
	for i := range pods {
		reasons.Add(&pods[i])
	}
	got := reasons.Sentences(func(p *corev1.Pod) string {
		asked++
		return map[string]string{"mounts": "FailedMount: no such volume"}[p.Name]
	})
	want := []string{
		"2 pods, such as a: no node: 0/3 nodes are available",
		"pod image: container main waits: ImagePullBackOff: no such image",
		"2 pods, such as mounts: containers not created yet: FailedMount: no such volume",
		"pod new: no node yet",
		"pod starts: running, but not ready yet",
	}
	if !slices.Equal(got, want) || asked != 3 {
		t.Errorf("%d Events were asked for, and the lines are\n%q, want\n%q", asked, got, want)
	}
}

// A container that restarts names its pod in its reason: such reasons are counted from some number on.
func TestManyReasons(t *testing.T) {
	var reasons podstate.Reasons
	for i := range 100 {
		name := fmt.Sprintf("pod-%03d", i)
		reasons.Add(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{
			{Name: "main", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "restarting " + name}}},
		}}})
	}
	got := reasons.Sentences(func(*corev1.Pod) string { return "" })
	if len(got) != 11 || got[9] != "pod pod-009: container main waits: CrashLoopBackOff: restarting pod-009" || got[10] != "90 more pods are not ready, for other reasons" {
		t.Errorf("%q", got)
	}
}

// Jobs lack pods if they run, have not ended, and have fewer pods than they want.
func TestLacking(t *testing.T) {
	job := func(name string, change func(*batchv1.Job)) *batchv1.Job {
		j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: batchv1.JobSpec{Parallelism: new(int32(4)), Completions: new(int32(4))}}
		change(j)
		return j
	}
	all := map[string]*batchv1.Job{
		"lacks":      job("lacks", func(j *batchv1.Job) { j.Status.Active = 1 }),
		"lacks-too":  job("lacks-too", func(j *batchv1.Job) { j.Status.Active, j.Status.Succeeded = 1, 1 }),
		"suspended":  job("suspended", func(j *batchv1.Job) { j.Spec.Suspend = new(true) }),
		"leaves":     job("leaves", func(j *batchv1.Job) { j.DeletionTimestamp = &metav1.Time{} }),
		"has all":    job("has-all", func(j *batchv1.Job) { j.Status.Active, j.Status.Succeeded = 1, 3 }),
		"terminates": job("terminates", func(j *batchv1.Job) { j.Status.Terminating = new(int32(4)) }),
		"failed": job("failed", func(j *batchv1.Job) {
			j.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobFailed, Status: corev1.ConditionTrue}}
		}),
	}
	refused := func(j *batchv1.Job) string { return "FailedCreate: no " + j.Name }
	for name, tc := range map[string]struct {
		jobs    []string
		warning func(*batchv1.Job) string
		want    []string
	}{
		"none":         {jobs: []string{"suspended", "leaves", "has all", "terminates", "failed"}, warning: refused},
		"one":          {jobs: []string{"has all", "lacks-too"}, warning: refused, want: []string{"Job lacks-too lacks pods: FailedCreate: no lacks-too"}},
		"two":          {jobs: []string{"lacks-too", "lacks"}, warning: refused, want: []string{"2 Jobs, such as lacks-too, lack pods: FailedCreate: no lacks-too"}},
		"not reported": {jobs: []string{"lacks"}, warning: func(*batchv1.Job) string { return "" }},
	} {
		var lacking podstate.Lacking
		for _, one := range tc.jobs {
			lacking.Add(all[one])
		}
		if got := lacking.Sentences(tc.warning); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
