package integration_test

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/test/testenv"
)

var _ = Describe("The conditions of quota Workloads that wait", Ordered, func() {
	Context("by default", Ordered, func() {
		BeforeAll(func(ctx SpecContext) { startManager(ctx, nil) }, NodeTimeout(patience))

		It("have the reasons and messages of Kueue, and the finest reason in a condition of its own", func(ctx SpecContext) {
			t := newQueue(ctx)
			t.onlyOnDemand(ctx, "4", func(*kueue.ClusterQueueSpec) {})
			expect(ctx, create(ctx, t.workload("first", "3")), "Admitted=True Admitted", "no tranche.dev/Waiting")
			second := create(ctx, t.workload("second", "3"))
			now := expect(ctx, second, "QuotaReserved=False Pending", "tranche.dev/Waiting=True WaitingForQuota")
			Expect(now.Status.ResourceRequests).To(HaveLen(1))
			Expect(now.Status.ResourceRequests[0].Resources.Cpu().Value()).To(BeEquivalentTo(3))
			Expect(find(now, kueue.WorkloadQuotaReserved).Message).To(Equal(
				"couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor " + onDemand + ", 2 more needed"))
			now = expect(ctx, create(ctx, t.workload("large", "5")), "QuotaReserved=False Pending", "tranche.dev/Waiting=True ExceedsMaxQuota")
			Expect(find(now, kueue.WorkloadQuotaReserved).Message).To(Equal("couldn't assign flavors to pod set main: insufficient quota for cpu in flavor " +
				onDemand + ", previously considered podsets requests (0) + current podset request (5) > maximum capacity (4)"))

			t.configure(ctx, func(spec *kueue.ClusterQueueSpec) { spec.StopPolicy = ptr.To(kueue.Hold) })
			now = expect(ctx, second, "QuotaReserved=False Inadmissible", "tranche.dev/Waiting=True Suspended")
			Expect(find(now, kueue.WorkloadQuotaReserved).Message).To(Equal("ClusterQueue " + t.clusterQueue.Name + " is inactive"))

			lost := t.workload("lost", "1")
			lost.Spec.QueueName = "nowhere"
			now = expect(ctx, create(ctx, lost), "QuotaReserved=False Inadmissible", "tranche.dev/Waiting=True Misconfigured")
			Expect(find(now, kueue.WorkloadQuotaReserved).Message).To(Equal("LocalQueue nowhere doesn't exist"))
		}, SpecTimeout(patience))

		It("name the gates of other controllers, and report when the last gate is removed", func(ctx SpecContext) {
			t := newQueue(ctx)
			w := t.workload("gated", "1")
			w.Annotations = map[string]string{apis.AdmissionGatedByAnnotation: "example.com/budget"}
			now := expect(ctx, create(ctx, w), "QuotaReserved=False AdmissionGated")
			Expect(find(now, kueue.WorkloadQuotaReserved).Message).To(Equal("Admission is gated by: example.com/budget"))
			expectEvent(ctx, w, "AdmissionGated")
			t.onlyOnDemand(ctx, "1", func(*kueue.ClusterQueueSpec) {})
			expect(ctx, create(ctx, t.workload("first", "1")), "Admitted=True Admitted")
			before := fresh(ctx, w)
			after := before.DeepCopy()
			after.Annotations = nil
			Expect(env.adminClient.Patch(ctx, after, client.MergeFrom(before))).To(Succeed())
			expect(ctx, w, "QuotaReserved=False Pending", "tranche.dev/Waiting=True WaitingForQuota")
			expectEvent(ctx, w, "AdmissionGateCleared")
		}, SpecTimeout(patience))
	})

	Context("in numbers", Ordered, func() {
		var manager *testenv.Manager
		BeforeAll(func(ctx SpecContext) {
			createFlavors(ctx)
			var err error
			manager, err = env.StartManager(ctx, testenv.ManagerOptions{Settings: map[string]any{"fairSharing": map[string]any{
				"preemptionStrategies": []string{"LessThanOrEqualToFinalShare", "LessThanInitialShare"},
			}}})
			Expect(err).NotTo(HaveOccurred())
			DeferCleanup(func() error { return manager.Stop() })
		}, NodeTimeout(patience))

		want := func(ctx context.Context, name string, lines ...string) {
			GinkgoHelper()
			Eventually(func(g Gomega) {
				all, err := scrape(ctx, manager.Metrics, name)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(all).To(ContainElements(lines))
			}).WithContext(ctx).Should(Succeed())
		}
		pending := func(t *tenant, active, inadmissible int) []string {
			return []string{
				fmt.Sprintf(`kueue_pending_workloads{cluster_queue=%q,replica_role="standalone",status="active"} %d`, t.clusterQueue.Name, active),
				fmt.Sprintf(`kueue_pending_workloads{cluster_queue=%q,replica_role="standalone",status="inadmissible"} %d`, t.clusterQueue.Name, inadmissible),
			}
		}

		It("are active under StrictFIFO, inadmissible under BestEffortFIFO, and not counted in a stopped LocalQueue", func(ctx SpecContext) {
			t := newQueue(ctx)
			t.onlyOnDemand(ctx, "2", func(spec *kueue.ClusterQueueSpec) { spec.QueueingStrategy = kueue.StrictFIFO })
			expect(ctx, create(ctx, t.workload("first", "2")), "Admitted=True Admitted")
			for _, name := range []string{"second", "third"} {
				expect(ctx, create(ctx, t.workload(name, "2")), "tranche.dev/Waiting=True WaitingForQuota")
			}
			want(ctx, t.clusterQueue.Name, pending(t, 2, 0)...)
			t.configure(ctx, func(spec *kueue.ClusterQueueSpec) { spec.QueueingStrategy = kueue.BestEffortFIFO })
			want(ctx, t.clusterQueue.Name, pending(t, 0, 2)...)

			var local kueue.LocalQueue
			key := client.ObjectKey{Namespace: t.namespace, Name: string(t.workload("", "1").Spec.QueueName)}
			Expect(env.adminClient.Get(ctx, key, &local)).To(Succeed())
			before := local.DeepCopy()
			local.Spec.StopPolicy = ptr.To(kueue.Hold)
			Expect(env.adminClient.Patch(ctx, &local, client.MergeFrom(before))).To(Succeed())
			want(ctx, t.clusterQueue.Name, pending(t, 0, 0)...)
			Eventually(func(g Gomega) {
				g.Expect(env.adminClient.Get(ctx, key, &local)).To(Succeed())
				g.Expect(local.Status.PendingWorkloads).To(BeZero())
				g.Expect(local.Status.ReservingWorkloads).To(BeEquivalentTo(1))
			}).WithContext(ctx).Should(Succeed())
		}, SpecTimeout(patience))

		It("count admissions for each ancestor Cohort, and report shares with their fractions", func(ctx SpecContext) {
			borrower, lender := newQueue(ctx), newQueue(ctx)
			name := "cohort-" + lender.namespace
			for _, t := range []*tenant{borrower, lender} {
				t.onlyOnDemand(ctx, "3", func(spec *kueue.ClusterQueueSpec) { spec.CohortName = kueue.CohortReference(name) })
			}
			expect(ctx, create(ctx, borrower.workload("large", "5")), "Admitted=True Admitted")
			want(ctx, name, fmt.Sprintf(`kueue_cohort_subtree_admitted_workloads_total{cohort=%q,priority_class="",replica_role="standalone"} 1`, name),
				fmt.Sprintf(`kueue_cluster_queue_weighted_share{cluster_queue=%q,cohort=%q,replica_role="standalone"} 333.3333333333333`, borrower.clusterQueue.Name, name))
		}, SpecTimeout(patience))
	})

	Context("with Kueue's feature gates", Ordered, func() {
		BeforeAll(func(ctx SpecContext) {
			startManager(ctx, map[string]any{"featureGates": map[string]any{"UnadmittedWorkloadsObservability": true, "UnadmittedWorkloadsExplicitStatus": true}})
		}, NodeTimeout(patience))

		It("have the finest reason, and exist from the start", func(ctx SpecContext) {
			t := newQueue(ctx)
			t.onlyOnDemand(ctx, "4", func(*kueue.ClusterQueueSpec) {})
			expect(ctx, create(ctx, t.workload("large", "5")), "QuotaReserved=False ExceedsMaxQuota", "Admitted=False NoReservation")
			behind := t.workload("backing-off", "1")
			behind.Annotations = map[string]string{apis.AdmissionGatedByAnnotation: apis.StageGate}
			expect(ctx, create(ctx, behind), "QuotaReserved=False PendingEvaluation", "Admitted=False NoReservation")
		}, SpecTimeout(patience))
	})
})
