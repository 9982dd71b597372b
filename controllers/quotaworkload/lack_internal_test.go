package quotaworkload

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestLackOf(t *testing.T) {
	pod := func(change func(*corev1.Pod)) corev1.Pod {
		p := corev1.Pod{Spec: corev1.PodSpec{NodeName: "node"}, Status: corev1.PodStatus{Phase: corev1.PodPending}}
		change(&p)
		return p
	}
	condition := func(p *corev1.Pod, conditionType corev1.PodConditionType, status corev1.ConditionStatus, message string) {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: conditionType, Status: status, Message: message})
	}
	waiting := func(reason string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}}}
		}
	}
	ready := pod(func(p *corev1.Pod) { condition(p, corev1.PodReady, corev1.ConditionTrue, "") })
	done := pod(func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })
	failed := pod(func(p *corev1.Pod) { p.Status.Phase, p.Status.Reason = corev1.PodFailed, "Evicted" })
	nowhere := pod(func(p *corev1.Pod) {
		p.Spec.NodeName = ""
		condition(p, corev1.PodScheduled, corev1.ConditionFalse, "0/4 nodes are available")
	})
	runs := pod(func(p *corev1.Pod) {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	})
	leaving := pod(func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} })
	for name, tc := range map[string]struct {
		wanted int32
		pods   []corev1.Pod
		want   string
	}{
		"nothing":  {2, []corev1.Pod{ready, done}, ""},
		"missing":  {3, []corev1.Pod{ready, leaving}, "2 of 3 pods were not ready: 2 not created yet, or deleted"},
		"no place": {2, []corev1.Pod{nowhere, ready}, "1 of 2 pods were not ready: 1 without a node (0/4 nodes are available)"},
		"images":   {1, []corev1.Pod{pod(waiting("ImagePullBackOff"))}, `1 of 1 pods were not ready: 1 with container "main" waiting (ImagePullBackOff)`},
		"starting": {1, []corev1.Pod{pod(waiting("ContainerCreating"))}, "1 of 1 pods were not ready: 1 starting"},
		"many causes": {
			6,
			[]corev1.Pod{nowhere, nowhere, failed, runs, pod(waiting("CrashLoopBackOff")), ready},
			`5 of 6 pods were not ready: 2 without a node (0/4 nodes are available), 1 failed (Evicted), 1 with container "main" running and not ready, the others have other causes`,
		},
	} {
		if got := lackOf(tc.wanted, tc.pods); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
