package safety

import (
	"cmp"
	"slices"

	"github.com/tranche-dev/tranche/admission/quota"
)

// Unsafe returns the roots below which there are claims that cannot finish, ordered by name. It returns them once, and again when claims or
// limits below them have changed, or after Recheck.
func (b *Bank) Unsafe() []*quota.Node {
	if len(b.doubted) == 0 {
		return nil
	}
	var roots []*quota.Node
	for _, p := range b.doubted {
		b.arrange(p)
		if len(p.stuck) > 0 && !slices.Contains(roots, p.root) {
			roots = append(roots, p.root)
		}
	}
	b.doubted = nil
	slices.SortFunc(roots, func(x, y *quota.Node) int {
		return cmp.Or(cmp.Compare(x.Name, y.Name), cmp.Compare(len(x.Children()), len(y.Children())))
	})
	return roots
}

// Recheck makes the next call of Unsafe return this root again, if claims below it cannot finish then.
func (b *Bank) Recheck(root *quota.Node) {
	if p := b.pools[root]; p != nil {
		b.doubt(p)
	}
}

// A Price is the cost of evicting the JobSet of a claim.
type Price struct {
	// Lost is the lost work, in any unit.
	Lost     float64
	Priority int32
}

// mostCompared limits the number of candidates for which all sets are compared.
const mostCompared = 10

// SelectVictims returns the cheapest victims: claims below a root without which all other Guarded claims can finish. The cheapest set loses least; then its
// highest priority is lowest; then it is the smallest; then its claims come first by the given order. With more than mostCompared candidates, it is
// a set of which none can stay, and not always the cheapest.
//
// Only stuck or Halted claims are candidates: all others release what they hold anyway. Unguarded claims are assumed to finish.
func (b *Bank) SelectVictims(root *quota.Node, price func(*Claim) Price, order func(x, y *Claim) int) []*Claim {
	if p := b.pools[root]; p != nil {
		b.arrange(p)
		return b.selectVictims(p.order, p.stuck, p.halted, price, order)
	}
	return nil
}

// SelectVictimsIfResumed is SelectVictims with the assumption that Halted claims finish: then none of them is a candidate.
func (b *Bank) SelectVictimsIfResumed(root *quota.Node, price func(*Claim) Price, order func(x, y *Claim) int) []*Claim {
	if p := b.pools[root]; p != nil {
		b.arrange(p)
		return b.selectVictims(slices.Concat(p.order, p.halted), p.stuck, nil, price, order)
	}
	return nil
}

// IsStuck reports whether there are claims below the root of a node that cannot finish.
func (b *Bank) IsStuck(n *quota.Node) bool {
	p := b.pools[n.Root()]
	if p == nil {
		return false
	}
	b.arrange(p)
	return len(p.stuck) > 0
}

// selectVictims selects victims among the claims that are stuck or halted, when all others have finished.
func (b *Bank) selectVictims(finished, stuck, halted []*Claim, price func(*Claim) Price, order func(x, y *Claim) int) []*Claim {
	v := &victimSelection{tree: b.tree, price: price}
	b.tree.WhatIf(func() bool {
		for _, c := range finished {
			c.Node.Release(c.Held)
		}
		for _, c := range stuck {
			if c.Mode == Unguarded {
				c.Node.Release(c.Held)
			} else {
				v.stuck = append(v.stuck, c)
			}
		}
		if _, v.stuck, _ = finish(v.stuck, nil); len(v.stuck) > 0 {
			v.candidates = slices.SortedFunc(slices.Values(slices.Concat(v.stuck, halted)), order)
			v.search()
		}
		return true
	})
	return v.best
}

// A victimSelection is one search. All claims except the stuck and the halted ones have finished.
type victimSelection struct {
	tree  *quota.Tree
	price func(*Claim) Price
	stuck []*Claim
	// candidates in the order in which they should be evicted.
	candidates, best []*Claim
}

