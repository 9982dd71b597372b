package admission_test

import (
	"maps"
	"slices"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/lifecycle/ledger"
)

// A bill is an amount for each flavor and resource.
type bill map[quota.FlavorResource]quota.Amount

func (b bill) add(other bill) {
	for fr, a := range other {
		b[fr] += a
	}
}

func keys(b bill) []quota.FlavorResource {
	return slices.DeleteFunc(slices.Collect(maps.Keys(b)), func(fr quota.FlavorResource) bool { return b[fr] == 0 })
}

// A place is a ClusterQueue or a Cohort in the trees of a twin. Package quota computes what fits there: it has a twin of its own.
type place struct {
	*quota.Node
	tree *quota.Tree
}

// places rebuilds the trees from the observed objects, without charges.
func (w *twin) places() map[string]*place {
	tree, places := quota.NewTree(), map[string]*place{}
	cohort := func(name kueue.CohortReference) *quota.Node {
		key := "cohort " + string(name)
		if places[key] == nil {
			places[key] = &place{tree.AddCohort(key), tree}
		}
		return places[key].Node
	}
	for name, q := range w.queues {
		p := &place{tree.AddClusterQueue("queue " + name), tree}
		places[p.Name] = p
		p.configure(q.Spec.ResourceGroups, q.Spec.FairSharing)
		if q.Spec.CohortName != "" {
			tree.SetParent(p.Node, cohort(q.Spec.CohortName))
		}
	}
	for name, c := range w.cohorts {
		n := cohort(kueue.CohortReference(name))
		places[n.Name].configure(c.Spec.ResourceGroups, c.Spec.FairSharing)
		if c.Spec.ParentName != "" && !w.isCyclic(name) {
			tree.SetParent(n, cohort(c.Spec.ParentName))
		}
	}
	return places
}

// isCyclic reports whether the chain of parents is longer than any path without a cycle.
func (w *twin) isCyclic(cohort string) bool {
	for range len(w.cohorts) + 1 {
		c := w.cohorts[cohort]
		if c == nil || c.Spec.ParentName == "" {
			return false
		}
		cohort = string(c.Spec.ParentName)
	}
	return true
}

func (p *place) configure(groups []kueue.ResourceGroup, fairSharing *kueue.FairSharing) {
	p.Weight = 1
	if fairSharing != nil && fairSharing.Weight != nil {
		p.Weight = fairSharing.Weight.AsApproximateFloat64()
	}
	quotas := map[quota.ID]quota.Quota{}
	for fr, r := range ledger.QuotasOf(groups) {
		q := quota.Quota{BorrowingLimit: quota.MaxAmount, LendingLimit: quota.MaxAmount}
		q.Nominal, _ = quota.Of(r.Name, r.NominalQuota)
		if r.BorrowingLimit != nil {
			q.BorrowingLimit, _ = quota.Of(r.Name, *r.BorrowingLimit)
		}
		if r.LendingLimit != nil {
			q.LendingLimit, _ = quota.Of(r.Name, *r.LendingLimit)
		}
		quotas[p.tree.Index.ID(fr)] = q
	}
	p.tree.SetQuotas(p.Node, quotas)
}

func (p *place) usage(b bill) quota.Usage {
	var u quota.Usage
	for fr, a := range b {
		u.Add(p.tree.Index.ID(fr), a)
	}
	return u
}

func (p *place) charge(b bill) { p.Charge(p.usage(b)) }

func (p *place) release(b bill) { p.Release(p.usage(b)) }

// charged returns what is charged to a ClusterQueue.
func (p *place) charged() bill {
	b := bill{}
	for id := range quota.ID(p.tree.Index.Len()) {
		b[p.tree.Index.Name(id)] = p.Used(id)
	}
	return b
}

// fits reports whether all places stay within the limits with another bill.
func (p *place) fits(b bill) bool { return p.Fits(p.usage(b)) }

// level returns how far up the place has to borrow if another bill is charged.
func (p *place) level(b bill) int { return p.LevelOf(p.usage(b)) }
