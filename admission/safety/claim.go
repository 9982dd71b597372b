package safety

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/admission/quota"
)

// A Claim is what a JobSet holds and what it may come to hold. It must not change while a Bank has it.
type Claim struct {
	// OwnerUID is for the caller; this package does not read it.
	OwnerUID types.UID
	// Node is its ClusterQueue, in the Tree of the Bank.
	Node *quota.Node
	Held quota.Usage
	// Peaks are alternatives: the most that the JobSet may hold at once, Held included. Without any it can never finish.
	Peaks []quota.Usage
	Mode  Mode

	// pool has the claim, or is nil.
	pool *pool
	// needs are the peaks without what is held. Peaks that ask for at least as much as another one are left out.
	needs []quota.Usage
	// needIDs has the resources of each of the needs, in their order, as a key. See keys.
	needIDs []string
	// excluded is true if the claim does not count in the current question.
	excluded bool
}

// A Mode is how a claim is treated.
type Mode int

const (
	// Guarded claims must be able to finish.
	Guarded Mode = iota
	// Halted claims keep what they hold and ask for nothing until a user or an administrator lets them continue, as in a queue that is stopped.
	// Others must be able to finish without that quota.
	Halted
	// Unguarded claims are of JobSets that use what they can get. They are not protected, but other claims are admitted only if these, too, can
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
	c.needIDs = nil
}

// canFinish reports whether one of the peaks is available.
func (c *Claim) canFinish() bool {
	return slices.ContainsFunc(c.needs, c.Node.Fits)
}

// holdsAnyOf reports whether the claim holds some of a needed resource.
func (c *Claim) holdsAnyOf(need quota.Usage) bool {
	return slices.ContainsFunc(need, func(n quota.Charge) bool { return c.Held.Of(n.ID) > 0 })
}

// Outstanding returns the most that the JobSet may come to hold of each flavor and resource, beside what it holds and what is reserved for it.
func (c *Claim) Outstanding(reserved quota.Usage) quota.Usage {
	var most quota.Usage
	for _, peak := range c.Peaks {
		for _, more := range peak.Without(c.Held).Without(reserved) {
			most.Add(more.ID, max(0, more.Amount.Minus(most.Of(more.ID))))
		}
	}
	return most
}

// HasQuotaOf reports whether two claims, which may be nil, hold the same and have the same peaks.
func (c *Claim) HasQuotaOf(other *Claim) bool {
	if c == nil || other == nil {
		return c == other
	}
	return c.Held.Equal(other.Held) && slices.EqualFunc(c.Peaks, other.Peaks, quota.Usage.Equal)
}

// ShrinksTo reports whether other JobSets may be better off after a claim, or nothing if that is nil, has replaced this one. They are not if the JobSet holds
// more of its expected peak.
func (c *Claim) ShrinksTo(after *Claim) bool {
	if after == nil || c.Mode != after.Mode {
		return true
	}
	less := len(c.Held.Without(after.Held)) > 0
	return less || c.Held.Equal(after.Held) && !slices.EqualFunc(c.Peaks, after.Peaks, quota.Usage.Equal)
}
