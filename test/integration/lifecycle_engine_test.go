package integration_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// Here the engine reserves the quota itself.
var _ = Describe("AdmissionChecks of quota that the engine has reserved", Ordered, func() {
	var t *tenant

	BeforeAll(func(ctx SpecContext) { startManager(ctx, nil) }, NodeTimeout(patience))
	BeforeEach(func(ctx SpecContext) {
		check := &kueue.AdmissionCheck{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "lifecycle-"}, Spec: kueue.AdmissionCheckSpec{ControllerName: "example.com/lifecycle"},
		}
		Expect(env.adminClient.Create(ctx, check)).To(Succeed())
		apimeta.SetStatusCondition(&check.Status.Conditions, metav1.Condition{Type: kueue.AdmissionCheckActive, Status: metav1.ConditionTrue, Reason: "Active"})
		Expect(env.adminClient.Status().Update(ctx, check)).To(Succeed())
		t = newQueue(ctx, kueue.AdmissionCheckStrategyRule{Name: kueue.AdmissionCheckReference(check.Name)})
		DeferCleanup(func(ctx SpecContext) { Expect(client.IgnoreNotFound(env.adminClient.Delete(ctx, check))).To(Succeed()) })
	}, NodeTimeout(patience))

	It("delay admission after reservation, and the time of admission counts from then", func(ctx SpecContext) {
		name := t.clusterQueue.Spec.AdmissionChecksStrategy.AdmissionChecks[0].Name
		w := create(ctx, t.workload("train", "8"))
		expect(ctx, w, "QuotaReserved=True QuotaReserved", "Admitted=False UnsatisfiedChecks", "check "+string(name)+"=Pending", "admission")

		By("keeping it out of the queue for as long as the check asks, though there is quota for it")
		answer(ctx, w, kueue.AdmissionCheckState{Name: name, State: kueue.CheckStateRetry, RequeueAfterSeconds: new(int32(3))})
		finishEviction(ctx, w)
		until := expect(ctx, w, "Evicted=True AdmissionCheck", "Requeued=False AdmissionCheck", "requeueAt", "no admission").Status.RequeueState.RequeueAt
		now := expect(ctx, w, "Requeued=True BackoffFinished", "Evicted=False QuotaReserved", "QuotaReserved=True QuotaReserved",
			"Admitted=False UnsatisfiedChecks", "check "+string(name)+"=Pending/1")
		Expect(find(now, kueue.WorkloadQuotaReserved).LastTransitionTime.Time).NotTo(BeTemporally("<", until.Time))

		answer(ctx, w, kueue.AdmissionCheckState{Name: name, State: kueue.CheckStateReady})
		expect(ctx, w, "Admitted=True Admitted")

		By("resetting the check after a deactivation")
		setActive(ctx, w, false)
		finishEviction(ctx, w)
		expect(ctx, w, "Evicted=True Deactivated", "no admission", "check "+string(name)+"=Pending")
		setActive(ctx, w, true)
		expect(ctx, w, "Requeued=True Reactivated", "QuotaReserved=True QuotaReserved", "Admitted=False UnsatisfiedChecks")
	}, SpecTimeout(patience))

	It("lose the quota with the LocalQueue or the ClusterQueue, and admit nothing there", func(ctx SpecContext) {
		name := t.clusterQueue.Spec.AdmissionChecksStrategy.AdmissionChecks[0].Name
		w := create(ctx, t.workload("train", "8"))
		expect(ctx, w, "QuotaReserved=True QuotaReserved", "check "+string(name)+"=Pending")
		Expect(env.adminClient.Delete(ctx, t.localQueue)).To(Succeed())
		expect(ctx, w, "Evicted=True LocalQueueStopped")
		answer(ctx, w, kueue.AdmissionCheckState{Name: name, State: kueue.CheckStateReady})
		finishEviction(ctx, w)
		expect(ctx, w, "no admission", "Requeued=False LocalQueueStopped")
		awaitHandled(ctx)
		Expect(state(fresh(ctx, w))).NotTo(ContainElement("admission"), "there is quota for it, and its check is Ready")

		By("queueing again in a LocalQueue of that name")
		t.localQueue.ObjectMeta = metav1.ObjectMeta{Namespace: t.namespace, Name: t.localQueue.Name}
		Expect(env.adminClient.Create(ctx, t.localQueue)).To(Succeed())
		expect(ctx, w, "Requeued=True LocalQueueRestarted", "QuotaReserved=True QuotaReserved", "Admitted=False UnsatisfiedChecks")
		Expect(env.adminClient.Delete(ctx, t.clusterQueue)).To(Succeed())
		expect(ctx, w, "Evicted=True ClusterQueueStopped")
		finishEviction(ctx, w)
		gone := func() error {
			return env.adminClient.Get(ctx, client.ObjectKeyFromObject(t.clusterQueue), t.clusterQueue)
		}
		Eventually(gone).WithContext(ctx).Should(MatchError(apierrors.IsNotFound, "a ClusterQueue that is gone"))
	}, SpecTimeout(patience))
})
