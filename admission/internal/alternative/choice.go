// Package alternative chooses one of several amounts of quota, of which one is enough.
package alternative

import "github.com/tranche-dev/tranche/admission/quota"

// A Choice is a choice among some usages of the quota of one ClusterQueue.
type Choice struct {
	node *quota.Node
	// options are the usages, by preference, and chosen is the index of one of them, or none.
	options []quota.Usage
	chosen  int
}

const none = -1

// New returns a Choice in which nothing is chosen yet.
func New(node *quota.Node, options []quota.Usage) Choice {
	return Choice{node: node, options: options, chosen: none}
}

// IsEmpty reports whether there are no options.
func (c *Choice) IsEmpty() bool { return len(c.options) == 0 }

// IsFirst reports whether the first option is chosen.
func (c *Choice) IsFirst() bool { return c.chosen == 0 }

// Usage returns the chosen usage, or nothing.
func (c *Choice) Usage() quota.Usage {
	if c.chosen == none {
		return nil
	}
	return c.options[c.chosen]
}

// Take charges the first option from an index on that fits, and reports whether there is one.
func (c *Choice) Take(from int) bool {
	for i := from; i < len(c.options); i++ {
		if c.node.Fits(c.options[i]) {
			c.chosen = i
			c.node.Charge(c.options[i])
			return true
		}
	}
	c.chosen = none
	return false
}

// GiveWay takes a later option with which an option of another Choice fits, and reports whether there is one.
func (c *Choice) GiveWay(other *Choice) bool {
	before := c.chosen
	if before == none || before == len(c.options)-1 {
		return false
	}
	c.node.Release(c.Usage())
	for c.Take(c.chosen + 1) {
		if other.Take(0) {
			return true
		}
		c.node.Release(c.Usage())
	}
	c.chosen = before
	c.node.Charge(c.Usage())
	return false
}
