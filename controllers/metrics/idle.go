package metrics

import (
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// The values of the label cause of tranche_idle_quota_seconds_total.
const (
	notReady      = "NotReady"
	waitsForStage = "WaitsForStage"
)

// WaitedForStage counts the quota that a quota Workload held while its pods were ready and waited for those of another stage. Only the
// controller of the JobSet knows that time, and calls this after it has noted it.
func (m *Metrics) WaitedForStage(workload *kueue.Workload, waited time.Duration) {
	m.countIdle(workload, waited, waitsForStage)
}

// countIdle counts the charges of an admission, times the duration.
func (m *Metrics) countIdle(workload *kueue.Workload, d time.Duration, cause string) {
	admission := workload.Status.Admission
	if admission == nil || d <= 0 {
		return
	}
	for i := range admission.PodSetAssignments {
		podSet := &admission.PodSetAssignments[i]
		for name, flavor := range podSet.Flavors {
			if quantity := podSet.ResourceUsage[name]; quantity.Sign() > 0 {
				m.idleQuota.WithLabelValues(string(admission.ClusterQueue), string(flavor), string(name), cause, m.replica.role()).Add(quantity.AsApproximateFloat64() * d.Seconds())
			}
		}
	}
}

// idleUntilReady counts the quota that was held until the pods were ready: since it was reserved, or since a restart that left the stage
// its quota.
func (c *change) idleUntilReady(ready *metav1.Condition) {
	reserved := isTrue(c.before, kueue.WorkloadQuotaReserved)
	if reserved == nil || !c.inCluster {
		return
	}
	since := reserved.LastTransitionTime.Time
	// If no time was noted, the condition shows at least since when the stage has been open again.
	if old := apimeta.FindStatusCondition(c.before.Status.Conditions, kueue.WorkloadPodsReady); old != nil && old.LastTransitionTime.After(since) {
		since = old.LastTransitionTime.Time
	}
	if closed := c.cache.NotReadySince(c.before); !closed.IsZero() {
		since = closed
	}
	c.metrics.countIdle(c.before, ready.LastTransitionTime.Sub(since), notReady)
}

// idleUntil counts the quota that was held until end, if the pods were never ready, or not since a restart.
func (c *change) idleUntil(end time.Time) {
	reserved := isTrue(c.before, kueue.WorkloadQuotaReserved)
	if reserved == nil || !c.inCluster || isTrue(c.after, kueue.WorkloadPodsReady) != nil {
		return
	}
	since := reserved.LastTransitionTime.Time
	switch closed := c.cache.NotReadySince(c.before); {
	case hasLostPods(c.before):
		return
	case !closed.IsZero():
		since = closed
	case wasReady(c.before, reserved):
		return
	}
	c.metrics.countIdle(c.before, end.Sub(since), notReady)
}

// hasLostPods reports whether all pods of a quota Workload were ready once, and then no longer.
func hasLostPods(w *kueue.Workload) bool {
	ready := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadPodsReady)
	return ready != nil && ready.Reason == kueue.WorkloadWaitForRecovery
}

// wasReady reports whether the pods of a quota Workload have been ready since it has held its quota.
func wasReady(w *kueue.Workload, reserved *metav1.Condition) bool {
	ready := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadPodsReady)
	return ready != nil && (ready.Status == metav1.ConditionTrue || ready.LastTransitionTime.After(reserved.LastTransitionTime.Time))
}
