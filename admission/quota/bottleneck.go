package quota

import (
	"cmp"

	"github.com/tranche-dev/tranche/apis/visibility"
)

// A Bottleneck is why a charge does not fit.
type Bottleneck struct {
	// Node has the Limit, which is Amount.
	Node   *Node
	Limit  visibility.Limit
	Amount Amount
	// Missing is how much has to be released below Under before the charge fits there.
	Missing Amount
	Under   *Node
}

// IsClusterQueue reports whether the node is a leaf, and not a Cohort.
func (n *Node) IsClusterQueue() bool { return n.isQueue }

// Bottleneck returns why a charge does not fit. If there are several limits, it returns the one that leaves least; ok is false if there is none.
func (n *Node) Bottleneck(id ID, a Amount) (b Bottleneck, ok bool) {
	if a <= n.Available(id) {
		return Bottleneck{}, false
	}
	for at := n; ; at = at.parent {
		if at.parent == nil {
			return at.atTheTop(id, a, n), true
		}
		c := at.peek(id)
		a = at.PassedOn(id, a)
		if c.quota.BorrowingLimit == MaxAmount {
			continue
		}
		room := (c.subtree - c.local).Plus(c.quota.BorrowingLimit).Minus(max(0, at.used(c)-c.local))
		if room < a && room <= at.parent.Available(id) {
			return Bottleneck{Node: at, Limit: visibility.BorrowingLimit, Amount: c.quota.BorrowingLimit, Missing: a.Minus(room), Under: at}, true
		}
	}
}

// atTheTop returns the quota of the root as the bottleneck, or a node that keeps as much as is missing from it.
func (n *Node) atTheTop(id ID, a Amount, asking *Node) Bottleneck {
	c := n.peek(id)
	b := Bottleneck{Node: n, Limit: visibility.SharedQuota, Amount: c.subtree, Missing: a.Minus(c.subtree.Minus(n.used(c))), Under: n}
	if n.isQueue {
		b.Limit = visibility.NominalQuota
		return b
	}
	if keeper, kept := n.keeper(id, asking); keeper != nil && kept >= b.Missing {
		b.Node, b.Limit, b.Amount = keeper, visibility.LendingLimit, keeper.peek(id).quota.LendingLimit
	}
	return b
}

// keeper returns the node that keeps most unused quota from others, and the sum of what all nodes keep.
func (n *Node) keeper(id ID, asking *Node) (keeper *Node, all Amount) {
	for node := range n.below {
		kept := node.idle(id)
		if kept == 0 || node.IsAbove(asking) {
			continue
		}
		all = all.Plus(kept)
		if keeper == nil || cmp.Or(cmp.Compare(kept, keeper.idle(id)), cmp.Compare(keeper.Name, node.Name)) > 0 {
			keeper = node
		}
	}
	return keeper, all
}

// below yields all nodes below one, parents before children.
func (n *Node) below(yield func(*Node) bool) {
	for _, child := range n.children {
		if !yield(child) {
			return
		}
		for node := range child.below {
			if !yield(node) {
				return
			}
		}
	}
}

// idle returns the quota that a node keeps for its own subtree, and that is not used there.
func (n *Node) idle(id ID) Amount {
	c := n.peek(id)
	return max(0, c.local-n.used(c))
}
