package quotaaudit

import (
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/lifecycle/ledger"
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

// HoldingOf reads the quota that a quota Workload holds.
func HoldingOf(w *kueue.Workload) Holding {
	h := Holding{Key: types.NamespacedName{Namespace: w.Namespace, Name: w.Name}, UID: w.UID, ResourceVersion: w.ResourceVersion}
	if !quotaworkload.IsCharged(w) {
		return h
	}
	h.ClusterQueue = string(w.Status.Admission.ClusterQueue)
	h.LocalQueue = types.NamespacedName{Namespace: w.Namespace, Name: string(w.Spec.QueueName)}
	h.Amounts = map[quota.FlavorResource]quota.Amount{}
	for _, c := range ledger.ChargesOf(w) {
		h.Amounts[c.FlavorResource] += c.Amount()
	}
	return h
}
