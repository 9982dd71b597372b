package fairshare

import (
	"cmp"
	"math"

	"github.com/tranche-dev/tranche/admission/quota"
)

// A Share is the dominant resource share of a ClusterQueue or Cohort: the usage of its subtree beyond its own quota, as a part of the capacity
// that the tree of its parent could lend; the largest part among all resources; divided by the weight of the node. The zero Share is that of a
// node that borrows nothing.
type Share struct {
	// ratio is in thousandths and not divided by the weight; weighted is divided by it, and not used if the share is infinite.
	ratio, weighted float64
	borrows         bool
	// infinite is true for a node that borrows and has no weight.
	infinite bool
}

// Compare orders by share: the lower one is admitted first, and preempted last. An infinite share is above all others; infinite ones are compared
// by the shares that a weight of 1 would give.
func (s Share) Compare(other Share) int {
	switch {
	case s.infinite && other.infinite:
		return cmp.Compare(s.ratio, other.ratio)
	case s.infinite:
		return 1
	case other.infinite:
		return -1
	}
	return cmp.Compare(s.weighted, other.weighted)
}

// Weighted returns the share in thousandths, rounded up, as the field weightedShare of a status has it. An infinite share is the largest
// number.
func (s Share) Weighted() int64 {
	w := math.Ceil(s.weighted)
	if s.infinite || w >= math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(w)
}

// Exact returns the share in thousandths, not rounded, and NaN if it is infinite.
func (s Share) Exact() float64 {
	if s.infinite {
		return math.NaN()
	}
	return s.weighted
}

// A Meter measures shares in one Tree. It reuses memory between measurements.
type Meter struct {
	tree *quota.Tree
	// excess is by resource.
	excess []quota.Amount
}

// NewMeter returns a Meter for a Tree.
func NewMeter(tree *quota.Tree) *Meter { return &Meter{tree: tree} }

// Share returns the share that a node would have after it is charged more. A node without a parent borrows nothing.
func (m *Meter) Share(n *quota.Node, more quota.Usage) Share {
	parent := n.Parent()
	if parent == nil {
		return Share{}
	}
	if missing := m.tree.Index.Resources() - len(m.excess); missing > 0 {
		m.excess = append(m.excess, make([]quota.Amount, missing)...)
	}
	clear(m.excess)
	var s Share
	for id := quota.ID(0); int(id) < m.tree.Index.Len(); id++ {
		var extra quota.Amount
		if len(more) > 0 && more[0].ID == id {
			extra, more = more[0].Amount, more[1:]
		}
		if over := n.Excess(id, extra); over > 0 {
			s.borrows = true
			r := m.tree.Index.Resource(id)
			m.excess[r] = m.excess[r].Plus(over)
		}
	}
	if !s.borrows {
		return s
	}
	for r, over := range m.excess {
		if lendable := parent.Lendable(r); over > 0 && lendable > 0 {
			s.ratio = max(s.ratio, float64(over)*1000/float64(lendable))
		}
	}
	switch {
	case s.ratio == 0:
	case n.Weight == 0:
		s.infinite = true
	default:
		s.weighted = s.ratio / n.Weight
	}
	return s
}
