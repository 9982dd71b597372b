package quota

import "slices"

// Quota is the quota of a node for one FlavorResource.
type Quota struct {
	Nominal Amount
	// BorrowingLimit is how much more the subtree may use than its own quota, and LendingLimit how much of its quota others may use. MaxAmount is
	// no limit.
	BorrowingLimit, LendingLimit Amount
}

// A Node is a ClusterQueue or a Cohort in a Tree. Only ClusterQueues are charged.
type Node struct {
	// Name is for messages, Weight for fair sharing (1 unless set otherwise); the Tree needs neither.
	Name   string
	Weight float64

	tree     *Tree
	parent   *Node
	children []*Node
	cells    []cell
	isQueue  bool
	// height is the number of steps down to the deepest leaf.
	height int
	// lendable is, by resource, what could be charged if nothing were, all flavors together.
	lendable []Amount
}

// A cell has the values of a node for one FlavorResource. All except quota and, in a leaf, usage is derived by Tree.derive.
type cell struct {
	quota Quota
	// subtree is the quota of the whole subtree, less what its members keep for themselves.
	subtree Amount
	// local is the part of subtree that no node outside may use.
	local Amount
	// most is how much could be charged if nothing were.
	most Amount
	// usage is the charge of a leaf, and what the children of a Cohort use beyond their local parts, by time.
	usage [times]Amount
}

// A horizon selects the state that a question is about.
type horizon int

const (
	// now counts all charges.
	now horizon = iota
	// afterEvictions is the state after all evictions that MarkEvicting has announced.
	afterEvictions
	times
)

// Parent returns the Cohort of the node, or nil.
func (n *Node) Parent() *Node { return n.parent }

// Children returns the members of a Cohort in the order in which they joined. The result must not be changed.
func (n *Node) Children() []*Node { return n.children }

// Root returns the Cohort on top, which is the node itself if it has no parent.
func (n *Node) Root() *Node {
	for n.parent != nil {
		n = n.parent
	}
	return n
}

// Path returns the names from the root down to the node, each behind a slash.
func (n *Node) Path() string {
	path := ""
	for ; n != nil; n = n.parent {
		path = "/" + n.Name + path
	}
	return path
}

// Height returns the number of steps down to the deepest leaf. It is 0 for a ClusterQueue.
func (n *Node) Height() int {
	n.tree.settle()
	return n.height
}

// peek returns a copy of a cell.
func (n *Node) peek(id ID) cell {
	n.tree.settle()
	if int(id) < len(n.cells) {
		return n.cells[id]
	}
	return cell{}
}

func (n *Node) cell(id ID) *cell {
	n.tree.settle()
	if int(id) >= len(n.cells) {
		n.grow(int(id) + 1)
	}
	return &n.cells[id]
}

func (n *Node) grow(size int) {
	for len(n.cells) < size {
		n.cells = append(n.cells, cell{quota: noQuota()})
	}
}

// Quota returns the quota of the node itself.
func (n *Node) Quota(id ID) Quota { return n.peek(id).quota }

// Subtree returns the quota of the node and those below together, without what these keep for themselves.
func (n *Node) Subtree(id ID) Amount { return n.peek(id).subtree }

// Used returns the charge of a ClusterQueue, or what the members of a Cohort use of the quota that they share.
func (n *Node) Used(id ID) Amount { return n.used(n.peek(id)) }

func (n *Node) used(c cell) Amount { return c.usage[n.tree.horizon] }

// Charge adds to the usage of a ClusterQueue. It does not check whether that fits.
func (n *Node) Charge(u Usage) { n.charge(u, n.tree.horizon) }

// Release subtracts a charge. It returns the highest node whose usage has decreased: only below it more is available now.
func (n *Node) Release(u Usage) *Node { return n.release(u, n.tree.horizon) }

// MarkEvicting announces that a charge will be released, because it is being evicted. Until then it counts for all questions that are not asked in
// WhatIfEvicted.
func (n *Node) MarkEvicting(u Usage) { n.release(u, afterEvictions) }

// UnmarkEvicting undoes MarkEvicting. It must be called for all that was announced before it is released, or right after.
func (n *Node) UnmarkEvicting(u Usage) { n.charge(u, afterEvictions) }

// Reserve reserves quota for a stage that is admitted when the charges that MarkEvicting has announced are released: it counts later, and not now. So
// quota that victims release can be used before all of them have left, if there will be enough for all reservations then.
func (n *Node) Reserve(u Usage) {
	n.tree.countReservation(1)
	n.charge(u, afterEvictions)
}

// Unreserve removes a reservation. It returns the highest node that the release reaches: only below it more is available now.
func (n *Node) Unreserve(u Usage) *Node {
	n.tree.countReservation(-1)
	return n.release(u, afterEvictions)
}

// from returns an amount that is charged or released in a state and in those after it.
func (h horizon) from(a Amount) [times]Amount {
	if h == afterEvictions {
		return [times]Amount{afterEvictions: a}
	}
	return [times]Amount{now: a, afterEvictions: a}
}

func (n *Node) charge(u Usage, since horizon) {
	for _, c := range u {
		n.chargeOne(c.ID, since.from(c.Amount))
	}
}

// release returns the highest node that the release reaches.
func (n *Node) release(u Usage, since horizon) *Node {
	top := n
	for _, c := range u {
		if reached := n.releaseOne(c.ID, since.from(c.Amount)); reached.height > top.height {
			top = reached
		}
	}
	return top
}

