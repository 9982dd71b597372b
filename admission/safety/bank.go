package safety

import (
	"slices"

	"github.com/tranche-dev/tranche/admission/quota"
)

// A Bank has the claims of all JobSets. The quota that they hold is charged to the Tree of their nodes, which has the limits and no other charges.
//
// For the claims below each root the Bank stores an order in which they can finish, and reuses it for the next question: a new claim is inserted
// where it can finish, and the removal of a claim makes no other worse off.
type Bank struct {
	tree  *quota.Tree
	pools map[*quota.Node]*pool
	// doubted are the pools that have become doubtful since the last call of Unsafe.
	doubted []*pool
}

// A pool has the claims below one root.
type pool struct {
	root *quota.Node
	// order has the claims that can finish, each as soon as all before it have, and stuck the others. Halted claims are in neither.
	order, stuck []*Claim
	halted       []*Claim
	// isDoubtful is true if order may have claims that cannot finish.
	isDoubtful bool
}

// NewBank returns a Bank without claims.
func NewBank(tree *quota.Tree) *Bank { return &Bank{tree: tree, pools: map[*quota.Node]*pool{}} }

// Len returns how many claims there are.
func (b *Bank) Len() int {
	n := 0
	for _, p := range b.pools {
		n += len(p.order) + len(p.stuck) + len(p.halted)
	}
	return n
}

// ClaimsUnderRoot returns all claims below the root of a node.
func (b *Bank) ClaimsUnderRoot(n *quota.Node) []*Claim {
	p := b.pools[n.Root()]
	if p == nil {
		return nil
	}
	return slices.Concat(p.order, p.stuck, p.halted)
}

// Invalidate must be called when quotas or parents in the Tree have changed. Then all claims have to be removed and added again.
func (b *Bank) Invalidate() {
	for _, p := range b.pools {
		b.doubt(p)
	}
}

func (b *Bank) doubt(p *pool) {
	if !p.isDoubtful {
		p.isDoubtful = true
		b.doubted = append(b.doubted, p)
	}
}

// Add adds a claim and charges what it holds.
func (b *Bank) Add(c *Claim) {
	root := c.Node.Root()
	p := b.pools[root]
	if p == nil {
		p = &pool{root: root}
		b.pools[root] = p
	}
	c.pool = p
	c.prepare()
	c.Node.Charge(c.Held)
	if c.Mode == Halted {
		p.halted = append(p.halted, c)
		b.doubt(p)
		return
	}
	switch {
	case p.isDoubtful || len(p.stuck) > 0:
	case c.canFinish():
		p.order = slices.Insert(p.order, 0, c)
		return
	default:
		if done, left, ok := tryToFinish(b.tree, p.order, c); ok {
			n := bringForward(b.tree, done, c)
			p.order = slices.Concat(done[:n], []*Claim{c}, done[n:], left)
			return
		}
	}
	p.order = append(p.order, c)
	b.doubt(p)
}

// Remove removes a claim and releases what it holds.
func (b *Bank) Remove(c *Claim) {
	p := c.pool
	c.pool = nil
	c.Node.Release(c.Held)
	for _, list := range []*[]*Claim{&p.order, &p.stuck, &p.halted} {
		if i := slices.Index(*list, c); i >= 0 {
			*list = slices.Delete(*list, i, i+1)
			break
		}
	}
	if len(p.stuck) > 0 {
		b.doubt(p)
	}
	if len(p.order)+len(p.stuck)+len(p.halted) == 0 {
		delete(b.pools, p.root)
	}
}

// Blocked returns the claims that could not finish if a claim were added, among them the claim itself, or nothing if it could finish: then no claim
// that can finish now is worse off, in whatever order JobSets finish. The claims that are gone do not count, neither now nor then. The claim must be in no
// Bank; a claim that it replaces must be among those that are gone.
//
// If the claim can finish, so can all others that can without it: all that it holds is released. So one question is enough: can it finish after the
// claims that can finish without it? A finishing claim only adds to the free quota, so the order in which they are found does not matter.
func (b *Bank) Blocked(c *Claim, gone []*Claim) []*Claim {
	c.prepare()
	p := b.pools[c.Node.Root()]
	if p == nil {
		p = &pool{}
	}
	b.arrange(p)
	var left []*Claim
	b.tree.WhatIf(func() bool {
		for _, g := range gone {
			g.Node.Release(g.Held)
			g.excluded = true
		}
		c.Node.Charge(c.Held)
		waiting := p.order
		if len(p.stuck) > 0 {
			waiting = slices.Concat(p.order, p.stuck)
		}
		var finishes bool
		if _, left, finishes = tryToFinish(b.tree, waiting, c); finishes {
			left = nil
		} else {
			left = slices.Concat([]*Claim{c}, left, p.halted)
			left = slices.DeleteFunc(left, func(other *Claim) bool { return other.excluded })
		}
		for _, g := range gone {
			g.excluded = false
		}
		return true
	})
	return left
}

