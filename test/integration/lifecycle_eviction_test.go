package integration_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/test/world"
)

var _ = Describe("Evicted quota Workloads", Ordered, func() {
	var t *tenant

	BeforeAll(func(ctx SpecContext) { startManager(ctx, nil) }, NodeTimeout(patience))
	BeforeEach(func(ctx SpecContext) { t = newQueue(ctx) }, NodeTimeout(patience))

	It("give their quota back at once where nobody runs anything, and queue again after a preemption", func(ctx SpecContext) {
		w := create(ctx, t.workload("train", "8"))
		other := create(ctx, t.workload("other", "8"))
		expect(ctx, w, "Admitted=True Admitted")
		expect(ctx, other, "Admitted=True Admitted")
		third := create(ctx, t.workload("third", "8"))
		expect(ctx, third, "QuotaReserved=False WaitingForQuota")
		By("evicting one that nothing would admit again before the other waits")
		gated := fresh(ctx, w)
		gated.Annotations = map[string]string{"kueue.x-k8s.io/admission-gated-by": gate}
		Expect(env.clientAs(world.ManagerUser).Update(ctx, gated)).To(Succeed())
		evict(ctx, w, kueue.WorkloadEvictedByPreemption)
		expect(ctx, w, "Evicted=True Preempted", "QuotaReserved=False PendingEvaluation", "Admitted=False NoReservation", "Requeued=True Preempted", "no admission")
		expect(ctx, third, "Admitted=True Admitted")
	}, SpecTimeout(patience))

	It("are left to the controller that owns them", func(ctx SpecContext) {
		job := plainJob(t.namespace, "owner")
		job.Spec.Suspend = new(true)
		Expect(env.adminClient.Create(ctx, job)).To(Succeed())
		owned := t.reserved(ctx, "owned", spot, func(w *kueue.Workload) {
			w.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(job, metav1.SchemeGroupVersion.WithKind("Job"))}
			w.OwnerReferences[0].APIVersion = "batch/v1"
		})
		expect(ctx, owned, "Admitted=True Admitted")
		evict(ctx, owned, kueue.WorkloadEvictedByPreemption)
		By("doing later what would come first if it were not for the owner")
		loose := t.reserved(ctx, "loose", spot)
		expect(ctx, loose, "Admitted=True Admitted")
		evict(ctx, loose, kueue.WorkloadEvictedByPreemption)
		expect(ctx, loose, "no admission")
		expect(ctx, owned, "Evicted=True Preempted", "QuotaReserved=True QuotaReserved", "Admitted=True Admitted", "admission")
	}, SpecTimeout(patience))

	DescribeTable("stay out of the queue until it goes on:", func(ctx SpecContext, evicted, restarted string, stop func(context.Context, *tenant, kueue.StopPolicy)) {
		w := t.reserved(ctx, "train", spot)
		expect(ctx, w, "Admitted=True Admitted")
		stop(ctx, t, kueue.HoldAndDrain)
		evict(ctx, w, evicted)
		expect(ctx, w, "Evicted=True "+evicted, "Requeued=False "+evicted, "no admission")
		stop(ctx, t, kueue.None)
		expect(ctx, w, "Requeued=True "+restarted)
	},
		Entry("that of a ClusterQueue", "ClusterQueueStopped", "ClusterQueueRestarted", func(ctx context.Context, t *tenant, policy kueue.StopPolicy) {
			before := t.clusterQueue.DeepCopy()
			t.clusterQueue.Spec.StopPolicy = &policy
			Expect(env.adminClient.Patch(ctx, t.clusterQueue, client.MergeFrom(before))).To(Succeed())
		}, SpecTimeout(patience)),
		Entry("that of a LocalQueue", "LocalQueueStopped", "LocalQueueRestarted", func(ctx context.Context, t *tenant, policy kueue.StopPolicy) {
			before := t.localQueue.DeepCopy()
			t.localQueue.Spec.StopPolicy = &policy
			Expect(env.adminClient.Patch(ctx, t.localQueue, client.MergeFrom(before))).To(Succeed())
		}, SpecTimeout(patience)),
	)

	It("give up their quota when their user deactivates them, and come back when he activates them again", func(ctx SpecContext) {
		first := create(ctx, t.workload("first", "8"))
		second := create(ctx, t.workload("second", "8"))
		expect(ctx, first, "Admitted=True Admitted")
		expect(ctx, second, "Admitted=True Admitted")
		third := create(ctx, t.workload("third", "8"))
		expect(ctx, third, "QuotaReserved=False WaitingForQuota")
		setActive(ctx, first, false)
		expect(ctx, first, "Evicted=True Deactivated", "QuotaReserved=False Deactivated", "Admitted=False NoReservation", "Requeued=False Deactivated", "no admission")
		expectEvent(ctx, first, "EvictedDueToDeactivated")
		expect(ctx, third, "Admitted=True Admitted")
		setActive(ctx, first, true)
		expect(ctx, first, "Requeued=True Reactivated", "QuotaReserved=False WaitingForQuota")
		expectEvent(ctx, first, "Requeued")
		Expect(env.adminClient.Delete(ctx, third)).To(Succeed())
		expect(ctx, first, "Admitted=True Admitted", "Evicted=False QuotaReserved", "Requeued=True Reactivated")
	}, SpecTimeout(patience))

	It("leave the queue when their user deactivates them before they are admitted", func(ctx SpecContext) {
		w := t.workload("train", "99")
		w.Spec.Active = new(false)
		create(ctx, w)
		expect(ctx, w, "Evicted=True Deactivated", "Requeued=False Deactivated", "no admission")
		setActive(ctx, w, true)
		expect(ctx, w, "Requeued=True Reactivated", "QuotaReserved=False ExceedsMaxQuota")
	}, SpecTimeout(patience))
})

var _ = Describe("The maximum execution time", Ordered, func() {
	var t *tenant

	BeforeAll(func(ctx SpecContext) { startManager(ctx, nil) }, NodeTimeout(patience))
	BeforeEach(func(ctx SpecContext) { t = newQueue(ctx) }, NodeTimeout(patience))

	It("deactivates a quota Workload, which gets its time anew if it is activated again", func(ctx SpecContext) {
		w := t.workload("train", "1")
		w.Spec.MaximumExecutionTimeSeconds = new(int32(2))
		create(ctx, w)
		since := find(expect(ctx, w, "Admitted=True Admitted"), kueue.WorkloadAdmitted).LastTransitionTime
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
		now := expect(ctx, w, "Requeued=True Preempted", "no admission")
		past := now.Status.AccumulatedPastExecutionTimeSeconds
		Expect(past).To(HaveValue(BeNumerically("~", 500, 60)))
		reserve(ctx, now, spot, time.Now().Add(-200*time.Second), admittedSince(time.Now().Add(-200*time.Second)))
		expect(ctx, w, "inactive", "Evicted=True DeactivatedDueToMaximumExecutionTimeExceeded", "no admission")

		By("leaving one alone that was admitted as long ago, but not before")
		other := t.reserved(ctx, "other", spot, func(w *kueue.Workload) { w.Spec.MaximumExecutionTimeSeconds = new(int32(600)) })
		reserve(ctx, other, spot, time.Now().Add(-200*time.Second), admittedSince(time.Now().Add(-200*time.Second)))
		setActive(ctx, w, true)
		expect(ctx, w, "Requeued=True Reactivated")
		expect(ctx, other, "no inactive", "no Evicted", "Admitted=True Admitted")
	}, SpecTimeout(patience))
})