func (v *victimSelection) search() {
	v.takeAndSpare()
	if len(v.candidates) > mostCompared {
		return
	}
	for set := 1; set < 1<<len(v.candidates); set++ {
		var some []*Claim
		for i, c := range v.candidates {
			if set&(1<<i) != 0 {
				some = append(some, c)
			}
		}
		if v.isCheaper(some) && v.suffices(some) {
			v.best = some
		}
	}
}

// takeAndSpare selects as many candidates as are enough, and spares those that can stay, from the last on.
func (v *victimSelection) takeAndSpare() {
	few, enough := 0, len(v.candidates)
	for enough-few > 1 {
		// With more victims the others can only finish earlier.
		if middle := few + (enough-few)/2; v.suffices(v.candidates[:middle]) {
			enough = middle
		} else {
			few = middle
		}
	}
	v.best = v.minimize(v.candidates[:enough])
}

// minimize returns the victims that have to go, of some without which all others can finish. It maintains an order in which the remaining claims can
// finish: a claim that can stay is inserted where it can finish, as by Add.
func (v *victimSelection) minimize(some []*Claim) (goes []*Claim) {
	v.tree.WhatIf(func() bool {
		for _, c := range some {
			c.Node.Release(c.Held)
			c.excluded = true
		}
		order, _, _ := tryToFinish(v.tree, v.stuck, nil)
		order = slices.Clone(order) // it may be a part of stuck, and is changed
		starters := newStarters(order)
		for _, c := range slices.Backward(some) {
			c.excluded = false
			c.Node.Charge(c.Held)
			if beside, stays := v.beside(order, starters, c); stays {
				order = beside
				starters.add(c)
				continue
			}
			c.Node.Release(c.Held)
			c.excluded = true
			goes = append(goes, c)
		}
		for _, c := range goes {
			c.excluded = false
		}
		return true
	})
	slices.Reverse(goes)
	return goes
}

// beside returns the order with one more claim, which is charged already, if all can finish then. Most claims that have to go leave so little that
// none can begin to finish, which is found without asking each.
func (v *victimSelection) beside(order []*Claim, starters starters, c *Claim) ([]*Claim, bool) {
	if len(order) > 0 && (c.Mode == Halted || !c.canFinish()) && !starters.any() {
		return nil, false
	}
	if c.Mode == Halted {
		done, left, _ := tryToFinish(v.tree, order, nil)
		return done, len(left) == 0
	}
	done, left, ok := tryToFinish(v.tree, order, c)
	if !ok {
		return nil, false
	}
	n := bringForward(v.tree, done, c)
	if len(done) == 0 || &done[0] == &order[0] { // no other order was necessary
		return slices.Insert(order, n, c), true
	}
	return slices.Concat(done[:n], []*Claim{c}, done[n:], left), true
}

// suffices reports whether the others can finish without some.
func (v *victimSelection) suffices(some []*Claim) bool {
	return v.tree.WhatIf(func() bool {
		for _, c := range some {
			c.Node.Release(c.Held)
			c.excluded = true
		}
		_, left, _ := finish(v.stuck, nil)
		left = slices.DeleteFunc(left, func(c *Claim) bool { return c.excluded })
		for _, c := range some {
			c.excluded = false
		}
		return len(left) == 0
	})
}

func (v *victimSelection) isCheaper(some []*Claim) bool {
	price, best := v.sum(some), v.sum(v.best)
	return cmp.Or(cmp.Compare(price.Lost, best.Lost), cmp.Compare(price.Priority, best.Priority), cmp.Compare(len(some), len(v.best))) < 0
}

// sum returns the cost of a set: the sum of what is lost, and the highest priority.
func (v *victimSelection) sum(some []*Claim) Price {
	total := v.price(some[0])
	for _, c := range some[1:] {
		price := v.price(c)
		total.Lost += price.Lost
		total.Priority = max(total.Priority, price.Priority)
	}
	return total
}
