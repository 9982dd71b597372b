package queue

import (
	"cmp"
	"iter"
	"slices"
)

// Some shapes differ only in a number, such as a time limit: of two such stages, the one that comes first passes each check that the other one passes if its
// number is not larger. If it is refused, the other one is refused for the same reason, and follows it: it stays parked for as long as that one is pending and
// comes before it. So a queue of stages whose numbers all differ costs a check for each stage that has a smaller one than all before it.

// Follow parks a stage that is awake, and all others of its shape and of those that follow it, if one that was refused comes before it and passes each check
// that this one passes. It returns that one, or nil, and, in order, those that have not been told of its refusal. Under Strict no stage follows: those behind
// the blocker are refused for that reason.
func (p *Pending[M, S, T]) Follow(t *Element[M, S, T]) (leader *Element[M, S, T], told []M) {
	if p.strategy == Strict {
		return nil, nil
	}
	c := t.equivClass
	kind, number := p.rank(c.shape)
	for _, other := range p.leaders[kind] {
		if _, least := p.rank(other.shape); least > number {
			break
		}
		if !other.Precedes(c) {
			continue
		}
		followers := c.followers
		c.followers = nil
		for _, f := range append(followers, c) {
			f.hear(other.heard)
			f.leader = other
		}
		if c.isAwake {
			p.awake.Drop(c)
			c.isAwake = false
		}
		other.followers = append(append(other.followers, followers...), c)
		return other.elements.First(), other.tell()
	}
	return nil, nil
}

// addLeader makes a class that is parked a leader.
func (p *Pending[M, S, T]) addLeader(c *equivClass[M, S, T]) {
	kind, number := p.rank(c.shape)
	at, _ := slices.BinarySearchFunc(p.leaders[kind], number, func(other *equivClass[M, S, T], number int64) int {
		_, n := p.rank(other.shape)
		return cmp.Compare(n, number)
	})
	p.leaders[kind] = slices.Insert(p.leaders[kind], at, c)
	c.isLeader = true
}

// unfollow makes a class neither a leader nor a follower. Those that follow it go on to do so.
func (p *Pending[M, S, T]) unfollow(c *equivClass[M, S, T]) {
	isThis := func(other *equivClass[M, S, T]) bool { return other == c }
	if c.leader != nil {
		c.leader.followers = slices.DeleteFunc(c.leader.followers, isThis)
		c.leader = nil
		return
	}
	if !c.isLeader {
		return
	}
	c.isLeader = false
	kind, _ := p.rank(c.shape)
	if p.leaders[kind] = slices.DeleteFunc(p.leaders[kind], isThis); len(p.leaders[kind]) == 0 {
		delete(p.leaders, kind)
	}
}

// wakeFollowers wakes the followers of a class that it no longer comes before.
func (p *Pending[M, S, T]) wakeFollowers(c *equivClass[M, S, T]) {
	for _, f := range slices.Clone(c.followers) {
		if c.elements.Len() == 0 || f.Precedes(c) {
			p.wake(f)
		}
	}
}

// withFollowers returns a class and those that follow it.
func (c *equivClass[M, S, T]) withFollowers() iter.Seq[*equivClass[M, S, T]] {
	return func(yield func(*equivClass[M, S, T]) bool) {
		if !yield(c) {
			return
		}
		for _, f := range c.followers {
			if !yield(f) {
				return
			}
		}
	}
}
