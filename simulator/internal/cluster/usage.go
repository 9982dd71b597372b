package cluster

import (
	"k8s.io/apimachinery/pkg/api/resource"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/lifecycle/ledger"
)

// Usage returns the quota that a quota Workload holds, without terminated pods.
func Usage(w *kueue.Workload) map[quota.FlavorResource]resource.Quantity {
	held := map[quota.FlavorResource]resource.Quantity{}
	for _, c := range ledger.ChargesOf(w) {
		sum := held[c.FlavorResource]
		sum.Add(c.Quantity())
		held[c.FlavorResource] = sum
	}
	return held
}
