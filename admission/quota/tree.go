package quota

import (
	"fmt"
	"hash/fnv"
	"slices"
)

// A Tree has nodes with quota and charges. It is a forest: each Cohort without a parent is the root of its own tree.
type Tree struct {
	Index *Index

	nodes []*Node
	// stale is true if quotas or parents have changed since the last derive, and version counts the calls of derive.
	stale   bool
	version uint64

	// state names the current quotas, parents and charges, and states counts how many there have been.
	state, states uint64
	// undo has the previous value of a cell for each change since the outermost WhatIf began.
	undo   []change
	nested int
	// horizon is the state that questions are about.
	horizon horizon
	// reservations counts the reservations of Reserve: without any, nothing is available now that is not available later.
	reservations int
}

type change struct {
	node  *Node
	id    ID
	usage [times]Amount
}

// NewTree returns an empty Tree.
func NewTree() *Tree { return &Tree{Index: NewIndex()} }

// Twin returns an empty Tree with the same Index.
func (t *Tree) Twin() *Tree { return &Tree{Index: t.Index} }

// AddClusterQueue adds a leaf without quota and without a parent.
func (t *Tree) AddClusterQueue(name string) *Node {
	return t.add(&Node{Name: name, Weight: 1, tree: t, isQueue: true})
}

// AddCohort adds a node without quota and without a parent, under which others may be put.
func (t *Tree) AddCohort(name string) *Node { return t.add(&Node{Name: name, Weight: 1, tree: t}) }

func (t *Tree) add(n *Node) *Node {
	t.nodes = append(t.nodes, n)
	t.reshape()
	return n
}

// Remove removes a node that has no charges and no children.
func (t *Tree) Remove(n *Node) {
	t.SetParent(n, nil)
	t.nodes = slices.DeleteFunc(t.nodes, func(other *Node) bool { return other == n })
}

// SetQuotas replaces the quota of a node. It must not be called within WhatIf.
func (t *Tree) SetQuotas(n *Node, quotas map[ID]Quota) {
	for id := range n.cells {
		n.cells[id].quota = noQuota()
	}
	for id, q := range quotas {
		n.grow(int(id) + 1)
		n.cells[id].quota = q
	}
	t.reshape()
}

// noQuota is the default for a FlavorResource that the spec of a node does not name: no quota of its own, and all quota of its members is shared.
func noQuota() Quota { return Quota{BorrowingLimit: MaxAmount, LendingLimit: MaxAmount} }

// SetParent moves a node with all that is below it. Nil makes it a root. It must not be called within WhatIf, nor with a parent that is
// below the node.
func (t *Tree) SetParent(n, parent *Node) {
	if n.parent == parent {
		return
	}
	if n.parent != nil {
		n.parent.children = slices.DeleteFunc(n.parent.children, func(other *Node) bool { return other == n })
	}
	n.parent = parent
	if parent != nil {
		parent.children = append(parent.children, n)
	}
	t.reshape()
}

// reshape makes all derived values stale.
func (t *Tree) reshape() {
	t.stale = true
	t.change()
}

// change gives the Tree a new state.
func (t *Tree) change() {
	t.states++
	t.state = t.states
}

// IsAbove reports whether a node is, or is above, the other one.
func (n *Node) IsAbove(other *Node) bool {
	for ; other != nil; other = other.parent {
		if other == n {
			return true
		}
	}
	return false
}

// Version returns another number after each change of quotas or parents. Values that are derived from these are valid while it stays the same.
func (t *Tree) Version() uint64 {
	t.settle()
	return t.version
}

// A State names the quotas, parents and charges of a Tree that count at one instant.
type State struct {
	id      uint64
	horizon horizon
}

// State returns another value after each change, and the previous one after WhatIf has undone the changes. What nodes use of their quota is the same as
// long as the State is.
func (t *Tree) State() State { return State{t.state, t.horizon} }

// settle calls derive if quotas or parents have changed.
func (t *Tree) settle() {
	if t.stale {
		t.derive()
	}
}

func (t *Tree) derive() {
	t.stale = false
	t.version++
	for _, n := range t.nodes {
		if n.parent == nil {
			n.derive()
			n.deriveMost()
		}
	}
}

// derive computes the values of a node that depend on its quota and its children.
func (n *Node) derive() {
	n.grow(n.tree.Index.Len())
	n.height = 0
	for _, child := range n.children {
		child.derive()
		n.height = max(n.height, child.height+1)
	}
	for id := range n.cells {
		c := &n.cells[id]
		c.subtree = c.quota.Nominal
		if !n.isQueue {
			c.usage = [times]Amount{}
		}
		for _, child := range n.children {
			below := &child.cells[id]
			c.subtree = c.subtree.Plus(below.subtree - below.local)
			for t := range c.usage {
				c.usage[t] = c.usage[t].Plus(max(0, below.usage[t]-below.local))
			}
		}
		c.local = 0
		if n.parent != nil && c.quota.LendingLimit != MaxAmount {
			c.local = max(0, c.subtree.Minus(c.quota.LendingLimit))
		}
	}
}

// deriveMost computes the capacity of a node, which depends on its parents.
func (n *Node) deriveMost() {
	n.lendable = make([]Amount, n.tree.Index.Resources())
	for id := range n.tree.Index.Len() {
		c := &n.cells[id]
		c.most = c.subtree
		if n.parent != nil {
			borrowable := n.parent.cells[id].most
			if c.quota.BorrowingLimit != MaxAmount {
				borrowable = min(borrowable, (c.subtree - c.local).Plus(c.quota.BorrowingLimit))
			}
			c.most = c.local.Plus(borrowable)
		}
		r := n.tree.Index.Resource(ID(id))
		n.lendable[r] = n.lendable[r].Plus(c.most)
	}
	for _, child := range n.children {
		child.deriveMost()
	}
}

// WhatIf returns the result of f, and undoes all charges and releases of f, also if f panics. It can be nested.
func (t *Tree) WhatIf(f func() bool) bool {
	t.nested++
	defer t.takeBack(len(t.undo), t.state)
	return f()
}

// WhatIfEvicted is WhatIf in the state after all evictions that MarkEvicting has announced. Charges and releases of f count only in that state.
func (t *Tree) WhatIfEvicted(f func() bool) bool {
	defer func(before horizon) { t.horizon = before }(t.horizon)
	t.horizon = afterEvictions
	return t.WhatIf(f)
}

// countReservation counts a reservation that is made or removed outside of WhatIf.
func (t *Tree) countReservation(more int) {
	if t.nested == 0 {
		t.reservations += more
	}
}

func (t *Tree) takeBack(mark int, before uint64) {
	t.nested--
	t.state = before
	for i := len(t.undo) - 1; i >= mark; i-- {
		u := &t.undo[i]
		u.node.cells[u.id].usage = u.usage
	}
	t.undo = t.undo[:mark]
}

func (n *Node) remember(id ID, c *cell) {
	n.tree.change()
	if n.tree.nested > 0 {
		n.tree.undo = append(n.tree.undo, change{n, id, c.usage})
	}
}

// Hash depends on all answers of the Tree, and on nothing else.
func (t *Tree) Hash() uint64 {
	t.settle()
	h := fnv.New64a()
	for i, n := range t.nodes {
		for id := range n.cells {
			if c := n.cells[id]; c != (cell{quota: noQuota()}) {
				_, _ = fmt.Fprintln(h, i, n.Name, t.Index.Name(ID(id)), c)
			}
		}
	}
	return h.Sum64()
}
