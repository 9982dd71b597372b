package quota

import (
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
)

// A Tree has the limits of ClusterQueues and what is charged to them. A ClusterQueue that it does not know has no quota but may be
// charged: what was admitted counts even if its ClusterQueue is gone.
type Tree struct {
	nodes map[string]*node
	// undo has a function for each change since the outermost WhatIf began.
	undo   []func()
	nested int
}

type node struct {
	limits        map[FlavorResource]Amount
	charged, kept Tally
}

// NewTree returns an empty Tree.
func NewTree() *Tree { return &Tree{nodes: map[string]*node{}} }

func (t *Tree) node(clusterQueue string) *node {
	n := t.nodes[clusterQueue]
	if n == nil {
		n = &node{}
		t.nodes[clusterQueue] = n
	}
	return n
}

// peek returns a node to read, which is empty if there is none.
func (t *Tree) peek(clusterQueue string) *node {
	if n := t.nodes[clusterQueue]; n != nil {
		return n
	}
	return &node{}
}

// SetLimits replaces the nominal quota of a ClusterQueue.
func (t *Tree) SetLimits(clusterQueue string, limits map[FlavorResource]Amount) {
	n := t.node(clusterQueue)
	before := n.limits
	n.limits = maps.Clone(limits)
	t.remember(func() { n.limits = before })
}

// Charge adds to what a ClusterQueue's stages use. It does not ask whether that fits.
func (t *Tree) Charge(clusterQueue string, u Usage) {
	n := t.node(clusterQueue)
	n.charged.Add(u)
	t.remember(func() { n.charged.Take(u) })
}

// Release takes away what was charged.
func (t *Tree) Release(clusterQueue string, u Usage) {
	n := t.node(clusterQueue)
	n.charged.Take(u)
	t.remember(func() { n.charged.Add(u) })
}

// Keep sets quota aside for JobSets that already run, without charging it.
func (t *Tree) Keep(clusterQueue string, u Usage) {
	n := t.node(clusterQueue)
	n.kept.Add(u)
	t.remember(func() { n.kept.Take(u) })
}

// Unkeep takes away what was kept.
func (t *Tree) Unkeep(clusterQueue string, u Usage) {
	n := t.node(clusterQueue)
	n.kept.Take(u)
	t.remember(func() { n.kept.Add(u) })
}

// Charged returns what is charged.
func (t *Tree) Charged(clusterQueue string, fr FlavorResource) Amount {
	return t.peek(clusterQueue).charged.Of(fr)
}

// ChargedTally returns all that is charged, to read.
func (t *Tree) ChargedTally(clusterQueue string) *Tally { return &t.peek(clusterQueue).charged }

// KeptTally returns all that is kept, to read.
func (t *Tree) KeptTally(clusterQueue string) *Tally { return &t.peek(clusterQueue).kept }

// Kept returns what is kept.
func (t *Tree) Kept(clusterQueue string, fr FlavorResource) Amount {
	return t.peek(clusterQueue).kept.Of(fr)
}

// Limit returns the most that may be charged.
func (t *Tree) Limit(clusterQueue string, fr FlavorResource) Amount {
	return t.peek(clusterQueue).limits[fr]
}

// Available returns what is neither charged nor kept. It is negative where more is charged than the limit.
func (t *Tree) Available(clusterQueue string, fr FlavorResource) Amount {
	n := t.peek(clusterQueue)
	return n.limits[fr].Minus(n.charged.Of(fr)).Minus(n.kept.Of(fr))
}

// Fits tells whether all of a usage is available. What asks for nothing fits even where more is charged than the limit.
func (t *Tree) Fits(clusterQueue string, u Usage) bool {
	for fr, a := range u {
		if a > 0 && a > t.Available(clusterQueue, fr) {
			return false
		}
	}
	return true
}

// WhatIf returns what f returns, and takes back all changes that f makes to the Tree, also if f panics. It can be nested.
func (t *Tree) WhatIf(f func() bool) bool {
	mark := len(t.undo)
	t.nested++
	defer func() {
		t.nested--
		for i := len(t.undo) - 1; i >= mark; i-- {
			t.undo[i]()
		}
		t.undo = slices.Delete(t.undo, mark, len(t.undo))
	}()
	return f()
}

func (t *Tree) remember(undo func()) {
	if t.nested > 0 {
		t.undo = append(t.undo, undo)
	}
}

// Hash depends on all that the Tree can answer, and on nothing else.
func (t *Tree) Hash() uint64 {
	h := fnv.New64a()
	for _, name := range slices.Sorted(maps.Keys(t.nodes)) {
		n := t.nodes[name]
		known := Usage{}
		maps.Copy(known, n.limits)
		for _, tally := range []*Tally{&n.charged, &n.kept} {
			for fr := range tally.totals {
				known[fr] += 0
			}
		}
		for fr := range known.Sorted() {
			line := []any{name, fr, n.limits[fr], n.charged.totals[fr], n.kept.totals[fr]}
			if n.limits[fr] != 0 || n.charged.totals[fr] != (total{}) || n.kept.totals[fr] != (total{}) {
				_, _ = fmt.Fprintln(h, line...)
			}
		}
	}
	return h.Sum64()
}
