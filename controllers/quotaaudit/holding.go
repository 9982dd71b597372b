package quotaaudit

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/admission/quotaworkload"
)

// A Holding is the quota that one quota Workload holds according to its object, which is the truth.
type Holding struct {
	Key             types.NamespacedName
	UID             types.UID
	ResourceVersion string
	// ClusterQueue is empty if the Workload holds no quota.
	ClusterQueue string
	LocalQueue   types.NamespacedName
	Amounts      map[quota.FlavorResource]quota.Amount
}

// HoldingOf reads the quota that a quota Workload holds. It shares no code with the engine, so that the two can disagree: a Workload holds
// what status.admission says from QuotaReserved on until it is Finished or deleted, less its reclaimable pods.
func HoldingOf(w *kueue.Workload) Holding {
	h := Holding{Key: types.NamespacedName{Namespace: w.Namespace, Name: w.Name}, UID: w.UID, ResourceVersion: w.ResourceVersion}
	admission := w.Status.Admission
	if admission == nil || !quotaworkload.IsTrue(w, kueue.WorkloadQuotaReserved) || quotaworkload.IsTrue(w, kueue.WorkloadFinished) {
		return h
	}
	h.ClusterQueue = string(admission.ClusterQueue)
	h.LocalQueue = types.NamespacedName{Namespace: w.Namespace, Name: string(w.Spec.QueueName)}
	h.Amounts = map[quota.FlavorResource]quota.Amount{}
	for i := range admission.PodSetAssignments {
		podSet := &admission.PodSetAssignments[i]
		charged, needed := podsOf(w, podSet)
		for name, flavor := range podSet.Flavors {
			amount := units(name, podSet.ResourceUsage[name])
			if needed < charged {
				amount = amount / charged * needed
			}
			if amount > 0 {
				h.Amounts[quota.FlavorResource{Flavor: flavor, Resource: name}] += quota.Amount(amount)
			}
		}
	}
	return h
}

// podsOf returns for how many pods an assignment is charged, and how many of them can still be needed: the pods in the spec less the
// reclaimed ones. Both are zero if the assignment has no count.
func podsOf(w *kueue.Workload, podSet *kueue.PodSetAssignment) (charged, needed int64) {
	if podSet.Count == nil || *podSet.Count <= 0 {
		return 0, 0
	}
	charged, needed = int64(*podSet.Count), int64(*podSet.Count)
	for i := range w.Status.ReclaimablePods {
		if w.Status.ReclaimablePods[i].Name != podSet.Name {
			continue
		}
		for j := range w.Spec.PodSets {
			if w.Spec.PodSets[j].Name == podSet.Name {
				left := int64(w.Spec.PodSets[j].Count) - int64(max(0, w.Status.ReclaimablePods[i].Count))
				needed = min(needed, max(0, left))
			}
		}
	}
	return charged, needed
}

// units returns thousandths of a CPU and whole units of other resources, rounded up and limited to the largest amount that can be charged.
func units(name corev1.ResourceName, q resource.Quantity) int64 {
	scale := resource.Scale(0)
	if name == corev1.ResourceCPU {
		scale = resource.Milli
	}
	if q.Sign() <= 0 {
		return 0
	}
	if q.Cmp(*resource.NewScaledQuantity(int64(quota.MaxCharge), scale)) > 0 {
		return int64(quota.MaxCharge)
	}
	return q.ScaledValue(scale)
}
