package cluster

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
)

// A FlavorResource is a resource of a flavor.
type FlavorResource struct {
	Flavor   kueue.ResourceFlavorReference
	Resource corev1.ResourceName
}

// Usage returns the quota that a quota Workload holds in a ClusterQueue, without terminated pods.
func Usage(w *kueue.Workload, queue string) map[FlavorResource]resource.Quantity {
	if w.Status.Admission == nil || string(w.Status.Admission.ClusterQueue) != queue || !quotaworkload.HoldsQuota(w) || IsFinished(w) {
		return nil
	}
	held := map[FlavorResource]resource.Quantity{}
	for i := range w.Status.Admission.PodSetAssignments {
		a := &w.Status.Admission.PodSetAssignments[i]
		for name, amount := range a.ResourceUsage {
			fr := FlavorResource{a.Flavors[name], name}
			sum := held[fr]
			sum.Add(stillNeeded(w, a, amount))
			held[fr] = sum
		}
	}
	return held
}

// stillNeeded subtracts the quota of reclaimable pods. They are a part of the pods in the spec: fewer may have been admitted.
func stillNeeded(w *kueue.Workload, a *kueue.PodSetAssignment, amount resource.Quantity) resource.Quantity {
	for _, r := range w.Status.ReclaimablePods {
		if r.Name != a.Name || a.Count == nil || *a.Count == 0 {
			continue
		}
		for i := range w.Spec.PodSets {
			if left := max(w.Spec.PodSets[i].Count-r.Count, 0); w.Spec.PodSets[i].Name == a.Name && left < *a.Count {
				return *resource.NewMilliQuantity(amount.MilliValue()/int64(*a.Count)*int64(left), amount.Format)
			}
		}
	}
	return amount
}
