package plan

import (
	"fmt"
	"math"
	"math/big"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/ledger"
	"github.com/tranche-dev/tranche/snapshot"
)

// LoseNodes returns the change that the loss of nodes makes. Nodes decide no admission: quota does. So the allocatable resources of the nodes are
// subtracted from the nominal quotas of the flavors whose node labels they have, as an administrator would do: in proportion to the quotas, in whole
// units. What runs on the nodes is evicted, as far as the snapshot has its pods.
func LoseNodes(s *snapshot.Snapshot, selector labels.Selector) (*Change, error) {
	l := &nodeLoss{snapshot: s, lost: map[quota.FlavorResource]*resource.Quantity{}, names: map[string]bool{}}
	for _, node := range s.Nodes {
		if selector.Matches(labels.Set(node.Labels)) {
			l.lose(node)
		}
	}
	if len(l.names) == 0 {
		return nil, fmt.Errorf("no node of the snapshot has labels that match %q: it has %d nodes; correct the labels, or take a snapshot with the right to list nodes", selector, len(s.Nodes))
	}
	changed := &snapshot.Snapshot{}
	for _, q := range s.ClusterQueues {
		changed.ClusterQueues = append(changed.ClusterQueues, q.DeepCopy())
	}
	for _, c := range s.Cohorts {
		changed.Cohorts = append(changed.Cohorts, c.DeepCopy())
	}
	l.subtract(changed)
	c, err := Apply(s, changed, Kept)
	if err != nil {
		return nil, err
	}
	c.Objects = slices.DeleteFunc(c.Objects, func(o ObjectChange) bool { return o.Action == Unchanged })
	for _, node := range s.Nodes {
		if l.names[node.Name] {
			c.Objects = append(c.Objects, ObjectChange{Kind: "Node", Name: node.Name, Action: Delete})
		}
	}
	c.failures = l.failures()
	return c, nil
}

// A nodeLoss adds up what is lost.
type nodeLoss struct {
	snapshot *snapshot.Snapshot
	lost     map[quota.FlavorResource]*resource.Quantity
	names    map[string]bool
}

// lose adds the resources of a node to what its flavors lose.
func (l *nodeLoss) lose(node *corev1.Node) {
	l.names[node.Name] = true
	for name, amount := range node.Status.Allocatable {
		flavor := l.flavorOf(node, name)
		if flavor == nil {
			continue
		}
		key := quota.FlavorResource{Flavor: kueue.ResourceFlavorReference(flavor.Name), Resource: name}
		if l.lost[key] == nil {
			l.lost[key] = &resource.Quantity{}
		}
		l.lost[key].Add(amount)
	}
}

// flavorOf returns the flavor to which a resource of a node belongs: of those that have a quota of it and whose node labels the node has, the one with
// the most labels, and of several the first one by name.
func (l *nodeLoss) flavorOf(node *corev1.Node, name corev1.ResourceName) *kueue.ResourceFlavor {
	var best *kueue.ResourceFlavor
	for _, flavor := range l.snapshot.ResourceFlavors {
		isMatch := labels.SelectorFromSet(flavor.Spec.NodeLabels).Matches(labels.Set(node.Labels))
		isBetter := best == nil || len(flavor.Spec.NodeLabels) > len(best.Spec.NodeLabels)
		if isMatch && isBetter && len(l.quotas(l.snapshot, quota.FlavorResource{Flavor: kueue.ResourceFlavorReference(flavor.Name), Resource: name})) > 0 {
			best = flavor
		}
	}
	return best
}

// quotas returns the quotas of a flavor and resource, those of ClusterQueues first.
func (l *nodeLoss) quotas(s *snapshot.Snapshot, key quota.FlavorResource) []*kueue.ResourceQuota {
	var all []*kueue.ResourceQuota
	add := func(groups []kueue.ResourceGroup) {
		if q := ledger.QuotaOf(groups, key); q != nil {
			all = append(all, q)
		}
	}
	for _, q := range s.ClusterQueues {
		add(q.Spec.ResourceGroups)
	}
	for _, c := range s.Cohorts {
		add(c.Spec.ResourceGroups)
	}
	return all
}

