package cluster

import (
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/quotaworkload"
)

// RemoveUnused removes the ClusterQueues, ResourceFlavors and AdmissionChecks that are being deleted and no longer in use, as the manager does when it
// removes its finalizer from them. It reports whether there were any.
func (cl *Cluster) RemoveUnused() bool {
	var gone []admission.Event
	for _, name := range slices.Sorted(maps.Keys(cl.ClusterQueues)) {
		if isDeleted(cl.ClusterQueues[name]) && !cl.holdsQuotaIn(name) {
			delete(cl.ClusterQueues, name)
			gone = append(gone, admission.ClusterQueueGone{Name: name})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(cl.Flavors)) {
		if isDeleted(cl.Flavors[name]) && !cl.isNamedByQueue(func(q *kueue.ClusterQueue) bool { return namesFlavor(q, name) }) {
			delete(cl.Flavors, name)
			gone = append(gone, admission.FlavorGone{Name: name})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(cl.AdmissionChecks)) {
		if isDeleted(cl.AdmissionChecks[name]) && !cl.isNamedByQueue(func(q *kueue.ClusterQueue) bool { return namesCheck(q, name) }) {
			delete(cl.AdmissionChecks, name)
			gone = append(gone, admission.CheckGone{Name: name})
		}
	}
	for _, event := range gone {
		cl.WorkloadQueue.AddAll(cl)
		cl.Observe(event)
	}
	return len(gone) > 0
}

func isDeleted(object metav1.Object) bool { return object.GetDeletionTimestamp() != nil }

func (cl *Cluster) holdsQuotaIn(clusterQueue string) bool {
	for _, w := range cl.Workloads {
		if quotaworkload.HoldsQuota(w) && !IsFinished(w) && string(w.Status.Admission.ClusterQueue) == clusterQueue {
			return true
		}
	}
	return false
}

func (cl *Cluster) isNamedByQueue(names func(*kueue.ClusterQueue) bool) bool {
	for _, q := range cl.ClusterQueues {
		if names(q) {
			return true
		}
	}
	return false
}

func namesFlavor(q *kueue.ClusterQueue, name string) bool {
	return slices.ContainsFunc(q.Spec.ResourceGroups, func(g kueue.ResourceGroup) bool {
		return slices.ContainsFunc(g.Flavors, func(f kueue.FlavorQuotas) bool { return string(f.Name) == name })
	})
}

func namesCheck(q *kueue.ClusterQueue, name string) bool {
	return q.Spec.AdmissionChecksStrategy != nil && slices.ContainsFunc(q.Spec.AdmissionChecksStrategy.AdmissionChecks,
		func(rule kueue.AdmissionCheckStrategyRule) bool { return string(rule.Name) == name })
}
