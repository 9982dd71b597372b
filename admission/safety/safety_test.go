package safety_test

import (
	"fmt"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/admission/safety"
)

// resources is the number of IDs: two flavors of two resources.
const resources quota.ID = 4

func drawUsage(t *rapid.T, most int64) quota.Usage {
	var u quota.Usage
	for range rapid.IntRange(0, 3).Draw(t, "amounts") {
		u.Add(quota.ID(rapid.IntRange(0, int(resources)-1).Draw(t, "id")), quota.Amount(rapid.Int64Range(0, most).Draw(t, "amount")))
	}
	return u
}

func drawQuotas(t *rapid.T, most int) map[quota.ID]quota.Quota {
	limits := rapid.SampledFrom([]quota.Amount{0, 3, quota.MaxAmount, quota.MaxAmount})
	quotas := map[quota.ID]quota.Quota{}
	for id := range resources {
		quotas[id] = quota.Quota{
			Nominal:        quota.Amount(rapid.IntRange(0, most).Draw(t, "nominal")),
			BorrowingLimit: limits.Draw(t, "borrowing"), LendingLimit: limits.Draw(t, "lending"),
		}
	}
	return quotas
}

// A forest has ClusterQueues and Cohorts up to three levels deep.
type forest struct {
	tree           *quota.Tree
	queues, groups []*quota.Node
}

func drawForest(t *rapid.T) *forest {
	f := &forest{tree: quota.NewTree()}
	for _, flavor := range []kueue.ResourceFlavorReference{"a", "b"} {
		f.tree.Index.ID(quota.FlavorResource{Flavor: flavor, Resource: "gpu"})
		f.tree.Index.ID(quota.FlavorResource{Flavor: flavor, Resource: "cpu"})
	}
	for i := range rapid.IntRange(0, 3).Draw(t, "cohorts") {
		f.groups = append(f.groups, f.tree.AddCohort(fmt.Sprintf("c%d", i)))
	}
	for i := range rapid.IntRange(1, 4).Draw(t, "queues") {
		f.queues = append(f.queues, f.tree.AddClusterQueue(fmt.Sprintf("q%d", i)))
	}
	for i := range f.groups {
		f.change(t, f.groups[i], f.groups[:i], 4)
	}
	for _, q := range f.queues {
		f.change(t, q, f.groups, 10)
	}
	return f
}

// change sets other quotas and another parent of a node.
func (f *forest) change(t *rapid.T, n *quota.Node, parents []*quota.Node, most int) {
	f.tree.SetQuotas(n, drawQuotas(t, most))
	var parent *quota.Node
	if i := rapid.IntRange(-1, len(parents)-1).Draw(t, "parent"); i >= 0 {
		parent = parents[i]
	}
	f.tree.SetParent(n, parent)
}

func (f *forest) drawClaim(t *rapid.T, name int) *safety.Claim {
	c := &safety.Claim{
		OwnerUID: types.UID(fmt.Sprintf("js%d", name)), Node: rapid.SampledFrom(f.queues).Draw(t, "queue"), Held: drawUsage(t, 3),
		Mode: rapid.SampledFrom([]safety.Mode{safety.Guarded, safety.Guarded, safety.Guarded, safety.Guarded, safety.Halted, safety.Unguarded}).Draw(t, "regard"),
	}
	for range rapid.SampledFrom([]int{0, 1, 1, 1, 2, 3}).Draw(t, "peaks") {
		peak := drawUsage(t, 5)
		peak.AddAll(c.Held)
		c.Peaks = append(c.Peaks, peak)
	}
	return c
}

// blocked is the slow twin of a Bank: it charges all claims to a Tree that has no charges, and lets all finish that can.
func blocked(claims []*safety.Claim) []*safety.Claim {
	for _, c := range claims {
		c.Node.Charge(c.Held)
	}
	waiting := slices.Clone(claims)
	for {
		before := len(waiting)
		waiting = slices.DeleteFunc(waiting, func(c *safety.Claim) bool {
			finishes := c.Mode != safety.Halted && slices.ContainsFunc(c.Peaks, func(peak quota.Usage) bool { return c.Node.Fits(peak.Without(c.Held)) })
			if finishes {
				c.Node.Release(c.Held)
			}
			return finishes
		})
		if len(waiting) == before {
			return waiting
		}
	}
}

// twin runs f on the Tree without what the claims in a Bank hold.
func (f *forest) twin(inBank []*safety.Claim, ask func()) {
	f.tree.WhatIf(func() bool {
		for _, c := range inBank {
			c.Node.Release(c.Held)
		}
		ask()
		return true
	})
}