func (n *Node) chargeOne(id ID, amounts [times]Amount) {
	for ; n != nil && amounts != [times]Amount{}; n = n.parent {
		c := n.cell(id)
		n.remember(id, c)
		for t, a := range amounts {
			amounts[t] -= min(a, max(0, c.local-c.usage[t]))
			c.usage[t] = c.usage[t].Plus(a)
		}
	}
}

// releaseOne returns the highest node that the release reaches.
func (n *Node) releaseOne(id ID, amounts [times]Amount) *Node {
	for {
		c := n.cell(id)
		n.remember(id, c)
		for t, a := range amounts {
			amounts[t] = min(a, max(0, c.usage[t]-c.local))
			c.usage[t] = c.usage[t].Minus(a)
		}
		if n.parent == nil || amounts == [times]Amount{} {
			return n
		}
		n = n.parent
	}
}

// Available returns how much more may be charged: now, and without using what is reserved for later. It is negative only for a root that uses
// more than its quota: quota that a node need not share stays available to it, whatever happens to its parents.
func (n *Node) Available(id ID) Amount {
	free := n.availableAt(id, n.tree.horizon)
	if n.tree.horizon == now && n.tree.reservations > 0 {
		free = min(free, n.availableAt(id, afterEvictions))
	}
	return free
}

func (n *Node) availableAt(id ID, h horizon) Amount {
	c := n.peek(id)
	if n.parent == nil {
		return c.subtree.Minus(c.usage[h])
	}
	borrowable := n.parent.availableAt(id, h)
	if c.quota.BorrowingLimit != MaxAmount {
		shared := c.subtree - c.local
		borrowable = min(borrowable, shared.Plus(c.quota.BorrowingLimit).Minus(max(0, c.usage[h]-c.local)))
	}
	return max(0, c.local-c.usage[h]).Plus(max(0, borrowable))
}

// Capacity returns the capacity: how much could be charged if nothing were.
func (n *Node) Capacity(id ID) Amount { return n.peek(id).most }

// Lendable returns how much of a resource could be charged if nothing were, all flavors together. The resource is numbered as by Index.Resource.
func (n *Node) Lendable(r int) Amount {
	n.tree.settle()
	if r < len(n.lendable) {
		return n.lendable[r]
	}
	return 0
}

// Excess returns by how much the subtree would exceed its own quota after another charge. It is negative if some quota would be left.
func (n *Node) Excess(id ID, more Amount) Amount {
	c := n.peek(id)
	return n.used(c).Plus(more).Minus(c.subtree)
}

// PassedOn returns how much of another charge the parent of the node would be charged.
func (n *Node) PassedOn(id ID, more Amount) Amount {
	c := n.peek(id)
	return more - min(more, max(0, c.local-n.used(c)))
}

// Fits reports whether all of a usage is available. An empty usage fits even if more is charged than the limits allow.
func (n *Node) Fits(u Usage) bool {
	t := n.tree
	t.settle()
	for _, c := range u {
		if !n.fitsAt(c.ID, c.Amount, t.horizon) || t.horizon == now && t.reservations > 0 && !n.fitsAt(c.ID, c.Amount, afterEvictions) {
			return false
		}
	}
	return true
}

// fitsAt reports whether an amount is at most what availableAt returns. It goes up only as far as quota of its own does not suffice.
func (n *Node) fitsAt(id ID, a Amount, h horizon) bool {
	for ; int(id) < len(n.cells); n = n.parent {
		c := &n.cells[id]
		if n.parent == nil {
			return a <= c.subtree.Minus(c.usage[h])
		}
		own := max(0, c.local-c.usage[h])
		if a <= own {
			return true
		}
		a -= own
		if c.quota.BorrowingLimit != MaxAmount && a > (c.subtree-c.local).Plus(c.quota.BorrowingLimit).Minus(max(0, c.usage[h]-c.local)) {
			return false
		}
	}
	return a <= 0
}

// Borrows reports whether the subtree would exceed its own quota after another charge. A node without a parent cannot borrow.
func (n *Node) Borrows(id ID, more Amount) bool {
	c := n.peek(id)
	return n.parent != nil && n.used(c).Plus(more) > c.subtree
}

// KeepsAny reports whether others may not use all quota of the node, in any part of a usage.
func (n *Node) KeepsAny(u Usage) bool {
	return slices.ContainsFunc(u, func(c Charge) bool { return n.peek(c.ID).local > 0 })
}

// BorrowsAny reports whether the subtree would borrow any part of a usage.
func (n *Node) BorrowsAny(u Usage) bool {
	for _, c := range u {
		if n.Borrows(c.ID, c.Amount) {
			return true
		}
	}
	return false
}

// ExceedsAny reports whether the subtree uses more than its own quota of any resource of a usage.
func (n *Node) ExceedsAny(u Usage) bool {
	for _, c := range u {
		if n.Borrows(c.ID, 0) {
			return true
		}
	}
	return false
}

// Level returns how far up a charge would have to borrow: the height of the lowest node above or at this one in whose subtree it fits
// without borrowing, or of the root if there is none.
func (n *Node) Level(id ID, a Amount) int {
	for n.Borrows(id, a) {
		a = n.PassedOn(id, a)
		n = n.parent
	}
	return n.height
}

// LevelOf returns the highest Level of what a usage has.
func (n *Node) LevelOf(u Usage) int {
	level := 0
	for _, c := range u {
		level = max(level, n.Level(c.ID, c.Amount))
	}
	return level
}
