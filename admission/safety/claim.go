package safety

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/admission/quota"
)

// A Claim is what a JobSet holds and what it may come to hold. Nothing of it may change while a Bank has it.
type Claim struct {
	// JobSet is a name for messages.
	JobSet string
	// Owner is for the owner of the claim; this package does not read it.
	Owner types.UID
	// Node is its ClusterQueue, in the Tree of the Bank.
	Node *quota.Node
	Held quota.Usage
	// Peaks are alternatives: the most that the JobSet may hold at once, Held included. Without any it can never finish.
	Peaks  []quota.Usage
	Regard Regard

	// pool has the claim, or is nil.
	pool *pool
	// needs are the peaks without what is held, and without those that ask for as much as another one and more.
	needs []quota.Usage
	// isGone tells that the claim does not count in the question that is being answered.
	isGone bool
}

// A Regard says what is thought of a claim.
type Regard int

const (
	// Guarded claims must be able to finish.
	Guarded Regard = iota
	// Halted claims hold what they have and ask for nothing until somebody lets them go on, as in a queue that is stopped. Others must be
	// able to finish without what they hold.
	Halted
	// Unguarded claims are of JobSets that take what they can get. Nobody answers for them, but others are let in only if they, too, can
	// finish.
	Unguarded
)

// prepare derives needs.
func (c *Claim) prepare() {
	c.needs = c.needs[:0]
	for _, peak := range c.Peaks {
		need := peak.Without(c.Held)
		asksForMore := func(other quota.Usage) bool { return len(other.Without(need)) == 0 }
		if slices.ContainsFunc(c.needs, asksForMore) {
			continue
		}
		c.needs = slices.DeleteFunc(c.needs, func(other quota.Usage) bool { return len(need.Without(other)) == 0 })
		c.needs = append(c.needs, need)
	}
}

// canFinish tells whether one of the peaks can be had.
func (c *Claim) canFinish() bool {
	return slices.ContainsFunc(c.needs, c.Node.Fits)
}