func names(claims []*safety.Claim) []string {
	all := make([]string, 0, len(claims))
	for _, c := range claims {
		all = append(all, string(c.OwnerUID))
	}
	slices.Sort(all)
	return all
}

func without(claims, gone []*safety.Claim) []*safety.Claim {
	return slices.DeleteFunc(slices.Clone(claims), func(c *safety.Claim) bool { return slices.Contains(gone, c) })
}

// below returns the claims that share a root with a node.
func below(claims []*safety.Claim, n *quota.Node) []*safety.Claim {
	return slices.DeleteFunc(slices.Clone(claims), func(c *safety.Claim) bool { return c.Node.Root() != n.Root() })
}

// TestBankAgainstTheBankersAlgorithm adds, checks, changes and removes JobSets, changes quotas, and compares the Bank with the textbook
// algorithm.
func TestBankAgainstTheBankersAlgorithm(t *testing.T) {
	answers := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		f := drawForest(t)
		bank := safety.NewBank(f.tree)
		var claims []*safety.Claim
		for i := range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch step := rapid.IntRange(0, 9).Draw(t, "step"); {
			case step < 6:
				c := f.drawClaim(t, i)
				mode := c.Mode
				answer := f.ask(t, bank, claims, c)
				answers[answer]++
				if answer == "yes" || step == 0 {
					c.Mode = mode
					bank.Add(c)
					claims = append(claims, c)
				}
			case step < 9 && len(claims) > 0:
				k := rapid.IntRange(0, len(claims)-1).Draw(t, "goes")
				bank.Remove(claims[k])
				claims = slices.Delete(claims, k, k+1)
			default:
				f.changeQuota(t, bank, claims)
			}
			f.checkUnsafe(t, bank, claims)
		}
		for _, c := range claims {
			bank.Remove(c)
		}
		if bank.Len() > 0 {
			t.Fatalf("%d claims are left", bank.Len())
		}
	})
	t.Logf("answers: %v", answers)
}

// TestBlockedWithoutLeavers has a queue of 8 in which a leaving JobSet makes room for another to finish, and one that holds as much and stays
// does not.
func TestBlockedWithoutLeavers(t *testing.T) {
	tree := quota.NewTree()
	id := tree.Index.ID(quota.FlavorResource{Flavor: "a", Resource: "gpu"})
	node := tree.AddClusterQueue("q")
	tree.SetQuotas(node, map[quota.ID]quota.Quota{id: {Nominal: 8, BorrowingLimit: quota.MaxAmount, LendingLimit: quota.MaxAmount}})
	claim := func(name string, held, peak quota.Amount) *safety.Claim {
		c := &safety.Claim{OwnerUID: types.UID(name), Node: node, Mode: safety.Guarded}
		c.Held.Add(id, held)
		var most quota.Usage
		most.Add(id, peak)
		c.Peaks = []quota.Usage{most}
		return c
	}
	bank := safety.NewBank(tree)
	first := claim("first", 4, 8)
	bank.Add(first)
	asks := claim("asks", 3, 6)
	if got := names(bank.Blocked(asks, nil)); !slices.Equal(got, []string{"asks", "first"}) {
		t.Errorf("while the first stays, %v are held up, want both", got)
	}
	if got := bank.Blocked(asks, []*safety.Claim{first}); len(got) > 0 {
		t.Errorf("when the first goes, %v are held up, want none", names(got))
	}
	if got := names(bank.Blocked(asks, nil)); !slices.Equal(got, []string{"asks", "first"}) {
		t.Errorf("after the question %v are held up, want both, as before", got)
	}
}

