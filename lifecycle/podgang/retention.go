package podgang

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// expireFinished deletes the quota Workloads of a finished gang when the retention time of the configuration has passed. Those of a PodGroup that
// asks for quota before its pods exist stay: they record that it has had its quota.
func (t *stepBuilder) expireFinished() {
	kept := t.Retention.AfterFinished
	if kept == nil || t.running || t.unclaimed != nil || len(t.waiting)+len(t.initial) > 0 || t.reserves() {
		return
	}
	for _, w := range t.finishedInitial {
		finished := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadFinished)
		isPinned := slices.Contains(w.Finalizers, kueue.ResourceInUseFinalizerName)
		if finished != nil && finished.Status == metav1.ConditionTrue && !isPinned && t.isExpired(finished.LastTransitionTime.Time, kept) {
			t.step.DeleteWorkloads = append(t.step.DeleteWorkloads, w)
		}
	}
}

// expireDeactivated deletes pods that have waited for the retention time of the configuration since the manager has deactivated their quota
// Workload, or since they were created, if that was later. Pods that a controller would recreate stay.
func (t *stepBuilder) expireDeactivated() {
	kept := t.Retention.AfterDeactivatedByKueue
	if kept == nil {
		return
	}
	for _, w := range slices.Concat(t.initial, t.extras) {
		at := workloadstatus.DeactivatedAt(w)
		if at == nil {
			continue
		}
		why := fmt.Sprintf("its quota Workload %q has been deactivated for %s (objectRetentionPolicies.workloads.afterDeactivatedByKueue)", w.Name, kept.Duration)
		for _, pod := range t.Gang.All() {
			isOfWorkload := !isExtra(w) || types.UID(w.Labels[apis.ExtraLabel]) == pod.UID
			if isOfWorkload && waiting(pod) && metav1.GetControllerOfNoCopy(pod) == nil && t.isExpired(latest(*at, pod.CreationTimestamp.Time), kept) {
				t.step.Delete = append(t.step.Delete, Delete{pod, why})
			}
		}
	}
}

// isExpired reports whether the retention time has passed. Otherwise it requeues the gang for that time.
func (t *stepBuilder) isExpired(since time.Time, kept *metav1.Duration) bool {
	left := since.Add(kept.Duration).Sub(t.now)
	if left > 0 {
		t.again(left)
	}
	return left <= 0
}

// endOfPods describes how pods have finished whose quota Workloads were deleted since, and is empty if there are none.
func (t *stepBuilder) endOfPods() string {
	text := ""
	for _, pod := range t.Gang.Pods {
		if by, _ := paidBy(pod); by == "" || !IsTerminal(pod) {
			continue
		}
		if pod.Status.Phase == corev1.PodFailed {
			return textFailed
		}
		text = textSucceeded
	}
	return text
}
