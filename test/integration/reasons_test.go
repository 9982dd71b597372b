package integration_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
)

var _ = Describe("The conditions of quota Workloads that wait", Ordered, func() {
	Context("by default", Ordered, func() {
		BeforeAll(func(ctx SpecContext) { startManager(ctx, nil) }, NodeTimeout(patience))

		It("have the reasons and messages of Kueue, and the finest reason beside them", func(ctx SpecContext) {
			t := newQueue(ctx)
			t.onlyOnDemand(ctx, "4", func(*kueue.ClusterQueueSpec) {})
			expect(ctx, create(ctx, t.workload("first", "3")), "Admitted=True Admitted", "no tranche.dev/Waiting")
			second := create(ctx, t.workload("second", "3"))
			now := expect(ctx, second, "QuotaReserved=False Pending", "tranche.dev/Waiting=True WaitingForQuota")
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

		It("name the gates of other controllers, and tell when the last has gone", func(ctx SpecContext) {
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

	Context("with Kueue's feature gates", Ordered, func() {
		BeforeAll(func(ctx SpecContext) {
			startManager(ctx, map[string]any{"featureGates": map[string]any{"UnadmittedWorkloadsObservability": true, "UnadmittedWorkloadsExplicitStatus": true}})
		}, NodeTimeout(patience))

		It("have the finest reason, and are there from the start", func(ctx SpecContext) {
			t := newQueue(ctx)
			t.onlyOnDemand(ctx, "4", func(*kueue.ClusterQueueSpec) {})
			expect(ctx, create(ctx, t.workload("large", "5")), "QuotaReserved=False ExceedsMaxQuota", "Admitted=False NoReservation")
			behind := t.workload("backing-off", "1")
			behind.Annotations = map[string]string{apis.AdmissionGatedByAnnotation: apis.StageGate}
			expect(ctx, create(ctx, behind), "QuotaReserved=False PendingEvaluation", "Admitted=False NoReservation")
		}, SpecTimeout(patience))
	})
})
