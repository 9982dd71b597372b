package dashboard_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/dashboard"
)

// TestFreeIsAvailable draws Cohorts and ClusterQueues with limits and usage, and compares their free quota with what a quota tree has for one more
// charge: for a Cohort, in the best of the ClusterQueues below it that list the flavor.
func TestFreeIsAvailable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := &forest{m: dashboard.New(), tree: quota.NewTree(), nodes: map[string]*quota.Node{}, lists: map[string]map[string]bool{}}
		for i := range 3 {
			f.addCohort(t, i)
		}
		for i := range 4 {
			f.addClusterQueue(t, i)
		}
		// best has the most that is available below each Cohort, by flavor.
		best := map[string]quota.Amount{}
		for name, flavors := range f.lists {
			for flavor := range flavors {
				free := max(0, f.nodes[name].Available(f.id(flavor)))
				for n := f.nodes[name]; n != nil; n = n.Parent() {
					key := n.Name + "/" + flavor
					best[key] = max(best[key], free)
				}
			}
		}
		for _, row := range f.m.Queues(dashboard.Viewer{}, dashboard.QueueFilter{}, dashboard.Window{}).Items {
			for _, bar := range row.Bars {
				if want := float64(best[row.Name+"/"+bar.Flavor]); bar.Free != want {
					t.Errorf("%s has %g of %s free, want %g", row.Name, bar.Free, bar.Flavor, want)
				}
			}
		}
	})
}

// A forest is the same random Cohorts and ClusterQueues in a Model and in a quota tree.
type forest struct {
	m     *dashboard.Model
	tree  *quota.Tree
	nodes map[string]*quota.Node
	// lists has the flavors that the spec of each ClusterQueue lists.
	lists map[string]map[string]bool
}

func flavors() []string { return []string{"a100", "h100"} }

func (f *forest) id(flavor string) quota.ID {
	return f.tree.Index.ID(quota.FlavorResource{Flavor: kueue.ResourceFlavorReference(flavor), Resource: gpu})
}

// parent draws a Cohort that was added before, or none.
func (f *forest) parent(t *rapid.T, cohorts int) string {
	if i := rapid.IntRange(-1, cohorts-1).Draw(t, "parent"); i >= 0 {
		return fmt.Sprint("cohort-", i)
	}
	return ""
}

// limit draws quotas of some flavors for a node, and returns them as in a spec.
func (f *forest) limit(t *rapid.T, node *quota.Node) []kueue.ResourceGroup {
	quotas := map[quota.ID]quota.Quota{}
	group := kueue.ResourceGroup{CoveredResources: []corev1.ResourceName{gpu}}
	optional := func(label string) (*resource.Quantity, quota.Amount) {
		if n := rapid.Int64Range(-3, 5).Draw(t, label); n >= 0 {
			return resource.NewQuantity(n, resource.DecimalSI), quota.Amount(n)
		}
		return nil, quota.MaxAmount
	}
	for _, flavor := range flavors() {
		if !rapid.Bool().Draw(t, flavor) {
			continue
		}
		nominal := rapid.Int64Range(0, 8).Draw(t, "nominal")
		q := quota.Quota{Nominal: quota.Amount(nominal)}
		r := kueue.ResourceQuota{Name: gpu, NominalQuota: *resource.NewQuantity(nominal, resource.DecimalSI)}
		r.BorrowingLimit, q.BorrowingLimit = optional("borrowingLimit")
		r.LendingLimit, q.LendingLimit = optional("lendingLimit")
		quotas[f.id(flavor)] = q
		group.Flavors = append(group.Flavors, kueue.FlavorQuotas{Name: kueue.ResourceFlavorReference(flavor), Resources: []kueue.ResourceQuota{r}})
	}
	f.tree.SetQuotas(node, quotas)
	return []kueue.ResourceGroup{group}
}

func (f *forest) addCohort(t *rapid.T, i int) {
	name, parent := fmt.Sprint("cohort-", i), f.parent(t, i)
	node := f.tree.AddCohort(name)
	f.nodes[name] = node
	f.tree.SetParent(node, f.nodes[parent])
	f.m.Observe(&kueue.Cohort{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       kueue.CohortSpec{ParentName: kueue.CohortReference(parent), ResourceGroups: f.limit(t, node)},
	})
}

// addClusterQueue also draws a quota Workload that holds quota of each flavor. The status reports only the flavors of the spec.
func (f *forest) addClusterQueue(t *rapid.T, i int) {
	name, parent := fmt.Sprint("queue-", i), f.parent(t, 3)
	node := f.tree.AddClusterQueue(name)
	f.nodes[name], f.lists[name] = node, map[string]bool{}
	f.tree.SetParent(node, f.nodes[parent])
	q := &kueue.ClusterQueue{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       kueue.ClusterQueueSpec{CohortName: kueue.CohortReference(parent), ResourceGroups: f.limit(t, node)},
	}
	for _, listed := range q.Spec.ResourceGroups[0].Flavors {
		f.lists[name][string(listed.Name)] = true
	}
	for _, flavor := range flavors() {
		held := rapid.Int64Range(0, 6).Draw(t, "held")
		var usage quota.Usage
		usage.Add(f.id(flavor), quota.Amount(held))
		node.Charge(usage)
		if held > 0 {
			w := workload("team", fmt.Sprintf("w-%d-%s", i, flavor), "lq")
			admit(w, name, flavor, held)
			f.m.Observe(w)
		}
		if f.lists[name][flavor] {
			total := []kueue.ResourceUsage{{Name: gpu, Total: *resource.NewQuantity(held, resource.DecimalSI)}}
			q.Status.FlavorsReservation = append(q.Status.FlavorsReservation, kueue.FlavorUsage{Name: kueue.ResourceFlavorReference(flavor), Resources: total})
		}
	}
	q.Status.FlavorsUsage = q.Status.FlavorsReservation
	f.m.Observe(q)
}
