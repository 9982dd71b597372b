package quota_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/tranche-dev/tranche/admission/quota"
)

const unlimited = quota.MaxAmount

// A twin of a Tree stores only its inputs, and answers by recomputing everything.
type twin struct {
	parent  []int // by node; -1 for a root
	quota   []quota.Quota
	charged []quota.Amount
}

func (w *twin) children(n int) []int {
	var children []int
	for i, p := range w.parent {
		if p == n {
			children = append(children, i)
		}
	}
	return children
}

// has returns the part of its quota that a node shares, and the part that it keeps.
func (w *twin) has(n int) (share, keep quota.Amount) {
	share = w.quota[n].Nominal
	for _, c := range w.children(n) {
		s, _ := w.has(c)
		share += s
	}
	if l := w.quota[n].LendingLimit; w.parent[n] >= 0 && share > l {
		return l, share - l
	}
	return share, 0
}

func (w *twin) uses(n int) quota.Amount {
	u := w.charged[n]
	for _, c := range w.children(n) {
		_, keep := w.has(c)
		u += max(0, w.uses(c)-keep)
	}
	return u
}

// available tries one amount after the other.
func (w *twin) available(n int) quota.Amount {
	before := w.charged[n]
	defer func() { w.charged[n] = before }()
	for a := quota.Amount(1); ; a++ {
		w.charged[n] = before + a
		if !w.allowed(n) {
			return a - 1
		}
	}
}

// allowed checks the limits of all nodes that the charge reaches.
func (w *twin) allowed(n int) bool {
	for {
		share, keep := w.has(n)
		u := w.uses(n)
		switch {
		case w.parent[n] < 0:
			return u <= share
		case u <= keep:
			return true
		case w.quota[n].BorrowingLimit != unlimited && u > share+keep+w.quota[n].BorrowingLimit:
			return false
		}
		n = w.parent[n]
	}
}

// level climbs from a node that would use more than it has after another charge, and returns the height of the last node.
func (w *twin) level(n int, more quota.Amount) int {
	defer func(n int, before quota.Amount) { w.charged[n] = before }(n, w.charged[n])
	w.charged[n] += more
	for {
		share, keep := w.has(n)
		if w.parent[n] < 0 || w.uses(n) <= share+keep {
			return w.height(n)
		}
		n = w.parent[n]
	}
}

func (w *twin) height(n int) int {
	height := 0
	for _, c := range w.children(n) {
		height = max(height, w.height(c)+1)
	}
	return height
}

// woods are a tree, its nodes in order, its twin, and which of the nodes are ClusterQueues.
type woods struct {
	tree   *quota.Tree
	nodes  []*quota.Node
	twin   *twin
	queues []int
}

// forest draws a tree of Cohorts with ClusterQueues at random places, and its twin.
func forest(t *rapid.T) *woods {
	tree, w := quota.NewTree(), &twin{}
	id := tree.Index.ID(quota.FlavorResource{Flavor: "a", Resource: "gpu"})
	cohorts := rapid.IntRange(1, 4).Draw(t, "cohorts")
	n := cohorts + rapid.IntRange(1, 4).Draw(t, "queues")
	var nodes []*quota.Node
	var queues []int
	for i := range n {
		node := tree.AddCohort(fmt.Sprint(i))
		if i >= cohorts {
			tree.Remove(node)
			node = tree.AddClusterQueue(fmt.Sprint(i))
			queues = append(queues, i)
		}
		nodes = append(nodes, node)
		parent := rapid.IntRange(-1, min(i, cohorts)-1).Draw(t, "parent")
		q := quota.Quota{Nominal: quota.Amount(rapid.IntRange(0, 6).Draw(t, "nominal")), BorrowingLimit: unlimited, LendingLimit: unlimited}
		if parent >= 0 {
			tree.SetParent(node, nodes[parent])
			q.BorrowingLimit = rapid.SampledFrom([]quota.Amount{unlimited, 0, 2, 5}).Draw(t, "borrowing")
			q.LendingLimit = rapid.SampledFrom([]quota.Amount{unlimited, 0, 2, 5}).Draw(t, "lending")
		}
		tree.SetQuotas(node, map[quota.ID]quota.Quota{id: q})
		w.parent, w.quota, w.charged = append(w.parent, parent), append(w.quota, q), append(w.charged, 0)
	}
	return &woods{tree, nodes, w, queues}
}

