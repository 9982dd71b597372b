package safety_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/admission/safety"
)

func drawUsage(t *rapid.T, most int64) quota.Usage {
	var u quota.Usage
	for id := range quota.ID(2) {
		u.Add(id, quota.Amount(rapid.Int64Range(0, most).Draw(t, "amount")))
	}
	return u
}

// someOrderWorks is a twin of Blocked that tries every order.
func someOrderWorks(tree *quota.Tree, claims []*safety.Claim) bool {
	if len(claims) == 0 {
		return true
	}
	for i, c := range claims {
		for _, peak := range c.Peaks {
			works := tree.WhatIf(func() bool {
				if !c.Node.Fits(peak.Without(c.Held)) {
					return false
				}
				c.Node.Release(c.Held)
				return someOrderWorks(tree, slices.Delete(slices.Clone(claims), i, i+1))
			})
			if works {
				return true
			}
		}
	}
	return false
}

// drawTree makes two ClusterQueues, which may share a Cohort.
func drawTree(t *rapid.T) (*quota.Tree, []*quota.Node) {
	tree := quota.NewTree()
	for _, f := range []kueue.ResourceFlavorReference{"a", "b"} {
		tree.Index.ID(quota.FlavorResource{Flavor: f, Resource: "gpu"})
	}
	cohort := tree.AddCohort("c")
	queues := []*quota.Node{tree.AddClusterQueue("p"), tree.AddClusterQueue("q")}
	for _, q := range queues {
		limits := rapid.SampledFrom([]quota.Amount{0, 3, quota.MaxAmount})
		quotas := map[quota.ID]quota.Quota{}
		for id := range quota.ID(2) {
			quotas[id] = quota.Quota{
				Nominal:        quota.Amount(rapid.IntRange(0, 8).Draw(t, "nominal")),
				BorrowingLimit: limits.Draw(t, "borrowing"), LendingLimit: limits.Draw(t, "lending"),
			}
		}
		tree.SetQuotas(q, quotas)
		if rapid.Bool().Draw(t, "shares") {
			tree.SetParent(q, cohort)
		}
	}
	return tree, queues
}

func TestBlockedAgainstEveryOrder(t *testing.T) {
	safe, unsafe := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		tree, queues := drawTree(t)
		var claims []*safety.Claim
		for range rapid.IntRange(0, 5).Draw(t, "claims") {
			c := &safety.Claim{Node: rapid.SampledFrom(queues).Draw(t, "queue"), Held: drawUsage(t, 4)}
			for range rapid.IntRange(1, 2).Draw(t, "peaks") {
				peak := drawUsage(t, 6)
				peak.AddAll(c.Held)
				c.Peaks = append(c.Peaks, peak)
			}
			claims = append(claims, c)
		}
		before := tree.Hash()
		blocked := safety.Blocked(tree, claims)
		if tree.Hash() != before {
			t.Fatal("Blocked changes the tree")
		}
		want := tree.WhatIf(func() bool {
			for _, c := range claims {
				c.Node.Charge(c.Held)
			}
			return someOrderWorks(tree, claims)
		})
		if got := len(blocked) == 0; got != want {
			t.Fatalf("safe %v, some order works %v: claims %+v", got, want, claims)
		}
		if want {
			safe++
		} else {
			unsafe++
		}
	})
	if safe == 0 || unsafe == 0 {
		t.Errorf("%d safe and %d unsafe states: the test tells nothing", safe, unsafe)
	}
}
