package flavor_test

import (
	"slices"
	"testing"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/flavor"
	"github.com/tranche-dev/tranche/admission/quota"
)

// TestWalk: a ClusterQueue has 4 of flavor 0 and 4 of flavor 1, and may borrow 4 more of each from its Cohort.
func TestWalk(t *testing.T) {
	preference := kueue.PreemptionOverBorrowing
	next, stop := kueue.TryNextFlavor, kueue.MayStopSearch
	for name, tc := range map[string]struct {
		policy  *kueue.FlavorFungibility
		charged [2]quota.Amount
		// preempt is how a missing amount of a flavor can be obtained.
		preempt     map[quota.ID]flavor.Verdict
		requests    []quota.Amount
		want        flavor.Choice
		wantVerdict flavor.Verdict
	}{
		"first that fits":            {requests: []quota.Amount{4}, want: flavor.Choice{0}, wantVerdict: flavor.Verdict{Mode: flavor.Fit}},
		"borrow at once":             {requests: []quota.Amount{5}, want: flavor.Choice{0}, wantVerdict: flavor.Verdict{Mode: flavor.Fit, Level: 1}},
		"next before borrowing":      {policy: &kueue.FlavorFungibility{WhenCanBorrow: next}, charged: [2]quota.Amount{2, 0}, requests: []quota.Amount{3}, want: flavor.Choice{1}, wantVerdict: flavor.Verdict{Mode: flavor.Fit}},
		"all borrow: the first":      {policy: &kueue.FlavorFungibility{WhenCanBorrow: next}, requests: []quota.Amount{5}, want: flavor.Choice{0}, wantVerdict: flavor.Verdict{Mode: flavor.Fit, Level: 1}},
		"second where first is full": {charged: [2]quota.Amount{8, 0}, requests: []quota.Amount{3}, want: flavor.Choice{1}, wantVerdict: flavor.Verdict{Mode: flavor.Fit}},
		"nothing fits":               {charged: [2]quota.Amount{8, 8}, requests: []quota.Amount{3}, want: flavor.Choice{0}, wantVerdict: flavor.Verdict{Mode: flavor.NoFit}},
		"next before preempting": {
			charged: [2]quota.Amount{8, 0}, preempt: map[quota.ID]flavor.Verdict{0: {Mode: flavor.Reclaim}},
			requests: []quota.Amount{3}, want: flavor.Choice{1}, wantVerdict: flavor.Verdict{Mode: flavor.Fit},
		},
		"preempt before next": {
			policy: &kueue.FlavorFungibility{WhenCanPreempt: stop}, charged: [2]quota.Amount{8, 0}, preempt: map[quota.ID]flavor.Verdict{0: {Mode: flavor.Reclaim}},
			requests: []quota.Amount{3}, want: flavor.Choice{0}, wantVerdict: flavor.Verdict{Mode: flavor.Reclaim},
		},
		"no victim: next": {
			policy: &kueue.FlavorFungibility{WhenCanPreempt: stop}, charged: [2]quota.Amount{8, 0}, preempt: map[quota.ID]flavor.Verdict{0: {Mode: flavor.NoCandidates}},
			requests: []quota.Amount{3}, want: flavor.Choice{1}, wantVerdict: flavor.Verdict{Mode: flavor.Fit},
		},
		"reclaim is better than preempt": {
			charged: [2]quota.Amount{8, 8}, preempt: map[quota.ID]flavor.Verdict{0: {Mode: flavor.Preempt}, 1: {Mode: flavor.Reclaim}},
			requests: []quota.Amount{3}, want: flavor.Choice{1}, wantVerdict: flavor.Verdict{Mode: flavor.Reclaim},
		},
		"borrowing over preemption": {
			policy: &kueue.FlavorFungibility{WhenCanBorrow: next}, charged: [2]quota.Amount{8, 4}, preempt: map[quota.ID]flavor.Verdict{0: {Mode: flavor.Reclaim}},
			requests: []quota.Amount{3}, want: flavor.Choice{1}, wantVerdict: flavor.Verdict{Mode: flavor.Fit, Level: 1},
		},
		"preemption over borrowing": {
			policy:  &kueue.FlavorFungibility{WhenCanBorrow: next, WhenCanPreempt: next, Preference: &preference},
			charged: [2]quota.Amount{8, 4}, preempt: map[quota.ID]flavor.Verdict{0: {Mode: flavor.Reclaim}},
			requests: []quota.Amount{3}, want: flavor.Choice{0}, wantVerdict: flavor.Verdict{Mode: flavor.Reclaim},
		},
		"items before count": {requests: []quota.Amount{5, 5}, want: flavor.Choice{0, 1}, wantVerdict: flavor.Verdict{Mode: flavor.Fit, Level: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			tree := quota.NewTree()
			q, cohort := tree.AddClusterQueue("q"), tree.AddCohort("c")
			tree.SetParent(q, cohort)
			own := quota.Quota{Nominal: 4, BorrowingLimit: quota.MaxAmount, LendingLimit: quota.MaxAmount}
			for _, f := range []kueue.ResourceFlavorReference{"a", "b"} {
				tree.Index.ID(quota.FlavorResource{Flavor: f, Resource: "gpu"})
			}
			tree.SetQuotas(q, map[quota.ID]quota.Quota{0: own, 1: own})
			tree.SetQuotas(cohort, map[quota.ID]quota.Quota{0: own, 1: own})
			for id, a := range tc.charged {
				q.Charge(quota.Usage{{ID: quota.ID(id), Amount: a}})
			}
			walk := &flavor.Walk{Node: q, Fungibility: flavor.NewFungibility(tc.policy), Preemption: func(id quota.ID, _ quota.Amount) flavor.Verdict {
				return tc.preempt[id]
			}}
			var items []flavor.Item
			for _, a := range tc.requests {
				items = append(items, flavor.Item{Options: []flavor.Option{
					{Flavor: "a", Usage: quota.Usage{{ID: 0, Amount: a}}}, {Flavor: "b", Usage: quota.Usage{{ID: 1, Amount: a}}},
				}})
			}
			choice := make(flavor.Choice, len(items))
			if got := walk.Choose(items, choice); got != tc.wantVerdict || !slices.Equal(choice, tc.want) {
				t.Errorf("chose %v: %+v, want %v: %+v", choice, got, tc.want, tc.wantVerdict)
			}
		})
	}
}