// TestTreeAgainstTwin charges and releases at random, also more than the limits allow.
func TestTreeAgainstTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := forest(t)
		tree, nodes, w, queues := f.tree, f.nodes, f.twin, f.queues
		id, known := quota.ID(0), states{}
		for range rapid.IntRange(0, 12).Draw(t, "steps") {
			i := rapid.SampledFrom(queues).Draw(t, "queue")
			if a := quota.Amount(rapid.IntRange(1, 5).Draw(t, "amount")); rapid.IntRange(0, 2).Draw(t, "charge") > 0 {
				nodes[i].Charge(quota.Usage{{ID: id, Amount: a}})
				w.charged[i] += a
			} else if w.charged[i] >= a {
				nodes[i].Release(quota.Usage{{ID: id, Amount: a}})
				w.charged[i] -= a
			}
			if i := rapid.IntRange(0, len(nodes)-1).Draw(t, "changed"); rapid.IntRange(0, 3).Draw(t, "change") == 0 {
				w.quota[i].Nominal = quota.Amount(rapid.IntRange(0, 6).Draw(t, "nominal"))
				before := tree.Version()
				tree.SetQuotas(nodes[i], map[quota.ID]quota.Quota{id: w.quota[i]})
				if tree.Version() == before {
					t.Fatal("the version stays when a quota changes")
				}
			}
			known.check(t, tree)
			compare(t, nodes, w, queues)
		}
	})
}

// states has the hash of a Tree in each of its states.
type states map[quota.State]uint64

// check compares the hash with that of the same state before.
func (s states) check(t *rapid.T, tree *quota.Tree) {
	hash := tree.Hash()
	if before, isKnown := s[tree.State()]; isKnown && before != hash {
		t.Fatal("a state has two hashes")
	}
	s[tree.State()] = hash
}

func compare(t *rapid.T, nodes []*quota.Node, w *twin, queues []int) {
	for i, n := range nodes {
		if share, keep := w.has(i); n.Subtree(0) != share+keep || n.Used(0) != w.uses(i) {
			t.Fatalf("node %d has %d and uses %d, the twin %d and %d", i, n.Subtree(0), n.Used(0), share+keep, w.uses(i))
		}
	}
	empty := &twin{parent: w.parent, quota: w.quota, charged: make([]quota.Amount, len(w.charged))}
	for _, i := range queues {
		n := nodes[i]
		if got, want := max(0, n.Available(0)), w.available(i); got != want {
			t.Fatalf("%d available to %d, the twin says %d", got, i, want)
		}
		if got, want := n.Capacity(0), empty.available(i); got != want {
			t.Fatalf("at most %d for %d, the twin says %d", got, i, want)
		}
		if got, want := n.Lendable(0), empty.available(i); got != want {
			t.Fatalf("%d lendable to %d, the twin says %d", got, i, want)
		}
		share, keep := w.has(i)
		if got, want := n.Excess(0, 1), w.charged[i]+1-share-keep; got != want {
			t.Fatalf("%d uses %d too much, the twin says %d", i, got, want)
		}
		passedOn := func() quota.Amount { return max(0, w.charged[i]-keep) }
		before := passedOn()
		w.charged[i] += 3
		if got, want := n.PassedOn(0, 3), passedOn()-before; got != want {
			t.Fatalf("%d passes on %d, the twin says %d", i, got, want)
		}
		w.charged[i] -= 3
		for more := range quota.Amount(12) {
			if got, want := n.Fits(quota.Usage{{Amount: more}}), more <= n.Available(0); more > 0 && got != want {
				t.Fatalf("%d fits in %d: %v, and %d are available", more, i, got, n.Available(0))
			}
			if got, want := n.Level(0, more), w.level(i, more); got != want {
				t.Fatalf("%d borrows %d up to level %d, the twin says %d", i, more, got, want)
			}
		}
		if got, want := n.Borrows(0, 1), w.parent[i] >= 0 && w.charged[i]+1 > share+keep; got != want {
			t.Fatalf("%d borrows %v, the twin says %v", i, got, want)
		}
	}
}

