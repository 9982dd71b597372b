package safety

import (
	"slices"

	"github.com/tranche-dev/tranche/admission/quota"
)

// Deadlocked returns the claims below a root that wait for each other: even if all other claims finish, none of these gets what it asks for. The
// function asks returns what the waiting stages of a claim need, as alternatives; a claim that asks for nothing continues and finishes.
//
// This is deadlock detection (E. G. Coffman, M. J. Elphick, A. Shoshani, System Deadlocks, Computing Surveys 3, 1971): unlike Unsafe it uses what is
// requested now and not what may be requested later. A Halted claim is part of no deadlock, since its manager can let it finish.
func (b *Bank) Deadlocked(root *quota.Node, asks func(*Claim) []quota.Usage) []*Claim {
	p := b.pools[root]
	if p == nil {
		return nil
	}
	b.arrange(p)
	if len(p.stuck) == 0 {
		return nil
	}
	waiting := slices.Clone(p.stuck)
	b.tree.WhatIf(func() bool {
		for _, c := range slices.Concat(p.order, p.halted) {
			c.Node.Release(c.Held)
		}
		goesOn := func(c *Claim) bool {
			needs := asks(c)
			if len(needs) > 0 && !slices.ContainsFunc(needs, c.Node.Fits) {
				return false
			}
			c.Node.Release(c.Held)
			return true
		}
		for before := -1; before != len(waiting); {
			before = len(waiting)
			waiting = slices.DeleteFunc(waiting, goesOn)
		}
		return true
	})
	return waiting
}