// ask compares the answer to one question with the twin. Some of the claims may be gone.
func (f *forest) ask(t *rapid.T, bank *safety.Bank, claims []*safety.Claim, c *safety.Claim) string {
	c.Mode = safety.Guarded
	var gone []*safety.Claim
	for _, other := range claims {
		if rapid.IntRange(0, 2).Draw(t, "gone") == 0 {
			gone = append(gone, other)
		}
	}
	before := f.tree.Hash()
	got := names(bank.Blocked(c, gone))
	if f.tree.Hash() != before {
		t.Fatal("HeldUp changes the tree")
	}
	stay := below(without(claims, gone), c.Node)
	var want, unsafeBefore, withAll []string
	f.twin(claims, func() {
		f.tree.WhatIf(func() bool { unsafeBefore = names(blocked(stay)); return true })
		f.tree.WhatIf(func() bool { withAll = names(blocked(append(below(claims, c.Node), c))); return true })
		for _, other := range without(without(claims, gone), stay) {
			other.Node.Charge(other.Held)
		}
		want = names(blocked(append(stay, c)))
	})
	if !slices.Contains(want, string(c.OwnerUID)) {
		if len(got) > 0 {
			t.Fatalf("%s is held up with %v, and could finish", c.OwnerUID, got)
		}
		if !slices.Equal(want, unsafeBefore) {
			t.Fatalf("%s can finish, and then %v could not; before %v", c.OwnerUID, want, unsafeBefore)
		}
		if slices.Contains(withAll, string(c.OwnerUID)) {
			return "yes, by leavers"
		}
		return "yes"
	}
	if !slices.Equal(got, want) {
		t.Fatalf("%v are held up, want %v", got, want)
	}
	if len(unsafeBefore) > 0 {
		return "no, and it was unsafe before"
	}
	return "no"
}

// changeQuota changes one ClusterQueue or Cohort, and the Bank as its caller has to.
func (f *forest) changeQuota(t *rapid.T, bank *safety.Bank, claims []*safety.Claim) {
	bank.Invalidate()
	if len(f.groups) > 0 && rapid.Bool().Draw(t, "of a Cohort") {
		i := rapid.IntRange(0, len(f.groups)-1).Draw(t, "which")
		f.change(t, f.groups[i], f.groups[:i], 4)
	} else {
		f.change(t, rapid.SampledFrom(f.queues).Draw(t, "which"), f.groups, 10)
	}
	for _, c := range claims {
		bank.Remove(c)
		bank.Add(c)
	}
}

// checkUnsafe compares the victims of the Bank with the twin, which tries all sets.
func (f *forest) checkUnsafe(t *rapid.T, bank *safety.Bank, claims []*safety.Claim) {
	if rapid.IntRange(0, 3).Draw(t, "look") > 0 {
		return
	}
	unsafe := bank.Unsafe()
	if again := bank.Unsafe(); len(again) > 0 {
		t.Fatalf("%d roots are named again", len(again))
	}
	price := func(c *safety.Claim) safety.Price {
		return safety.Price{Lost: float64(len(c.OwnerUID) + int(c.OwnerUID[len(c.OwnerUID)-1])%3), Priority: int32(c.OwnerUID[2]) % 4}
	}
	order := func(x, y *safety.Claim) int { return slices.Compare([]byte(x.OwnerUID), []byte(y.OwnerUID)) }
	for _, root := range unsafe {
		before := f.tree.Hash()
		goes := bank.SelectVictims(root, price, order)
		if f.tree.Hash() != before {
			t.Fatal("Relief changes the tree")
		}
		mine := below(claims, root)
		f.twin(claims, func() {
			if !f.isRelieved(mine, goes) {
				t.Fatalf("without %v some still cannot finish", names(goes))
			}
			for i := range goes {
				if f.isRelieved(mine, slices.Delete(slices.Clone(goes), i, i+1)) {
					t.Fatalf("%s of %v need not go", goes[i].OwnerUID, names(goes))
				}
			}
			f.checkCheapest(t, mine, goes, price)
		})
	}
}

// isRelieved reports whether all Guarded claims can finish without some, if the Unguarded ones do.
func (f *forest) isRelieved(claims, some []*safety.Claim) bool {
	rest := without(claims, some)
	rest = slices.DeleteFunc(rest, func(c *safety.Claim) bool { return c.Mode == safety.Unguarded })
	relieved := false
	f.tree.WhatIf(func() bool {
		left := blocked(rest)
		relieved = !slices.ContainsFunc(left, func(c *safety.Claim) bool { return c.Mode == safety.Guarded })
		return true
	})
	return relieved
}

func (f *forest) checkCheapest(t *rapid.T, claims, goes []*safety.Claim, price func(*safety.Claim) safety.Price) {
	cost := func(some []*safety.Claim) (lost float64) {
		for _, c := range some {
			lost += price(c).Lost
		}
		return lost
	}
	var may []*safety.Claim
	for _, c := range claims {
		if c.Mode != safety.Unguarded {
			may = append(may, c)
		}
	}
	if len(may) > 8 {
		return
	}
	for set := range 1 << len(may) {
		var some []*safety.Claim
		for i, c := range may {
			if set&(1<<i) != 0 {
				some = append(some, c)
			}
		}
		if cost(some) < cost(goes) && f.isRelieved(claims, some) {
			t.Fatalf("%v go, and %v would be cheaper", names(goes), names(some))
		}
	}
}
