package ledger

import (
	"iter"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/apis/visibility"
)

// Quotas are the ClusterQueues and Cohorts with their quota, by name.
type Quotas struct {
	ClusterQueues map[string]*kueue.ClusterQueue
	Cohorts       map[string]*kueue.Cohort
}

// A Node names a ClusterQueue or a Cohort.
type Node struct {
	Kind visibility.NodeKind
	Name string
}

// An Excess is what a node has reserved beyond its limit, in thousandths.
type Excess struct {
	Node
	Reserved, Limit int64
}

// Exceeded returns the first excess on the path up from a ClusterQueue, as far as that takes what others lend, or nil. used has what each ClusterQueue uses of one
// resource of a flavor. A ClusterQueue that does not exist exceeds nothing, and neither does one below a cycle of Cohorts, which admits nothing.
func (q *Quotas) Exceeded(queue string, fr quota.FlavorResource, used map[string]int64) *Excess {
	nodes := q.tree(fr, used)
	start := nodes[Node{visibility.ClusterQueue, queue}]
	if start == nil || !start.hasRoot(len(nodes)) {
		return nil
	}
	for n := start; n != nil; n = n.parent {
		reserved, limit := n.reserved(), n.subtree()
		switch {
		case n.parent == nil:
		case reserved <= n.own():
			return nil
		case n.borrowing == nil:
			continue
		default:
			limit = plus(limit, *n.borrowing)
		}
		if reserved > limit {
			return &Excess{n.Node, reserved, limit}
		}
	}
	return nil
}

// A node is a ClusterQueue or a Cohort, with regard to one resource of one flavor, in thousandths.
type node struct {
	Node
	parent             *node
	children           []*node
	nominal, used      int64
	borrowing, lending *int64
	// total is what subtree returns, after its first call.
	total *int64
}

// hasRoot reports whether a node has no more than so many nodes above it.
func (n *node) hasRoot(most int) bool {
	return n.parent == nil || most > 0 && n.parent.hasRoot(most-1)
}

// subtree is the quota that there is for a node and those below it, without what it could borrow.
func (n *node) subtree() int64 {
	if n.total == nil {
		sum := n.nominal
		for _, child := range n.children {
			sum = plus(sum, child.subtree()-child.own())
		}
		n.total = &sum
	}
	return *n.total
}

// own is the part of its quota that a node does not lend.
func (n *node) own() int64 {
	if n.lending == nil {
		return 0
	}
	return max(n.subtree()-*n.lending, 0)
}

// reserved is what a ClusterQueue has reserved, or what those below a Cohort take of what they lend each other.
func (n *node) reserved() int64 {
	sum := n.used
	for _, child := range n.children {
		sum = plus(sum, max(child.reserved()-child.own(), 0))
	}
	return sum
}

// tree returns the nodes of all ClusterQueues and Cohorts, and of Cohorts that are only named.
func (q *Quotas) tree(fr quota.FlavorResource, used map[string]int64) map[Node]*node {
	nodes := map[Node]*node{}
	at := func(name Node) *node {
		if nodes[name] == nil {
			nodes[name] = &node{Node: name}
		}
		return nodes[name]
	}
	add := func(name Node, parent kueue.CohortReference, groups []kueue.ResourceGroup) {
		n := at(name)
		n.allow(QuotaOf(groups, fr))
		if parent != "" {
			n.parent = at(Node{visibility.Cohort, string(parent)})
			n.parent.children = append(n.parent.children, n)
		}
	}
	for name, c := range q.Cohorts {
		add(Node{visibility.Cohort, name}, c.Spec.ParentName, c.Spec.ResourceGroups)
	}
	for name, c := range q.ClusterQueues {
		add(Node{visibility.ClusterQueue, name}, c.Spec.CohortName, c.Spec.ResourceGroups)
		nodes[Node{visibility.ClusterQueue, name}].used = used[name]
	}
	return nodes
}

// allow sets the quota of a node. A ClusterQueue may borrow only what it covers.
func (n *node) allow(r *kueue.ResourceQuota) {
	switch {
	case r == nil && n.Kind == visibility.ClusterQueue:
		n.borrowing = new(int64(0))
		return
	case r == nil:
		return
	}
	n.nominal = Milli(r.NominalQuota)
	if r.BorrowingLimit != nil {
		n.borrowing = new(Milli(*r.BorrowingLimit))
	}
	if r.LendingLimit != nil {
		n.lending = new(Milli(*r.LendingLimit))
	}
}

// QuotasOf returns all quotas of resource groups, in their order.
func QuotasOf(groups []kueue.ResourceGroup) iter.Seq2[quota.FlavorResource, *kueue.ResourceQuota] {
	return func(yield func(quota.FlavorResource, *kueue.ResourceQuota) bool) {
		for i := range groups {
			for j := range groups[i].Flavors {
				f := &groups[i].Flavors[j]
				for k := range f.Resources {
					if !yield(quota.FlavorResource{Flavor: f.Name, Resource: f.Resources[k].Name}, &f.Resources[k]) {
						return
					}
				}
			}
		}
	}
}

// QuotaOf returns the quota of one resource of a flavor, or nil.
func QuotaOf(groups []kueue.ResourceGroup, fr quota.FlavorResource) *kueue.ResourceQuota {
	for name, of := range QuotasOf(groups) {
		if name == fr {
			return of
		}
	}
	return nil
}
