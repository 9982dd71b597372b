package plan

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/lifecycle/ledger"
	"github.com/tranche-dev/tranche/snapshot"
)

// A Quota is a new nominal quota of a ClusterQueue.
type Quota struct {
	ClusterQueue string
	Flavor       kueue.ResourceFlavorReference
	Resource     corev1.ResourceName
	Amount       resource.Quantity
}

// ParseQuota reads CLUSTERQUEUE/FLAVOR/RESOURCE=AMOUNT. The name of a resource may have a slash.
func ParseQuota(text string) (Quota, error) {
	path, amount, hasAmount := strings.Cut(text, "=")
	parts := strings.SplitN(path, "/", 3)
	if !hasAmount || len(parts) < 3 || slices.Contains(parts, "") {
		return Quota{}, fmt.Errorf("%q is no quota: write CLUSTERQUEUE/FLAVOR/RESOURCE=AMOUNT, such as team-a/a100/nvidia.com/gpu=16", text)
	}
	quantity, err := resource.ParseQuantity(amount)
	if err != nil {
		return Quota{}, fmt.Errorf("%q is no quota: the amount %q: %w", text, amount, err)
	}
	if quantity.Sign() < 0 {
		return Quota{}, fmt.Errorf("%q is no quota: the amount is negative", text)
	}
	return Quota{ClusterQueue: parts[0], Flavor: kueue.ResourceFlavorReference(parts[1]), Resource: corev1.ResourceName(parts[2]), Amount: quantity}, nil
}

// Quotas returns the change that sets nominal quotas.
func Quotas(s *snapshot.Snapshot, quotas []Quota) (*Change, error) {
	changed := &snapshot.Snapshot{}
	for i := range quotas {
		if err := setQuota(s, changed, &quotas[i]); err != nil {
			return nil, err
		}
	}
	return Apply(s, changed, Kept)
}

// setQuota sets one quota in a copy of its ClusterQueue.
func setQuota(s, changed *snapshot.Snapshot, quota *Quota) error {
	isIt := func(q *kueue.ClusterQueue) bool { return q.Name == quota.ClusterQueue }
	at := slices.IndexFunc(changed.ClusterQueues, isIt)
	if at < 0 {
		i := slices.IndexFunc(s.ClusterQueues, isIt)
		if i < 0 {
			return fmt.Errorf("ClusterQueue %q does not exist in the snapshot: correct the name", quota.ClusterQueue)
		}
		at = len(changed.ClusterQueues)
		changed.ClusterQueues = append(changed.ClusterQueues, s.ClusterQueues[i].DeepCopy())
	}
	var known []string
	for fr, r := range ledger.QuotasOf(changed.ClusterQueues[at].Spec.ResourceGroups) {
		if fr.Flavor == quota.Flavor && fr.Resource == quota.Resource {
			r.NominalQuota = quota.Amount
			return nil
		}
		known = append(known, fmt.Sprintf("%s/%s", fr.Flavor, fr.Resource))
	}
	return fmt.Errorf("ClusterQueue %q has no quota of %s/%s: it has %s", quota.ClusterQueue, quota.Flavor, quota.Resource, strings.Join(known, ", "))
}
