package bench_test

import (
	"cmp"
	"fmt"
	"testing"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/admission/safety"
)

// BenchmarkSafetyCheck asks a Bank with many claims in 20 ClusterQueues of one cohort, each of which may use one of three flavors, whether
// one more may be added: one that can finish at once, one that has to wait until half of the others have finished, and one that could wait
// forever. It also adds and removes a claim.
func BenchmarkSafetyCheck(b *testing.B) {
	for _, bc := range []struct {
		name string
		// held and more are in hundredths of all that there is.
		held, more     int
		wantHeldUp     bool
		finishesAtOnce bool
	}{
		{name: "at once", held: 0, more: 1, finishesAtOnce: true},
		{name: "after others", held: 0, more: 60},
		{name: "never", held: 4, more: 97, wantHeldUp: true},
	} {
		for _, holders := range []int{10, 100, 1000} {
			b.Run(fmt.Sprintf("%s/holders=%d", bc.name, holders), func(b *testing.B) {
				_, bank, queues := newBank(holders)
				total := 10 * holders
				claim := &safety.Claim{Node: queues[7], Held: quota.Usage{{ID: 0, Amount: quota.Amount(1 + bc.held*total/100)}}}
				more := quota.Usage{{ID: 0, Amount: quota.Amount(1 + (bc.held+bc.more)*total/100)}}
				claim.Peaks = []quota.Usage{more}
				for b.Loop() {
					if heldUp := bank.Blocked(claim, nil); (len(heldUp) > 0) != bc.wantHeldUp {
						b.Fatalf("held up %v", heldUp)
					}
					if !bc.wantHeldUp {
						bank.Add(claim)
						bank.Remove(claim)
					}
				}
				record(b)
			})
		}
	}
}

// BenchmarkRelief selects the victims of deadlock recovery in a Bank with as many claims, none of which can finish since quota was taken
// away: one of them, a half, or all but a few.
func BenchmarkRelief(b *testing.B) {
	for _, bc := range []struct {
		name string
		// left is the remaining quota, in hundredths of what is held.
		left int
	}{{"few", 100}, {"half", 50}, {"most", 5}} {
		for _, holders := range []int{10, 100, 1000} {
			b.Run(fmt.Sprintf("%s/holders=%d", bc.name, holders), func(b *testing.B) {
				tree, bank, queues := newBank(holders)
				root := queues[0].Root()
				claims := bank.ClaimsUnderRoot(root)
				limits := map[quota.ID]quota.Quota{}
				for id := range quota.ID(3) {
					limits[id] = quota.Quota{
						Nominal: root.Used(id) * quota.Amount(bc.left) / 100, BorrowingLimit: quota.MaxAmount, LendingLimit: quota.MaxAmount,
					}
				}
				tree.SetQuotas(root, limits)
				bank.Invalidate()
				for _, c := range claims {
					bank.Remove(c)
					bank.Add(c)
				}
				price := func(*safety.Claim) safety.Price { return safety.Price{} }
				order := func(x, y *safety.Claim) int { return cmp.Compare(x.Held[0].Amount, y.Held[0].Amount) }
				for b.Loop() {
					if len(bank.SelectVictims(root, price, order)) == 0 {
						b.Fatal("no victims")
					}
				}
				record(b)
			})
		}
	}
}

// newBank has claims that hold half of all that there is of each flavor.
func newBank(holders int) (*quota.Tree, *safety.Bank, []*quota.Node) {
	tree := quota.NewTree()
	const flavors, queues = 3, 20
	for _, f := range []kueue.ResourceFlavorReference{"a100", "h100", "v5e"} {
		tree.Index.ID(quota.FlavorResource{Flavor: f, Resource: "gpu"})
	}
	cohort := tree.AddCohort("c")
	limits := map[quota.ID]quota.Quota{}
	for id := range quota.ID(flavors) {
		limits[id] = quota.Quota{Nominal: quota.Amount(10 * holders), BorrowingLimit: quota.MaxAmount, LendingLimit: quota.MaxAmount}
	}
	tree.SetQuotas(cohort, limits)
	var nodes []*quota.Node
	for i := range queues {
		nodes = append(nodes, tree.AddClusterQueue(fmt.Sprintf("q%d", i)))
		tree.SetParent(nodes[i], cohort)
	}
	bank := safety.NewBank(tree)
	for i := range holders {
		id := quota.ID(i % flavors)
		held := quota.Usage{{ID: id, Amount: quota.Amount(12 + i%7)}}
		c := &safety.Claim{Node: nodes[i%queues], Held: held}
		for other := range quota.ID(flavors) {
			peak := held.Clone()
			peak.Add(other, quota.Amount(4+i*5%29))
			c.Peaks = append(c.Peaks, peak)
		}
		bank.Add(c)
	}
	return tree, bank, nodes
}
