package quota_test

import (
	"math"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"pgregory.net/rapid"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quota"
)

func TestOf(t *testing.T) {
	for name, tc := range map[string]struct {
		resource   corev1.ResourceName
		quantity   string
		wantAmount quota.Amount
		wantOK     bool
	}{
		"milli for cpu":      {"cpu", "1500m", 1500, true},
		"units otherwise":    {"memory", "2Ki", 2048, true},
		"rounded up":         {"gpu", "1500m", 2, true},
		"negative":           {"gpu", "-1", 0, false},
		"too large":          {"gpu", "10E", quota.MaxAmount, false},
		"too large for cpu":  {"cpu", "9E", quota.MaxAmount, false},
		"large but possible": {"gpu", "9E", 9_000_000_000_000_000_000, true},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := quota.Of(tc.resource, resource.MustParse(tc.quantity))
			if got != tc.wantAmount || ok != tc.wantOK {
				t.Errorf("Of(%s, %s) = %d, %v, want %d, %v", tc.resource, tc.quantity, got, ok, tc.wantAmount, tc.wantOK)
			}
		})
	}
}

func TestArithmeticStopsAtTheLimits(t *testing.T) {
	const most, least = quota.MaxAmount, quota.Amount(math.MinInt64)
	for name, tc := range map[string]struct{ got, want quota.Amount }{
		"plus":             {most.Plus(1), most},
		"plus negative":    {least.Plus(-1), least},
		"minus":            {least.Minus(1), least},
		"minus least":      {quota.Amount(-1).Minus(least), most},
		"zero minus least": {quota.Amount(0).Minus(least), most},
		"times":            {most.Times(2), most},
		"times nothing":    {most.Times(0), 0},
		"plain":            {quota.Amount(5).Plus(3).Minus(10).Plus(4).Times(3), 6},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.got != tc.want {
				t.Errorf("%d, want %d", tc.got, tc.want)
			}
		})
	}
}

func TestHugeChargesAreTakenBackExactly(t *testing.T) {
	fr := quota.FlavorResource{Flavor: "a", Resource: "gpu"}
	tree := quota.NewTree()
	tree.SetLimits("q", map[quota.FlavorResource]quota.Amount{fr: 10})
	tree.Charge("q", quota.Usage{fr: 3})
	for range 3 {
		tree.Charge("q", quota.Usage{fr: quota.MaxAmount})
	}
	if got := tree.Charged("q", fr); got != quota.MaxAmount {
		t.Errorf("charged %d", got)
	}
	if got := tree.Available("q", fr); got >= 0 {
		t.Errorf("available %d", got)
	}
	for range 3 {
		tree.Release("q", quota.Usage{fr: quota.MaxAmount})
	}
	if got := tree.Available("q", fr); got != 7 {
		t.Errorf("available %d, want 7", got)
	}
}

// TestWhatIfLeavesNothingBehind nests what-ifs at random, some of which panic.
func TestWhatIfLeavesNothingBehind(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tree := quota.NewTree()
		for range rapid.IntRange(0, 5).Draw(t, "before") {
			change(t, tree)
		}
		before := tree.Hash()
		whatIf(t, tree, 3)
		if tree.Hash() != before {
			t.Fatal("the hash differs after WhatIf")
		}
		change(t, tree)
		change(t, tree)
		after := tree.Hash()
		whatIf(t, tree, 1)
		if tree.Hash() != after {
			t.Fatal("the hash differs after the second WhatIf")
		}
	})
}

func whatIf(t *rapid.T, tree *quota.Tree, depth int) {
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
				whatIf(t, tree, depth-1)
				if tree.Hash() != inside {
					t.Fatal("the hash differs after a nested WhatIf")
				}
			}
			change(t, tree)
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

func change(t *rapid.T, tree *quota.Tree) {
	name := rapid.SampledFrom([]string{"p", "q"}).Draw(t, "queue")
	usage := quota.Usage{}
	for _, f := range []kueue.ResourceFlavorReference{"a", "b"} {
		usage[quota.FlavorResource{Flavor: f, Resource: "gpu"}] = quota.Amount(rapid.Int64Min(0).Draw(t, "amount"))
	}
	switch rapid.IntRange(0, 4).Draw(t, "change") {
	case 0:
		tree.Charge(name, usage)
	case 1:
		tree.Charge(name, usage)
		tree.Release(name, usage)
	case 2:
		tree.Keep(name, usage)
	case 3:
		tree.Keep(name, usage)
		tree.Unkeep(name, usage)
	case 4:
		tree.SetLimits(name, usage)
	}
}
