package safety

import "github.com/tranche-dev/tranche/admission/quota"

// A Claim is what a JobSet holds and what it may come to hold.
type Claim struct {
	// JobSet is a name for messages.
	JobSet string
	// Node is its ClusterQueue, in a Tree that has the limits and no charges.
	Node *quota.Node
	Held quota.Usage
	// Peaks are alternatives: the most that the JobSet may hold at once, Held included. Without any it can never finish.
	Peaks []quota.Usage
}

// canFinish tells whether one of the peaks can be had.
func (c *Claim) canFinish() bool {
	for _, peak := range c.Peaks {
		if c.Node.Fits(peak.Without(c.Held)) {
			return true
		}
	}
	return false
}

// Blocked returns the claims that cannot all be met, in whatever order JobSets finish. The state is safe if there are none. The Tree
// is that of the claims' nodes, and is left as it is.
//
// What is free is the quota less what the claims hold: all that others hold is given back, since they ask for nothing more. Whoever
// can finish only adds to what is free when it does, so that the order in which they are found does not matter.
func Blocked(tree *quota.Tree, claims []*Claim) []*Claim {
	var blocked []*Claim
	tree.WhatIf(func() bool {
		for _, c := range claims {
			c.Node.Charge(c.Held)
		}
		blocked = finish(claims)
		return true
	})
	return blocked
}

// finish lets all finish that can, and returns the others.
func finish(claims []*Claim) []*Claim {
	waiting := claims
	for {
		var blocked []*Claim
		for _, c := range waiting {
			if !c.canFinish() {
				blocked = append(blocked, c)
				continue
			}
			c.Node.Release(c.Held)
		}
		if len(blocked) == 0 || len(blocked) == len(waiting) {
			return blocked
		}
		waiting = blocked
	}
}
