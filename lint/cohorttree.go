package lint

import (
	"k8s.io/apimachinery/pkg/api/resource"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/lifecycle/ledger"
)

const (
	cohortKind       = "Cohort"
	clusterQueueKind = "ClusterQueue"
)

// A member is a Cohort or a ClusterQueue.
type member struct{ kind, name string }

// A cohortTree has the parents and the quota of all members.
type cohortTree struct {
	parent   map[member]string
	children map[string][]member
	quotas   map[member]map[quota.FlavorResource]kueue.ResourceQuota
}

func newCohortTree(o *objects) *cohortTree {
	t := &cohortTree{parent: map[member]string{}, children: map[string][]member{}, quotas: map[member]map[quota.FlavorResource]kueue.ResourceQuota{}}
	for _, c := range o.cohorts {
		t.add(member{cohortKind, c.object.Name}, string(c.object.Spec.ParentName), c.object.Spec.ResourceGroups)
	}
	for _, q := range o.clusterQueues {
		t.add(member{clusterQueueKind, q.object.Name}, string(q.object.Spec.CohortName), q.object.Spec.ResourceGroups)
	}
	return t
}

func (t *cohortTree) add(m member, parent string, groups []kueue.ResourceGroup) {
	t.parent[m] = parent
	if parent != "" {
		t.children[parent] = append(t.children[parent], m)
	}
	t.quotas[m] = map[quota.FlavorResource]kueue.ResourceQuota{}
	for fr, r := range ledger.QuotasOf(groups) {
		t.quotas[m][fr] = *r
	}
}

// isComplete reports whether a member has a root: its parents form no cycle.
func (t *cohortTree) isComplete(m member) bool {
	seen := map[string]bool{}
	for parent := t.parent[m]; parent != ""; parent = t.parent[member{cohortKind, parent}] {
		if seen[parent] {
			return false
		}
		seen[parent] = true
	}
	return t.parent[m] != ""
}

// root returns the Cohort above all Cohorts of a member. It is the member itself if it is a Cohort without a parent.
func (t *cohortTree) root(m member) string {
	root := t.parent[m]
	if root == "" && m.kind == cohortKind {
		return m.name
	}
	for range len(t.parent) {
		above := t.parent[member{cohortKind, root}]
		if above == "" {
			break
		}
		root = above
	}
	return root
}

// canBorrow reports whether a ClusterQueue may borrow a resource in a flavor.
func (t *cohortTree) canBorrow(m member, fr quota.FlavorResource) bool {
	own, isCovered := t.quotas[m][fr]
	return isCovered && t.isComplete(m) && (own.BorrowingLimit == nil || !own.BorrowingLimit.IsZero())
}

// others returns the ClusterQueues under the same root.
func (t *cohortTree) others(m member) []member {
	if !t.isComplete(m) {
		return nil
	}
	var all []member
	for other := range t.parent {
		if other.kind == clusterQueueKind && other != m && t.isComplete(other) && t.root(other) == t.root(m) {
			all = append(all, other)
		}
	}
	return all
}

// lentTo returns the most that the other members under the same root can lend to a member.
func (t *cohortTree) lentTo(m member, fr quota.FlavorResource) resource.Quantity {
	if t.parent[m] == "" {
		return resource.Quantity{}
	}
	parent := member{cohortKind, t.parent[m]}
	own := t.quotas[parent][fr]
	sum := own.NominalQuota.DeepCopy()
	for _, child := range t.children[parent.name] {
		if child != m {
			sum.Add(t.lentBy(child, fr))
		}
	}
	above := t.lentTo(parent, fr)
	if own.BorrowingLimit != nil && own.BorrowingLimit.Cmp(above) < 0 {
		above = *own.BorrowingLimit
	}
	sum.Add(above)
	return sum
}

// lentBy returns the most that a member lends to members beside it.
func (t *cohortTree) lentBy(m member, fr quota.FlavorResource) resource.Quantity {
	own := t.quotas[m][fr]
	sum := own.NominalQuota.DeepCopy()
	if m.kind == cohortKind {
		for _, child := range t.children[m.name] {
			sum.Add(t.lentBy(child, fr))
		}
	}
	if own.LendingLimit != nil && own.LendingLimit.Cmp(sum) < 0 {
		return own.LendingLimit.DeepCopy()
	}
	return sum
}