// subtract lowers the nominal quotas.
func (l *nodeLoss) subtract(changed *snapshot.Snapshot) {
	for key, lost := range l.lost {
		quotas := l.quotas(changed, key)
		amounts, unit := make([]*big.Int, len(quotas)), big.NewInt(thousandths)
		for i, q := range quotas {
			amounts[i] = milliOf(q.NominalQuota)
			if new(big.Int).Rem(amounts[i], unit).Sign() != 0 {
				unit = big.NewInt(1)
			}
		}
		for i := range amounts {
			amounts[i].Quo(amounts[i], unit)
		}
		for i, share := range shares(new(big.Int).Quo(milliOf(*lost), unit), amounts) {
			quotas[i].NominalQuota.Sub(resource.MustParse(share.Mul(share, unit).String() + "m"))
		}
	}
}

// thousandths are those of one.
const thousandths = 1000

// milliOf returns an amount in thousandths, rounded up. 64 bits have room for 8 Pi in thousandths, which the memory of many nodes exceeds: such an amount
// is rounded up to whole units.
func milliOf(q resource.Quantity) *big.Int {
	whole := q.Value()
	if whole < math.MaxInt64/thousandths && whole > math.MinInt64/thousandths {
		return big.NewInt(q.MilliValue())
	}
	return new(big.Int).Mul(big.NewInt(whole), big.NewInt(thousandths))
}

// shares divides an amount in proportion to others, of which it takes no more than all. The largest remainders are rounded up.
func shares(amount *big.Int, of []*big.Int) []*big.Int {
	total := new(big.Int)
	for _, o := range of {
		total.Add(total, o)
	}
	result, remainders := make([]*big.Int, len(of)), make([]*big.Int, len(of))
	if amount.Cmp(total) > 0 {
		amount = total
	}
	left := new(big.Int).Set(amount)
	for i, o := range of {
		result[i], remainders[i] = new(big.Int), new(big.Int)
		if total.Sign() > 0 {
			result[i].QuoRem(new(big.Int).Mul(amount, o), total, remainders[i])
		}
		left.Sub(left, result[i])
	}
	order := make([]int, len(of))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return remainders[b].Cmp(remainders[a]) })
	for _, i := range order[:left.Int64()] { // fewer than there are quotas
		result[i].Add(result[i], big.NewInt(1))
	}
	return result
}

// failures returns the quota Workloads whose pods run on the lost nodes.
func (l *nodeLoss) failures() []admission.StageKey {
	var all []admission.StageKey
	for _, w := range l.snapshot.Workloads {
		if slices.ContainsFunc(l.snapshot.Pods, func(pod *corev1.Pod) bool { return l.isLost(pod) && paysFor(w, pod) }) {
			all = append(all, admission.StageKey{Namespace: w.Namespace, Name: w.Name})
		}
	}
	return all
}

func (l *nodeLoss) isLost(pod *corev1.Pod) bool {
	hasTerminated := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	return l.names[pod.Spec.NodeName] && !hasTerminated
}

// paysFor reports whether a pod runs on the quota of a quota Workload: as a member of its gang, or in its Job or a ReplicatedJob of its stage.
func paysFor(w *kueue.Workload, pod *corev1.Pod) bool {
	if pod.Namespace != w.Namespace {
		return false
	}
	account, ok := ledger.AccountOf(pod)
	switch {
	case !ok:
		return false
	case account.PodSet == "":
		return account.Payer == w.UID
	}
	return string(account.Payer) == w.Labels[apis.JobUIDLabel] &&
		slices.ContainsFunc(w.Spec.PodSets, func(p kueue.PodSet) bool { return p.Name == account.PodSet })
}
