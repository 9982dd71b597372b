package integration_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/test/testenv"
)

var _ = Describe("Evicted quota Workloads", Ordered, func() {
	var t *tenant

	BeforeAll(func(ctx SpecContext) { startManager(ctx, nil) }, NodeTimeout(patience))
	BeforeEach(func(ctx SpecContext) { t = newQueue(ctx) }, NodeTimeout(patience))

	It("keep their quota until the controller that runs their pods releases it, and requeue", func(ctx SpecContext) {
		w := create(ctx, t.workload("train", "8"))
		other := create(ctx, t.workload("other", "8"))
		expect(ctx, w, "Admitted=True Admitted")
		expect(ctx, other, "Admitted=True Admitted")
		third := create(ctx, t.workload("third", "8"))
		expect(ctx, third, "tranche.dev/Waiting=True WaitingForQuota")
		By("evicting one, gated so that the other is admitted first")
		gated := fresh(ctx, w)
		gated.Annotations = map[string]string{"kueue.x-k8s.io/admission-gated-by": gate}
		Expect(env.clientAs(testenv.ManagerUser).Update(ctx, gated)).To(Succeed())
		evict(ctx, w, kueue.WorkloadEvictedByPreemption)
		Consistently(func(g Gomega) {
			g.Expect(state(fresh(ctx, w))).To(ContainElements("Evicted=True Preempted", "QuotaReserved=True QuotaReserved", "Admitted=True Admitted", "admission"))
			g.Expect(state(fresh(ctx, third))).NotTo(ContainElement("admission"))
		}).WithContext(ctx).WithTimeout(time.Second).Should(Succeed())
		finishEviction(ctx, w)
		expect(ctx, w, "Evicted=True Preempted", "QuotaReserved=False AdmissionGated", "Admitted=False NoReservation", "Requeued=True Preempted", "no admission")
		expect(ctx, third, "Admitted=True Admitted")
		By("removing the gate, and the Workload that holds its quota")
		open := fresh(ctx, w)
		open.Annotations = nil
		Expect(env.clientAs(testenv.ManagerUser).Update(ctx, open)).To(Succeed())
		expect(ctx, w, "tranche.dev/Waiting=True WaitingForQuota")
		Expect(env.adminClient.Delete(ctx, third)).To(Succeed())
		expect(ctx, w, "Admitted=True Admitted", "Evicted=False QuotaReserved")
	}, SpecTimeout(patience))

	It("requeue even if the controller that releases their quota does not write Requeued", func(ctx SpecContext) {
		first := create(ctx, t.workload("first", "8"))
		create(ctx, t.workload("second", "8"))
		expect(ctx, first, "Admitted=True Admitted")
		t.stopLocalQueue(ctx, kueue.HoldAndDrain)
		expect(ctx, first, "Evicted=True LocalQueueStopped", "admission")
		now := fresh(ctx, first)
		write(ctx, now, apis.AdmissionFieldManager, func(status *kueue.WorkloadStatus) {
			status.Conditions = []metav1.Condition{
				condition(kueue.WorkloadQuotaReserved, metav1.ConditionFalse, "Pending", time.Now()), *find(now, kueue.WorkloadEvicted),
			}
		})
		expect(ctx, first, "tranche.dev/Waiting=True Suspended", "no admission")
		t.stopLocalQueue(ctx, kueue.None)
		expect(ctx, first, "Admitted=True Admitted", "Evicted=False QuotaReserved")
	}, SpecTimeout(patience))

	DescribeTable("stay out of the queue until its stopPolicy is cleared:", func(ctx SpecContext, evicted, restarted string, stop func(context.Context, *tenant, kueue.StopPolicy)) {
		w := t.reserved(ctx, "train", spot)
		expect(ctx, w, "Admitted=True Admitted")
		stop(ctx, t, kueue.HoldAndDrain)
		evict(ctx, w, evicted)
		finishEviction(ctx, w)
		expect(ctx, w, "Evicted=True "+evicted, "Requeued=False "+evicted, "no admission")
		awaitHandled(ctx)
		Expect(state(fresh(ctx, w))).To(ContainElement("Requeued=False " + evicted))
		stop(ctx, t, kueue.None)
		expect(ctx, w, "Requeued=True "+restarted)
	},
		Entry("that of a ClusterQueue", "ClusterQueueStopped", "ClusterQueueRestarted", func(ctx context.Context, t *tenant, policy kueue.StopPolicy) {
			before := t.clusterQueue.DeepCopy()
			t.clusterQueue.Spec.StopPolicy = &policy
			Expect(env.adminClient.Patch(ctx, t.clusterQueue, client.MergeFrom(before))).To(Succeed())
		}, SpecTimeout(patience)),
		Entry("that of a LocalQueue", "LocalQueueStopped", "LocalQueueRestarted", func(ctx context.Context, t *tenant, policy kueue.StopPolicy) {
			t.stopLocalQueue(ctx, policy)
		}, SpecTimeout(patience)),
	)

	It("release their quota when their user deactivates them, and requeue when they are activated again", func(ctx SpecContext) {
		first := create(ctx, t.workload("first", "8"))
		second := create(ctx, t.workload("second", "8"))
		expect(ctx, first, "Admitted=True Admitted")
		expect(ctx, second, "Admitted=True Admitted")
		third := create(ctx, t.workload("third", "8"))
		expect(ctx, third, "tranche.dev/Waiting=True WaitingForQuota")
		setActive(ctx, first, false)
		finishEviction(ctx, first)
		expect(ctx, first, "Evicted=True Deactivated", "QuotaReserved=False Pending", "Admitted=False NoReservation", "Requeued=False Deactivated", "no admission")
		expectEvent(ctx, first, "EvictedDueToDeactivated")
		expect(ctx, third, "Admitted=True Admitted")
		setActive(ctx, first, true)
		expect(ctx, first, "Requeued=True Reactivated", "tranche.dev/Waiting=True WaitingForQuota")
		expectEvent(ctx, first, "Requeued")
		Expect(env.adminClient.Delete(ctx, third)).To(Succeed())
		expect(ctx, first, "Admitted=True Admitted", "Evicted=False QuotaReserved", "Requeued=True Reactivated")
	}, SpecTimeout(patience))

	It("leave the queue when their user deactivates them before admission", func(ctx SpecContext) {
		w := t.workload("train", "99")
		w.Spec.Active = new(false)
		create(ctx, w)
		expect(ctx, w, "Evicted=True Deactivated", "Requeued=False Deactivated", "no admission")
		setActive(ctx, w, true)
		expect(ctx, w, "Requeued=True Reactivated", "tranche.dev/Waiting=True ExceedsMaxQuota")

		By("not admitting one that fits before it is activated")
		fits := t.workload("fits", "1")
		fits.Spec.Active = new(false)
		create(ctx, fits)
		expect(ctx, fits, "Evicted=True Deactivated", "Requeued=False Deactivated", "no admission")
		awaitHandled(ctx)
		Expect(state(fresh(ctx, fits))).NotTo(ContainElement("admission"))
		setActive(ctx, fits, true)
		expect(ctx, fits, "Admitted=True Admitted")
	}, SpecTimeout(patience))
})

