package fairshare_test

import (
	"cmp"
	"math"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/tranche-dev/tranche/admission/fairshare"
	"github.com/tranche-dev/tranche/admission/quota"
)

const unlimited = quota.MaxAmount

var names = []quota.FlavorResource{{Flavor: "a", Resource: "gpu"}, {Flavor: "b", Resource: "gpu"}, {Flavor: "a", Resource: "cpu"}}

// cohort returns a ClusterQueue with these nominal quotas that may borrow from an equal sibling.
func cohort(weight float64, nominal ...quota.Amount) (*quota.Tree, *quota.Node) {
	tree := quota.NewTree()
	quotas := map[quota.ID]quota.Quota{}
	for i, n := range nominal {
		quotas[tree.Index.ID(names[i])] = quota.Quota{Nominal: n, BorrowingLimit: unlimited, LendingLimit: unlimited}
	}
	root, q, sibling := tree.AddCohort("root"), tree.AddClusterQueue("q"), tree.AddClusterQueue("sibling")
	for _, n := range []*quota.Node{q, sibling} {
		tree.SetParent(n, root)
		tree.SetQuotas(n, quotas)
	}
	q.Weight = weight
	return tree, q
}

func TestShare(t *testing.T) {
	for name, tc := range map[string]struct {
		weight       float64
		used, more   quota.Usage
		wantWeighted int64
		wantBorrows  bool
	}{
		"within quota":               {1, quota.Usage{{ID: 0, Amount: 10}}, nil, 0, false},
		"borrows 5 of 40":            {1, quota.Usage{{ID: 0, Amount: 15}}, nil, 125, true},
		"with more":                  {1, quota.Usage{{ID: 0, Amount: 8}}, quota.Usage{{ID: 0, Amount: 7}}, 125, true},
		"flavors add up":             {1, quota.Usage{{ID: 0, Amount: 15}, {ID: 1, Amount: 11}}, nil, 150, true},
		"one does not pay the other": {1, quota.Usage{{ID: 0, Amount: 15}}, quota.Usage{{ID: 1, Amount: 2}}, 125, true},
		"the largest resource":       {1, quota.Usage{{ID: 0, Amount: 15}, {ID: 2, Amount: 200}}, nil, 500, true},
		"heavy":                      {3, quota.Usage{{ID: 0, Amount: 15}}, nil, 42, true},
		"no weight, borrows":         {0, quota.Usage{{ID: 0, Amount: 15}}, nil, math.MaxInt64, true},
		"no weight, borrows nothing": {0, quota.Usage{{ID: 0, Amount: 10}}, nil, 0, false},
		"beyond any number":          {1e-300, quota.Usage{{ID: 0, Amount: 15}}, nil, math.MaxInt64, true},
	} {
		t.Run(name, func(t *testing.T) {
			tree, q := cohort(tc.weight, 10, 10, 100)
			q.Charge(tc.used)
			got := fairshare.NewMeter(tree).Share(q, tc.more)
			if got.Weighted() != tc.wantWeighted || got.Borrows() != tc.wantBorrows {
				t.Errorf("weighted share %d, borrows %v, want %d, %v", got.Weighted(), got.Borrows(), tc.wantWeighted, tc.wantBorrows)
			}
		})
	}
}

// TestShareWithoutWeight: above all others, and ordered by usage among themselves.
func TestShareWithoutWeight(t *testing.T) {
	share := func(weight float64, used quota.Amount) fairshare.Share {
		tree, q := cohort(weight, 10)
		q.Charge(quota.Usage{{ID: 0, Amount: used}})
		return fairshare.NewMeter(tree).Share(q, nil)
	}
	ascending := []fairshare.Share{share(0, 10), share(1e-6, 11), share(1e-6, 20), share(0, 11), share(0, 12)}
	for i, a := range ascending {
		for k, b := range ascending {
			if got, want := a.Compare(b), map[bool]int{i < k: -1, i > k: 1}[true]; got != want {
				t.Errorf("share %d compared with %d: %d, want %d", i, k, got, want)
			}
		}
	}
}

func TestShareWithoutParent(t *testing.T) {
	tree := quota.NewTree()
	tree.Index.ID(names[0])
	q := tree.AddClusterQueue("q")
	q.Charge(quota.Usage{{ID: 0, Amount: 5}})
	if got := fairshare.NewMeter(tree).Share(q, nil); got.Borrows() || got.Weighted() != 0 {
		t.Errorf("%+v", got)
	}
}

// part is a share by its definition (KEP-1714): of the resource with the largest part, what a node borrows of all that its parent can lend, divided
// by the weight. A node that borrows and has no weight comes after all that have one.
type part struct {
	hasNoWeight bool
	ratio       float64
}

func partOf(tree *quota.Tree, n *quota.Node) part {
	if n.Parent() == nil {
		return part{}
	}
	ratio := 0.0
	for _, resource := range []corev1.ResourceName{"gpu", "cpu"} {
		var borrowed, lendable quota.Amount
		for id := range quota.ID(len(names)) {
			if tree.Index.Name(id).Resource == resource {
				borrowed += max(0, n.Used(id)-n.Subtree(id))
				lendable += n.Parent().Capacity(id)
			}
		}
		if lendable > 0 {
			ratio = max(ratio, float64(borrowed)*1000/float64(lendable))
		}
	}
	switch {
	case ratio == 0:
		return part{}
	case n.Weight == 0:
		return part{true, ratio}
	}
	return part{false, ratio / n.Weight}
}

func (p part) compare(o part) int {
	switch {
	case p.hasNoWeight == o.hasNoWeight:
		return cmp.Compare(p.ratio, o.ratio)
	case p.hasNoWeight:
		return 1
	}
	return -1
}

// TestSharesAgainstDefinition compares the order of all nodes of random trees.
func TestSharesAgainstDefinition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tree, nodes, queues := forest(t)
		for range rapid.IntRange(1, 8).Draw(t, "charges") {
			rapid.SampledFrom(queues).Draw(t, "queue").Charge(usage(t))
		}
		m := fairshare.NewMeter(tree)
		for _, a := range nodes {
			for _, b := range nodes {
				if got, want := m.Share(a, nil).Compare(m.Share(b, nil)), partOf(tree, a).compare(partOf(tree, b)); got != want {
					t.Fatalf("the share of %s compared with that of %s: %d, want %d", a.Name, b.Name, got, want)
				}
			}
		}
	})
}

// TestShareIsMonotone: more usage gives no lower share, at its node and above.
func TestShareIsMonotone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tree, nodes, queues := forest(t)
		m := fairshare.NewMeter(tree)
		q := rapid.SampledFrom(queues).Draw(t, "queue")
		before := map[*quota.Node]fairshare.Share{}
		for _, n := range nodes {
			before[n] = m.Share(n, nil)
		}
		q.Charge(usage(t))
		for _, n := range nodes {
			switch c := m.Share(n, nil).Compare(before[n]); {
			case c < 0:
				t.Fatalf("the share of %s has become less", n.Name)
			case c != 0 && !n.IsAbove(q):
				t.Fatalf("the share of %s has changed", n.Name)
			}
		}
	})
}

func TestShareAllocatesNothing(t *testing.T) {
	tree, q := cohort(1, 10, 10, 100)
	q.Charge(quota.Usage{{ID: 0, Amount: 15}})
	m := fairshare.NewMeter(tree)
	more := quota.Usage{{ID: 1, Amount: 2}}
	if n := testing.AllocsPerRun(100, func() { m.Share(q, more) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
