package quota

import (
	"fmt"
	"hash/fnv"
	"slices"
)

// A Tree has nodes with quota and what is charged to them. It is a forest: each Cohort without a parent is the root of its own tree.
type Tree struct {
	Index *Index

	nodes []*Node
	// stale tells that quotas or parents have changed since the last derive, and version how often they were derived.
	stale   bool
	version uint64

	// undo has what every cell was before each change since the outermost WhatIf began.
	undo   []change
	nested int
	// time is the one that questions are about.
	time time
	// reservations counts those that Reserve has made: without any, nothing is available now that is not available later.
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
	t.stale = true
	return n
}

// Remove takes a node away that is charged nothing and has no children.
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
	t.stale = true
}

// noQuota is what a node has of what its spec does not name: nothing of its own, and it passes on what its members share.
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
	t.stale = true
}

// IsAbove tells whether a node is the other one or above it.
func (n *Node) IsAbove(other *Node) bool {
	for ; other != nil; other = other.parent {
		if other == n {
			return true
		}
	}
	return false
}

// Version returns another number after each change of quotas or parents. What others derive from these is good while it stays.
func (t *Tree) Version() uint64 {
	t.settle()
	return t.version
}

// settle derives what depends on quotas and parents if they have changed.
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

// derive computes what a node knows from its quota and from its children.
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

// deriveMost computes what a node could use of what its parents have, if nothing were charged.
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

// WhatIf returns what f returns, and takes back all charges and releases that f makes, also if f panics. It can be nested.
func (t *Tree) WhatIf(f func() bool) bool {
	mark := t.begin()
	defer t.takeBack(mark)
	return f()
}

// Later is WhatIf when all have left that Leave told of. Charges and releases that f makes count only then.
func (t *Tree) Later(f func() bool) bool {
	defer func(before time) { t.time = before }(t.time)
	t.time = later
	return t.WhatIf(f)
}

// countReservation counts a reservation that is made or taken back for good.
func (t *Tree) countReservation(more int) {
	if t.nested == 0 {
		t.reservations += more
	}
}

func (t *Tree) begin() int {
	t.nested++
	return len(t.undo)
}

func (t *Tree) takeBack(mark int) {
	t.nested--
	for i := len(t.undo) - 1; i >= mark; i-- {
		u := &t.undo[i]
		u.node.cells[u.id].usage = u.usage
	}
	t.undo = t.undo[:mark]
}

func (n *Node) remember(id ID, c *cell) {
	if n.tree.nested > 0 {
		n.tree.undo = append(n.tree.undo, change{n, id, c.usage})
	}
}

// Hash depends on all that the Tree can answer, and on nothing else.
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
