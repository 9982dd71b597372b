package podgang

import (
	"fmt"
	"slices"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/podgroup"
	"github.com/tranche-dev/tranche/lifecycle/quotastep"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// expireFinished deletes the quota Workloads of a finished gang when the retention time of the configuration has passed. Those of a PodGroup that
// asks for quota before its pods exist stay: they record that it has had its quota.
func (b *stepBuilder) expireFinished() {
	kept := b.Retention.AfterFinished
	if kept == nil || b.running || b.unclaimed != nil || len(b.waiting)+len(b.initial) > 0 || b.Gang.Reserves() {
		return
	}
	for _, w := range b.finishedInitial {
		finished := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadFinished)
		isPinned := slices.Contains(w.Finalizers, kueue.ResourceInUseFinalizerName)
		if finished != nil && finished.Status == metav1.ConditionTrue && !isPinned && b.step.IsExpired(finished.LastTransitionTime.Time, b.now, kept.Duration) {
			b.step.Do(quotastep.Delete, w)
		}
	}
}

// expireDeactivated deletes pods that have waited for the retention time of the configuration since the manager has deactivated their quota
// Workload, or since they were created, if that was later. Pods that a controller would recreate stay.
func (b *stepBuilder) expireDeactivated() {
	kept := b.Retention.AfterDeactivatedByKueue
	if kept == nil {
		return
	}
	for _, w := range slices.Concat(b.initial, b.extras) {
		at := workloadstatus.DeactivatedAt(w)
		if at == nil {
			continue
		}
		why := fmt.Sprintf("its quota Workload %q has been deactivated for %s (objectRetentionPolicies.workloads.afterDeactivatedByKueue)", w.Name, kept.Duration)
		for _, pod := range b.Gang.All() {
			isOfWorkload := !isExtra(w) || types.UID(w.Labels[apis.ExtraLabel]) == pod.UID
			if isOfWorkload && podgroup.IsWaiting(pod) && metav1.GetControllerOfNoCopy(pod) == nil && b.step.IsExpired(workloadstatus.Later(*at, pod.CreationTimestamp.Time), b.now, kept.Duration) {
				b.step.Delete = append(b.step.Delete, Delete{pod, why})
			}
		}
	}
}
