package safety

import (
	"slices"

	"github.com/tranche-dev/tranche/admission/quota"
)

// starters know whether any of many claims can finish now, without asking each of them: of the claims of a ClusterQueue that need the same one resource, the one
// that needs least can finish first.
type starters map[starterKey]*starterGroup

// A starterKey is a ClusterQueue and the resources that are needed there, in their order.
type starterKey struct {
	node *quota.Node
	ids  string
}

// A starterGroup has the needs with the same key, as alternatives.
type starterGroup struct {
	// least is the least amount of each resource that any of them needs.
	least quota.Usage
	needs []quota.Usage
}

func newStarters(claims []*Claim) starters {
	s := starters{}
	for _, c := range claims {
		s.add(c)
	}
	return s
}

// add adds a claim. A Halted claim never finishes by itself.
func (s starters) add(c *Claim) {
	if c.Mode == Halted {
		return
	}
	keys := c.keys()
	for i, need := range c.needs {
		key := starterKey{node: c.Node, ids: keys[i]}
		g := s[key]
		if g == nil {
			s[key] = &starterGroup{least: need.Clone(), needs: []quota.Usage{need}}
			continue
		}
		for i := range need {
			g.least[i].Amount = min(g.least[i].Amount, need[i].Amount)
		}
		g.needs = append(g.needs, need)
	}
}

// keys returns the resources of each of the needs, as parts of starterKeys. They are derived once: a search adds the same claims several times.
func (c *Claim) keys() []string {
	if c.needIDs == nil {
		for _, need := range c.needs {
			var ids []rune
			for _, entry := range need {
				ids = append(ids, rune(entry.ID))
			}
			c.needIDs = append(c.needIDs, string(ids))
		}
	}
	return c.needIDs
}

// any reports whether one of the claims can finish.
func (s starters) any() bool {
	for key, g := range s {
		if key.node.Fits(g.least) && (len(g.least) <= 1 || slices.ContainsFunc(g.needs, key.node.Fits)) {
			return true
		}
	}
	return false
}
