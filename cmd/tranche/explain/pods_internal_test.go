package explain

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestPodLines(t *testing.T) {
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
	got := podLines(pods, func(p *corev1.Pod) string {
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