func (t *tenant) stopLocalQueue(ctx context.Context, policy kueue.StopPolicy) {
	GinkgoHelper()
	before := t.localQueue.DeepCopy()
	t.localQueue.Spec.StopPolicy = &policy
	Expect(env.adminClient.Patch(ctx, t.localQueue, client.MergeFrom(before))).To(Succeed())
}

var _ = Describe("The maximum execution time", Ordered, func() {
	var t *tenant

	BeforeAll(func(ctx SpecContext) { startManager(ctx, nil) }, NodeTimeout(patience))
	BeforeEach(func(ctx SpecContext) { t = newQueue(ctx) }, NodeTimeout(patience))

	It("deactivates a quota Workload, whose time starts from zero if it is activated again", func(ctx SpecContext) {
		w := t.workload("train", "1")
		w.Spec.MaximumExecutionTimeSeconds = new(int32(2))
		create(ctx, w)
		since := find(expect(ctx, w, "Admitted=True Admitted"), kueue.WorkloadAdmitted).LastTransitionTime
		finishEviction(ctx, w)
		now := expect(ctx, w, "inactive", "Evicted=True DeactivatedDueToMaximumExecutionTimeExceeded",
			"Requeued=False DeactivatedDueToMaximumExecutionTimeExceeded", "no DeactivationTarget", "no admission")
		Expect(find(now, kueue.WorkloadEvicted).LastTransitionTime.Sub(since.Time)).To(BeNumerically(">=", 2*time.Second))
		Expect(now.Status.AccumulatedPastExecutionTimeSeconds).To(BeNil())
		expectEvent(ctx, w, "MaximumExecutionTimeExceeded")
		setActive(ctx, w, true)
		expect(ctx, w, "Admitted=True Admitted", "Evicted=False QuotaReserved")
	}, SpecTimeout(patience))

	It("counts the time before an eviction", func(ctx SpecContext) {
		w := t.reserved(ctx, "train", spot, func(w *kueue.Workload) { w.Spec.MaximumExecutionTimeSeconds = new(int32(600)) })
		reserve(ctx, w, spot, time.Now().Add(-500*time.Second), admittedSince(time.Now().Add(-500*time.Second)))
		evict(ctx, w, kueue.WorkloadEvictedByPreemption)
		finishEviction(ctx, w)
		now := expect(ctx, w, "Requeued=True Preempted", "no admission")
		past := now.Status.AccumulatedPastExecutionTimeSeconds
		Expect(past).To(HaveValue(BeNumerically("~", 500, 60)))
		reserve(ctx, now, spot, time.Now().Add(-200*time.Second), admittedSince(time.Now().Add(-200*time.Second)))
		finishEviction(ctx, w)
		expect(ctx, w, "inactive", "Evicted=True DeactivatedDueToMaximumExecutionTimeExceeded", "no admission")

		By("not evicting one that was admitted at the same time")
		other := t.reserved(ctx, "other", spot, func(w *kueue.Workload) { w.Spec.MaximumExecutionTimeSeconds = new(int32(600)) })
		reserve(ctx, other, spot, time.Now().Add(-200*time.Second), admittedSince(time.Now().Add(-200*time.Second)))
		setActive(ctx, w, true)
		expect(ctx, w, "Requeued=True Reactivated")
		expect(ctx, other, "no inactive", "no Evicted", "Admitted=True Admitted")
	}, SpecTimeout(patience))
})
