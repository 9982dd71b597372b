package ledger_test

import (
	"fmt"
	"maps"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/lifecycle/ledger"
)

// TestLimitsAgreeWithTheEngine compares what is exceeded after a charge with what the quota tree of the Engine lets in, in random trees of Cohorts.
func TestLimitsAgreeWithTheEngine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fr, tree := quota.FlavorResource{Flavor: "a", Resource: gpu}, quota.NewTree()
		id := tree.Index.ID(fr)
		all := ledger.Quotas{ClusterQueues: map[string]*kueue.ClusterQueue{}, Cohorts: map[string]*kueue.Cohort{}}
		draw := func(n *quota.Node) []kueue.ResourceGroup {
			one := kueue.ResourceQuota{Name: gpu}
			in := quota.Quota{Nominal: quota.Amount(rapid.IntRange(0, 6).Draw(t, "nominal")), BorrowingLimit: quota.MaxAmount, LendingLimit: quota.MaxAmount}
			one.NominalQuota = *resource.NewQuantity(int64(in.Nominal), resource.DecimalSI)
			limit := func(label string, into *quota.Amount) *resource.Quantity {
				most := rapid.IntRange(-1, 5).Draw(t, label)
				if most < 0 {
					return nil
				}
				*into = quota.Amount(most)
				return resource.NewQuantity(int64(most), resource.DecimalSI)
			}
			if n.Parent() != nil {
				one.BorrowingLimit, one.LendingLimit = limit("borrowing", &in.BorrowingLimit), limit("lending", &in.LendingLimit)
			}
			tree.SetQuotas(n, map[quota.ID]quota.Quota{id: in})
			return []kueue.ResourceGroup{{Flavors: []kueue.FlavorQuotas{{Name: "a", Resources: []kueue.ResourceQuota{one}}}}}
		}
		cohorts := []*quota.Node{}
		join := func(n *quota.Node) kueue.CohortReference {
			above := rapid.IntRange(-1, len(cohorts)-1).Draw(t, "parent")
			if above < 0 {
				return ""
			}
			tree.SetParent(n, cohorts[above])
			return kueue.CohortReference(cohorts[above].Name)
		}
		for i := range rapid.IntRange(0, 4).Draw(t, "cohorts") {
			n := tree.AddCohort(fmt.Sprint("c", i))
			all.Cohorts[n.Name] = &kueue.Cohort{ObjectMeta: metav1.ObjectMeta{Name: n.Name}, Spec: kueue.CohortSpec{ParentName: join(n), ResourceGroups: draw(n)}}
			cohorts = append(cohorts, n)
		}
		queues, used := []*quota.Node{}, map[string]int64{}
		for i := range rapid.IntRange(1, 4).Draw(t, "queues") {
			n := tree.AddClusterQueue(fmt.Sprint("q", i))
			q := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: n.Name}, Spec: kueue.ClusterQueueSpec{CohortName: join(n), ResourceGroups: draw(n)}}
			held := rapid.IntRange(0, 8).Draw(t, "held") // also more than the limits allow
			n.Charge(quota.Usage{{ID: id, Amount: quota.Amount(held)}})
			all.ClusterQueues[n.Name], used[n.Name] = q, 1000*int64(held)
			queues = append(queues, n)
		}
		for _, n := range queues {
			for more := range 12 {
				after := maps.Clone(used)
				after[n.Name] += 1000 * int64(more+1)
				e := all.Exceeded(n.Name, fr, after)
				if want := n.Fits(quota.Usage{{ID: id, Amount: quota.Amount(more + 1)}}); want != (e == nil) {
					t.Fatalf("%d more in %s: exceeded %+v, and the Engine says that it fits: %t", more+1, n.Name, e, want)
				}
			}
		}
	})
}

func TestExceeded(t *testing.T) {
	cohort := func(parent kueue.CohortReference, quantity string) *kueue.Cohort {
		return &kueue.Cohort{Spec: kueue.CohortSpec{ParentName: parent, ResourceGroups: []kueue.ResourceGroup{{Flavors: []kueue.FlavorQuotas{{
			Name: "a", Resources: []kueue.ResourceQuota{{Name: gpu, NominalQuota: resource.MustParse(quantity)}},
		}}}}}}
	}
	all := ledger.Quotas{
		ClusterQueues: map[string]*kueue.ClusterQueue{},
		Cohorts:       map[string]*kueue.Cohort{"a": cohort("b", "0"), "b": cohort("a", "0"), "rich": cohort("", "1E"), "richer": cohort("rich", "1E")},
	}
	for name, parent := range map[string]kueue.CohortReference{"below a cycle": "a", "covers nothing": "richer", "borrows": "richer", "lends nothing": "poor", "overdrawn": "poor"} {
		all.ClusterQueues[name] = &kueue.ClusterQueue{Spec: kueue.ClusterQueueSpec{CohortName: parent, ResourceGroups: cohort("", "2").Spec.ResourceGroups}}
	}
	all.ClusterQueues["covers nothing"].Spec.ResourceGroups = nil
	all.ClusterQueues["lends nothing"].Spec.ResourceGroups[0].Flavors[0].Resources[0].LendingLimit = new(resource.MustParse("0"))
	for name, want := range map[string]bool{"below a cycle": false, "does not exist": false, "covers nothing": true, "borrows": false, "lends nothing": false, "overdrawn": true} {
		used := map[string]int64{"below a cycle": 3000, "covers nothing": 1000, "borrows": 3000, "lends nothing": 2000, "overdrawn": 3000}
		if e := all.Exceeded(name, quota.FlavorResource{Flavor: "a", Resource: gpu}, used); (e != nil) != want {
			t.Errorf("%q exceeds %+v, want that it exceeds something: %t", name, e, want)
		}
	}
}