// tryToFinish calls finish and undoes its changes.
func tryToFinish(tree *quota.Tree, waiting []*Claim, until *Claim) (done, left []*Claim, ok bool) {
	tree.WhatIf(func() bool {
		done, left, ok = finish(waiting, until)
		return true
	})
	return done, left, ok
}

// finish lets charged claims finish until a claim that must not be among them can, and reports whether it can. It returns the finished claims in
// this order, and the others in their original order. More may have finished than was necessary.
func finish(waiting []*Claim, until *Claim) (done, left []*Claim, ok bool) {
	if until != nil && until.canFinish() {
		return nil, waiting, true
	}
	// Most are given in an order in which they can finish: as long as they do, nothing is copied.
	n, ask := 0, 1
	for ; n < len(waiting) && !waiting[n].excluded && waiting[n].canFinish(); n++ {
		waiting[n].Node.Release(waiting[n].Held)
		if n+1 == ask {
			if until != nil && until.canFinish() {
				return waiting[: n+1 : n+1], waiting[n+1:], true
			}
			ask = nextAsked(ask)
		}
	}
	if until != nil && until.canFinish() {
		return waiting[:n:n], waiting[n:], true
	}
	if n == len(waiting) {
		return waiting[:n:n], nil, false
	}
	done = append(make([]*Claim, 0, len(waiting)), waiting[:n]...)
	return finishInAnyOrder(done, slices.Clone(waiting[n:]), until)
}

// longWay is how many claims may finish before another one without a search for fewer that are enough.
const longWay = 8

// bringForward moves those of the finished claims to the front that are enough for the next one to finish, and returns how many these are. So the next claims
// that need the same find them without asking all the others, which may hold nothing of use.
func bringForward(tree *quota.Tree, finished []*Claim, next *Claim) int {
	if len(finished) <= longWay {
		return len(finished)
	}
	var need quota.Usage
	tree.WhatIf(func() bool {
		for _, c := range finished {
			c.Node.Release(c.Held)
		}
		need = next.needs[slices.IndexFunc(next.needs, next.Node.Fits)]
		return true
	})
	first, others := make([]*Claim, 0, len(finished)), make([]*Claim, 0, len(finished))
	isEnough := tree.WhatIf(func() bool {
		for i, c := range finished {
			if !c.holdsAnyOf(need) || !c.canFinish() {
				others = append(others, c)
				continue
			}
			first = append(first, c)
			c.Node.Release(c.Held)
			if next.Node.Fits(need) {
				others = append(others, finished[i+1:]...)
				return true
			}
		}
		return false
	})
	if !isEnough {
		return len(finished)
	}
	copy(finished[copy(finished, first):], others)
	return len(first)
}

// nextAsked returns after how many finished claims to ask again whether the awaited claim can finish. To ask costs as much as to let one of them finish, and it
// is no mistake to ask later: what has been released stays free.
func nextAsked(done int) int { return done + 1 + done/8 }

// finishInAnyOrder is finish for claims of which the first ones are done, and the first of those left cannot finish yet. It changes both lists.
func finishInAnyOrder(done, left []*Claim, until *Claim) (_, still []*Claim, ok bool) {
	ask := nextAsked(len(done))
	for {
		still = left[:0]
		for i, c := range left {
			switch {
			case c.excluded:
				continue
			case !c.canFinish():
				still = append(still, c)
				continue
			}
			c.Node.Release(c.Held)
			done = append(done, c)
			if until != nil && len(done) >= ask {
				if until.canFinish() {
					return done, append(still, left[i+1:]...), true
				}
				ask = nextAsked(len(done))
			}
		}
		if until != nil && until.canFinish() {
			return done, still, true
		}
		if len(still) == 0 || len(still) == len(left) {
			return done, still, false
		}
		left = still
	}
}

// arrange recomputes which claims can finish.
func (b *Bank) arrange(p *pool) {
	if !p.isDoubtful {
		return
	}
	p.isDoubtful = false
	p.order, p.stuck, _ = tryToFinish(b.tree, slices.Concat(p.order, p.stuck), nil)
}
