package integration_test

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// A weightedTree is a root Cohort "root", first without quota, and below it the Cohorts "heavy" (weight 2) with the ClusterQueues "a" (1)
// and "b" (2), and "light" (1) with "c" (4) and "d" (2).
type weightedTree struct {
	// cohorts maps these names to those of the objects, and queues maps them to the tenants.
	cohorts map[string]string
	queues  map[string]slowTenant
}

// newWeightedTree creates the objects of a weightedTree. The names of the Cohorts end in suffix.
func newWeightedTree(ctx context.Context, suffix string) weightedTree {
	GinkgoHelper()
	tree := weightedTree{cohorts: map[string]string{}, queues: map[string]slowTenant{}}
	for _, c := range []struct{ name, parent, weight string }{{"root", "", ""}, {"heavy", "root", "2"}, {"light", "root", "1"}} {
		tree.cohorts[c.name] = c.name + suffix
		newCohort(ctx, c.name+suffix, tree.cohorts[c.parent], c.weight, "")
	}
	for _, q := range []struct{ name, cohort, weight string }{{"a", "heavy", "1"}, {"b", "heavy", "2"}, {"c", "light", "4"}, {"d", "light", "2"}} {
		tree.queues[q.name] = newSlowTenant(ctx, tree.cohorts[q.cohort], "0", func(spec *kueue.ClusterQueueSpec) {
			spec.FairSharing = &kueue.FairSharing{Weight: new(resource.MustParse(q.weight))}
			reclaiming(kueue.PreemptionPolicyAny)(spec)
		})
	}
	return tree
}

// submit creates quota Workloads of 1 cpu in the ClusterQueues, as many as counts has for each.
func (tree weightedTree) submit(ctx context.Context, counts map[string]int) (created []*kueue.Workload) {
	GinkgoHelper()
	for queue, count := range counts {
		for n := range count {
			created = append(created, tree.queues[queue].create(ctx, fmt.Sprint(queue, n), "1", 0))
		}
	}
	return created
}

// admit waits until the engine has refused all these quota Workloads, and gives the root Cohort a quota of 9 cpu. So the engine decides on all
// of them at once.
func (tree weightedTree) admit(ctx context.Context, waiting []*kueue.Workload) {
	GinkgoHelper()
	for _, w := range waiting {
		expectWaiting(ctx, w)
	}
	root := &kueue.Cohort{ObjectMeta: metav1.ObjectMeta{Name: tree.cohorts["root"]}}
	before := root.DeepCopy()
	root.Spec.ResourceGroups = onDemandQuota("9")
	Expect(env.adminClient.Patch(ctx, root, client.MergeFrom(before))).To(Succeed())
}

// shares returns a function that reads how many quota Workloads of each ClusterQueue run and how many are being evicted, and the
// weightedShare of each ClusterQueue and Cohort.
func (tree weightedTree) shares(ctx context.Context) func(g Gomega) map[string]string {
	return func(g Gomega) map[string]string {
		all := map[string]string{}
		for name, t := range tree.queues {
			var q kueue.ClusterQueue
			g.Expect(env.adminClient.Get(ctx, client.ObjectKeyFromObject(t.clusterQueue), &q)).To(Succeed())
			g.Expect(q.Status.FairSharing).NotTo(BeNil())
			running, leaving, _ := t.workloads(ctx, g)
			all[name] = fmt.Sprintf("%d running, %d leaving, share %d", len(running), len(leaving), q.Status.FairSharing.WeightedShare)
		}
		for name, object := range tree.cohorts {
			var c kueue.Cohort
			g.Expect(env.adminClient.Get(ctx, client.ObjectKey{Name: object}, &c)).To(Succeed())
			g.Expect(c.Status.FairSharing).NotTo(BeNil())
			all[name] = fmt.Sprint("share ", c.Status.FairSharing.WeightedShare)
		}
		return all
	}
}

var _ = Describe("Fair sharing with weights at two levels", Ordered, func() {
	BeforeAll(func(ctx SpecContext) {
		startManager(ctx, map[string]any{
			"fairSharing": map[string]any{"preemptionStrategies": []string{"LessThanOrEqualToFinalShare", "LessThanInitialShare"}},
		})
	}, NodeTimeout(patience))

	// A weightedShare is what a node borrows, in thousandths of the 9 cpu of the root, divided by the weight of the node and rounded up.
	fair := Equal(map[string]string{
		"root": "share 0", "heavy": "share 334", "light": "share 334",
		"a": "2 running, 0 leaving, share 223", "b": "4 running, 0 leaving, share 223",
		"c": "2 running, 0 leaving, share 56", "d": "1 running, 0 leaving, share 56",
	})

	It("admits by the share of each node in its Cohort", func(ctx SpecContext) {
		tree := newWeightedTree(ctx, "-admission")
		tree.admit(ctx, tree.submit(ctx, map[string]int{"a": 5, "b": 5, "c": 5, "d": 5}))
		Eventually(tree.shares(ctx)).WithContext(ctx).Should(fair)
	}, SpecTimeout(patience))

	It("reclaims the share of a ClusterQueue from its sibling", func(ctx SpecContext) {
		tree := newWeightedTree(ctx, "-preemption")
		tree.admit(ctx, tree.submit(ctx, map[string]int{"b": 7, "c": 5, "d": 5}))
		Eventually(tree.shares(ctx)).WithContext(ctx).Should(Equal(map[string]string{
			"root": "share 0", "heavy": "share 334", "light": "share 334",
			"a": "0 running, 0 leaving, share 0", "b": "6 running, 0 leaving, share 334",
			"c": "2 running, 0 leaving, share 56", "d": "1 running, 0 leaving, share 56",
		}))

		By("submitting to the ClusterQueue that was idle")
		tree.submit(ctx, map[string]int{"a": 5})
		for range 2 {
			var victims []*kueue.Workload
			Eventually(func(g Gomega) {
				_, victims, _ = tree.queues["b"].workloads(ctx, g)
				g.Expect(victims).To(HaveLen(1))
			}).WithContext(ctx).Should(Succeed())
			giveBack(ctx, victims[0])
		}
		Eventually(tree.shares(ctx)).WithContext(ctx).Should(fair)
		Consistently(tree.shares(ctx)).WithContext(ctx).WithTimeout(time.Second).Should(fair)
	}, SpecTimeout(patience))
})
