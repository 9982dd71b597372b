package integration_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/test/controlplane"
)

// reservation returns the reserved and the borrowed quota in the status of a tenant's ClusterQueue.
func (t *tenant) reservation(ctx context.Context, g Gomega) []string {
	var q kueue.ClusterQueue
	g.Expect(env.adminClient.Get(ctx, client.ObjectKeyFromObject(t.clusterQueue), &q)).To(Succeed())
	g.Expect(q.Status.FlavorsReservation).NotTo(BeEmpty())
	cpu := q.Status.FlavorsReservation[0].Resources[0]
	return []string{cpu.Total.String(), cpu.Borrowed.String()}
}

var _ = Describe("A peak reservation of policy Reserve", Ordered, func() {
	BeforeAll(func(ctx SpecContext) { startManager(ctx, nil) }, NodeTimeout(patience))

	It("appears in the status of its queue, and returns borrowed quota to its owner", func(ctx SpecContext) {
		lender, borrower := newQueue(ctx), newQueue(ctx)
		for _, t := range []*tenant{lender, borrower} {
			t.onlyOnDemand(ctx, "4", func(spec *kueue.ClusterQueueSpec) {
				spec.CohortName = kueue.CohortReference("cohort-" + lender.namespace)
			})
		}
		before := borrower.clusterQueue.DeepCopy()
		borrower.clusterQueue.Annotations = map[string]string{apis.StageAdmissionAnnotation: "Reserve"}
		Expect(env.adminClient.Patch(ctx, borrower.clusterQueue, client.MergeFrom(before))).To(Succeed())
		DeferCleanup(func(ctx SpecContext) {
			Expect(env.adminClient.DeleteAllOf(ctx, &jobsetapi.JobSet{}, client.InNamespace(borrower.namespace))).To(Succeed())
		})
		// A first stage of 1 cpu that never gets ready, and a second one of 6.
		js := borrower.twoStages("staged", "6")
		js.Spec.ReplicatedJobs[0].Template.Spec.Template.Annotations = map[string]string{controlplane.FakeReadyAfter: "1h"}
		Expect(env.adminClient.Create(ctx, js)).To(Succeed())
		first := borrower.stageOf(ctx, "staged", "ps")
		expect(ctx, first, "Admitted=True Admitted")
		Eventually(func(g Gomega) { g.Expect(borrower.reservation(ctx, g)).To(Equal([]string{"7", "3"})) }).WithContext(ctx).Should(Succeed())

		expect(ctx, create(ctx, lender.workload("own", "4")), "Admitted=True Admitted")
		Eventually(func(g Gomega) { g.Expect(borrower.reservation(ctx, g)).To(Equal([]string{"1", "0"})) }).WithContext(ctx).Should(Succeed())
		expect(ctx, first, "Admitted=True Admitted", "no Evicted")
	}, SpecTimeout(patience))
})
