package manager

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
	"github.com/tranche-dev/tranche/simulator/internal/cluster"
)

// ReconcileWorkload reconciles a quota Workload, as the controller of quota Workloads does.
func (m *Manager) ReconcileWorkload(key admission.StageKey, w *kueue.Workload) {
	step := workloadstatus.Next(m.workloadSnapshot(w), &m.Config.WaitForPodsReady, m.Time())
	if step.RequeueAfter > 0 {
		m.WorkloadQueue.Awaited[key] = m.Now + step.RequeueAfter
	}
	var after *kueue.Workload
	switch {
	case step.Deactivate:
		after = w.DeepCopy()
		after.Spec.Active = new(false)
		after.Generation++
	case len(step.RemoveChecks) > 0:
		after = w.DeepCopy()
		after.Status.AdmissionChecks = slices.DeleteFunc(after.Status.AdmissionChecks, func(c kueue.AdmissionCheckState) bool {
			return slices.Contains(step.RemoveChecks, c.Name)
		})
	case step.Status == nil || !workloadstatus.Differs(w, step.Status):
		return
	default:
		after = workloadstatus.Merge(w, step.Status)
	}
	if evicted, is := step.Transition.(workloadstatus.EvictedTransition); is && quotaworkload.HoldsQuota(w) {
		m.Evict(w, step.Status, evicted.Eviction.FullReason()+": "+evicted.Eviction.Message)
		return
	}
	if _, is := step.Transition.(workloadstatus.AdmittedTransition); is {
		m.Log("admit %s%s", cluster.SubjectOf(w), details(after))
	}
	m.PutWorkload(after)
}

// workloadSnapshot returns the snapshot on which the next status of a quota Workload depends.
func (m *Manager) workloadSnapshot(w *kueue.Workload) *workloadstatus.Snapshot {
	snapshot := &workloadstatus.Snapshot{Workload: w}
	if w.Status.Admission != nil {
		snapshot.ReservedIn = m.ClusterQueues[string(w.Status.Admission.ClusterQueue)]
	}
	snapshot.LocalQueue = m.LocalQueues[types.NamespacedName{Namespace: w.Namespace, Name: string(w.Spec.QueueName)}]
	if snapshot.LocalQueue != nil {
		snapshot.ClusterQueue = m.ClusterQueues[string(snapshot.LocalQueue.Spec.ClusterQueue)]
	}
	return snapshot
}