// TestReleaseReturnsHighestNode: nodes that are not below the node that Release returns have no more available than before.
func TestReleaseReturnsHighestNode(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := forest(t)
		nodes, queues := f.nodes, f.queues
		for range rapid.IntRange(1, 8).Draw(t, "charges") {
			nodes[rapid.SampledFrom(queues).Draw(t, "queue")].Charge(quota.Usage{{Amount: quota.Amount(rapid.IntRange(1, 5).Draw(t, "amount"))}})
		}
		i := rapid.SampledFrom(queues).Draw(t, "released")
		if nodes[i].Used(0) == 0 {
			return
		}
		before := map[int]quota.Amount{}
		for _, k := range queues {
			before[k] = nodes[k].Available(0)
		}
		top := nodes[i].Release(quota.Usage{{Amount: nodes[i].Used(0)}})
		for _, k := range queues {
			if nodes[k].Available(0) > before[k] && !top.IsAbove(nodes[k]) {
				t.Fatalf("%d has more, and is not below %s", k, top.Name)
			}
		}
	})
}

// TestLevelIsWhereBorrowingEnds: two levels of Cohorts, each with 4 of its own.
func TestLevelIsWhereBorrowingEnds(t *testing.T) {
	tree := quota.NewTree()
	id := tree.Index.ID(quota.FlavorResource{Flavor: "a", Resource: "gpu"})
	root, mid, q := tree.AddCohort("root"), tree.AddCohort("mid"), tree.AddClusterQueue("q")
	tree.SetParent(q, mid)
	tree.SetParent(mid, root)
	for _, n := range []*quota.Node{root, mid, q} {
		tree.SetQuotas(n, map[quota.ID]quota.Quota{id: {Nominal: 4, BorrowingLimit: unlimited, LendingLimit: unlimited}})
	}
	for a, want := range map[quota.Amount]int{4: 0, 5: 1, 8: 1, 9: 2, 12: 2, 13: 2} {
		if got := q.Level(id, a); got != want {
			t.Errorf("a charge of %d borrows up to level %d, want %d", a, got, want)
		}
	}
}

// TestFitsSparesReservations: what is reserved for later is neither available now nor fits.
func TestFitsSparesReservations(t *testing.T) {
	tree := quota.NewTree()
	id := tree.Index.ID(quota.FlavorResource{Flavor: "a", Resource: "gpu"})
	cohort, q := tree.AddCohort("c"), tree.AddClusterQueue("q")
	tree.SetParent(q, cohort)
	tree.SetQuotas(cohort, map[quota.ID]quota.Quota{id: {Nominal: 10, BorrowingLimit: unlimited, LendingLimit: unlimited}})
	reserved := quota.Usage{{ID: id, Amount: 6}}
	q.Reserve(reserved)
	for amount, want := range map[quota.Amount]bool{4: true, 5: false} {
		if got := q.Fits(quota.Usage{{ID: id, Amount: amount}}); got != want {
			t.Errorf("%d of 10 fit beside a reservation of 6: %v, want %v", amount, got, want)
		}
	}
	q.Unreserve(reserved)
	if !q.Fits(quota.Usage{{ID: id, Amount: 10}}) {
		t.Error("10 do not fit without the reservation")
	}
}

func TestHugeChargesAreTakenBackExactly(t *testing.T) {
	tree := quota.NewTree()
	q := tree.AddClusterQueue("q")
	tree.SetQuotas(q, map[quota.ID]quota.Quota{0: {Nominal: 10, BorrowingLimit: unlimited, LendingLimit: unlimited}})
	q.Charge(quota.Usage{{Amount: 3}})
	for range 100 {
		q.Charge(quota.Usage{{Amount: quota.MaxCharge}})
	}
	if got := q.Available(0); got >= 0 {
		t.Errorf("available %d", got)
	}
	for range 100 {
		q.Release(quota.Usage{{Amount: quota.MaxCharge}})
	}
	if got := q.Available(0); got != 7 {
		t.Errorf("available %d, want 7", got)
	}
}

