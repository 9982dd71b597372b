package safety

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quota"
)

// newCohort returns ClusterQueues that share so much of each of two flavors.
func newCohort(queues int, nominal quota.Amount) (*quota.Tree, []*quota.Node) {
	tree := quota.NewTree()
	cohort := tree.AddCohort("c")
	limits := map[quota.ID]quota.Quota{}
	for _, flavor := range []kueue.ResourceFlavorReference{"a", "b"} {
		id := tree.Index.ID(quota.FlavorResource{Flavor: flavor, Resource: "gpu"})
		limits[id] = quota.Quota{Nominal: nominal, BorrowingLimit: quota.MaxAmount, LendingLimit: quota.MaxAmount}
	}
	tree.SetQuotas(cohort, limits)
	var nodes []*quota.Node
	for i := range queues {
		nodes = append(nodes, tree.AddClusterQueue(fmt.Sprintf("q%d", i)))
		tree.SetParent(nodes[i], cohort)
	}
	return tree, nodes
}

func newClaim(n *quota.Node, held quota.ID, amount quota.Amount, needed quota.ID, need quota.Amount) *Claim {
	c := &Claim{Node: n, Held: quota.Usage{{ID: held, Amount: amount}}}
	peak := c.Held.Clone()
	peak.Add(needed, need)
	c.Peaks = []quota.Usage{peak}
	c.prepare()
	c.Node.Charge(c.Held)
	return c
}

// TestBringForward: a claim needs what only the last of twenty releases, so that one of them has to finish before it.
func TestBringForward(t *testing.T) {
	tree, queues := newCohort(2, 100)
	var finished []*Claim
	for range 20 {
		finished = append(finished, newClaim(queues[0], 0, 4, 1, 1))
	}
	last := newClaim(queues[1], 1, 60, 1, 1)
	finished = append(finished, last)
	next := newClaim(queues[0], 0, 1, 1, 50)
	if n := bringForward(tree, finished, next); n != 1 || finished[0] != last {
		t.Errorf("%d claims come first", n)
	}
	if n := bringForward(tree, finished[:longWay], next); n != longWay {
		t.Errorf("of few claims, %d come first", n)
	}
}

// TestBringForwardKeepsAnOrder: whatever comes first, all can still finish one after the other, and the next claim after the first of them.
func TestBringForwardKeepsAnOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tree, queues := newCohort(3, quota.Amount(rapid.IntRange(20, 90).Draw(t, "nominal")))
		id := rapid.SampledFrom([]quota.ID{0, 1})
		draw := func(need quota.Amount) *Claim {
			n := rapid.SampledFrom(queues).Draw(t, "queue")
			return newClaim(n, id.Draw(t, "held"), quota.Amount(rapid.IntRange(0, 9).Draw(t, "amount")), id.Draw(t, "needed"), need)
		}
		waiting := []*Claim{draw(0)} // one can always finish
		for range rapid.IntRange(longWay, 3*longWay).Draw(t, "claims") {
			waiting = append(waiting, draw(quota.Amount(rapid.IntRange(0, 60).Draw(t, "need"))))
		}
		done, _, _ := tryToFinish(tree, waiting, nil)
		last := len(done) - 1
		finished, next := slices.Clone(done[:last]), done[last]
		state := tree.Hash()
		n := bringForward(tree, finished, next)
		if tree.Hash() != state {
			t.Fatal("the charges have changed")
		}
		for _, c := range done[:last] {
			if !slices.Contains(finished, c) {
				t.Fatal("a claim is missing")
			}
		}
		tree.WhatIf(func() bool {
			for i, c := range slices.Insert(finished, n, next) {
				if !c.canFinish() {
					t.Fatalf("the claim at %d cannot finish, next is at %d", i, n)
				}
				c.Node.Release(c.Held)
			}
			return true
		})
	})
}