// TestWhatIfLeavesNothingBehind nests what-ifs at random, some of which panic.
func TestWhatIfLeavesNothingBehind(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := forest(t)
		tree, nodes, queues := f.tree, f.nodes, f.queues
		change := func() {
			n := nodes[rapid.SampledFrom(queues).Draw(t, "queue")]
			a := quota.Amount(rapid.IntRange(1, 5).Draw(t, "amount"))
			n.Charge(quota.Usage{{Amount: a}})
			if rapid.Bool().Draw(t, "release") {
				n.Release(quota.Usage{{Amount: a}})
			}
		}
		change()
		before, state := tree.Hash(), tree.State()
		whatIf(t, tree, change, 3, states{})
		if tree.Hash() != before || tree.State() != state {
			t.Fatal("the hash or the state differs after WhatIf")
		}
		change()
		after := tree.Hash()
		whatIf(t, tree, change, 1, states{state: before})
		if tree.Hash() != after {
			t.Fatal("the hash differs after the second WhatIf")
		}
	})
}

func whatIf(t *rapid.T, tree *quota.Tree, change func(), depth int, known states) {
	defer func() {
		if r := recover(); r != nil && r != "planned" {
			panic(r)
		}
	}()
	want := rapid.Bool().Draw(t, "answer")
	got := tree.WhatIf(func() bool {
		for range rapid.IntRange(0, 4).Draw(t, "steps") {
			inside := tree.Hash()
			if depth > 0 && rapid.Bool().Draw(t, "nest") {
				whatIf(t, tree, change, depth-1, known)
				if tree.Hash() != inside {
					t.Fatal("the hash differs after a nested WhatIf")
				}
			}
			change()
			known.check(t, tree)
		}
		if rapid.IntRange(0, 4).Draw(t, "panics") == 0 {
			panic("planned")
		}
		return want
	})
	if got != want {
		t.Fatalf("WhatIf returned %v", got)
	}
}

func TestUsage(t *testing.T) {
	var u quota.Usage
	u.Add(3, 5)
	u.Add(1, 2)
	u.Add(3, 1)
	u.Add(2, 0)
	u.AddAll(quota.Usage{{ID: 2, Amount: 7}})
	if want := (quota.Usage{{1, 2}, {2, 7}, {3, 6}}); !u.Equal(want) {
		t.Errorf("%v, want %v", u, want)
	}
	if got, want := u.Without(quota.Usage{{1, 5}, {3, 4}}), (quota.Usage{{2, 7}, {3, 2}}); !got.Equal(want) {
		t.Errorf("without: %v, want %v", got, want)
	}
	var s quota.Sum
	s.Add(u)
	s.Add(u)
	s.Take(u)
	if got := s.Usage(); !got.Equal(u) || s.Of(2) != 7 || s.Of(9) != 0 {
		t.Errorf("sum %v", got)
	}
}

func TestIndexNumbersResources(t *testing.T) {
	x := quota.NewIndex()
	a, b := quota.FlavorResource{Flavor: "a", Resource: "gpu"}, quota.FlavorResource{Flavor: "a", Resource: "cpu"}
	for _, fr := range []quota.FlavorResource{a, b, {Flavor: "b", Resource: "gpu"}} {
		if id := x.ID(fr); x.Name(id) != fr || x.ResourceName(x.Resource(id)) != fr.Resource {
			t.Errorf("%v has number %d, whose name is %v and whose resource is %s", fr, id, x.Name(id), x.ResourceName(x.Resource(id)))
		}
	}
	if x.Len() != 3 || x.Resources() != 2 || x.ID(a) != 0 {
		t.Errorf("%d names, %d resources, and %v has number %d", x.Len(), x.Resources(), a, x.ID(a))
	}
}
