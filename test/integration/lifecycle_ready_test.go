package integration_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	eventsv1 "k8s.io/api/events/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/test/controlplane"
)

var _ = Describe("Stages whose pods are not ready in time", Ordered, func() {
	// A back-off is observed while it lasts.
	const timeout, recoveryTimeout, backoff = 4 * time.Second, 60 * time.Second, 5 * time.Second
	var t *tenant

	BeforeAll(func(ctx SpecContext) {
		startManager(ctx, map[string]any{"waitForPodsReady": map[string]any{
			"enable": true, "timeout": timeout.String(), "recoveryTimeout": recoveryTimeout.String(),
			"requeuingStrategy": map[string]any{"backoffBaseSeconds": int(backoff.Seconds()), "backoffLimitCount": 2},
		}})
	}, NodeTimeout(patience))
	BeforeEach(func(ctx SpecContext) { t = newQueue(ctx) }, NodeTimeout(patience))

	// report gives the state of the pods, as the controller of a stage does.
	report := func(ctx SpecContext, w *kueue.Workload, status metav1.ConditionStatus, reason string, since time.Time) {
		GinkgoHelper()
		write(ctx, w, apis.FieldManager, func(s *kueue.WorkloadStatus) {
			s.Conditions = []metav1.Condition{condition(kueue.WorkloadPodsReady, status, reason, since)}
		})
	}

	It("requeue after a back-off that doubles, and are deactivated after the last attempt", func(ctx SpecContext) {
		ready := t.reserved(ctx, "ready", spot)
		report(ctx, ready, metav1.ConditionTrue, kueue.WorkloadStarted, time.Now())
		w := t.reserved(ctx, "train", spot)
		since := find(expect(ctx, w, "Admitted=True Admitted"), kueue.WorkloadAdmitted).LastTransitionTime
		finishEviction(ctx, w)
		now := expect(ctx, w, "Evicted=True PodsReadyTimeout", "Requeued=False PodsReadyTimeout", "no admission", "count 1", "requeueAt")
		evicted := find(now, kueue.WorkloadEvicted).LastTransitionTime
		Expect(evicted.Sub(since.Time)).To(BeNumerically(">=", timeout))
		Expect(now.Status.RequeueState.RequeueAt.Sub(evicted.Time)).To(Equal(backoff))
		expectEvent(ctx, w, "EvictedDueToPodsReadyTimeout")
		now = expect(ctx, w, "Requeued=True BackoffFinished", "count 1", "no requeueAt")
		Expect(find(now, kueue.WorkloadRequeued).LastTransitionTime.Time).NotTo(BeTemporally("<", evicted.Add(backoff)))

		long := time.Now().Add(-time.Hour)
		reserve(ctx, now, spot, long, admittedSince(long))
		finishEviction(ctx, w)
		now = expect(ctx, w, "Evicted=True PodsReadyTimeout", "Requeued=False PodsReadyTimeout", "no admission", "count 2", "requeueAt")
		Expect(now.Status.RequeueState.RequeueAt.Sub(find(now, kueue.WorkloadEvicted).LastTransitionTime.Time)).To(Equal(2 * backoff))

		reserve(ctx, expect(ctx, w, "Requeued=True BackoffFinished"), spot, long, admittedSince(long))
		finishEviction(ctx, w)
		expect(ctx, w, "inactive", "Evicted=True DeactivatedDueToRequeuingLimitExceeded", "no admission", "no count")
		expectEvent(ctx, w, "RequeuingLimitExceeded")
		setActive(ctx, w, true)
		expect(ctx, w, "Requeued=True Reactivated", "no count")
		expect(ctx, ready, "Admitted=True Admitted", "no Evicted")
	}, SpecTimeout(patience))

	It("have a separate timeout to recover", func(ctx SpecContext) {
		w, other := t.reserved(ctx, "train", spot), t.reserved(ctx, "other", spot)
		long := time.Now().Add(-time.Hour)
		report(ctx, other, metav1.ConditionFalse, kueue.WorkloadWaitForRecovery, time.Now().Add(-recoveryTimeout/2))
		report(ctx, w, metav1.ConditionFalse, kueue.WorkloadWaitForRecovery, time.Now().Add(-2*recoveryTimeout))
		reserve(ctx, other, spot, long, admittedSince(long))
		reserve(ctx, w, spot, long, admittedSince(long))
		finishEviction(ctx, w)
		now := expect(ctx, w, "Evicted=True PodsReadyTimeout", "no admission", "count 1")
		Expect(now.Status.SchedulingStats.Evictions).To(ConsistOf(kueue.WorkloadSchedulingStatsEviction{
			Reason: kueue.WorkloadEvictedByPodsReadyTimeout, UnderlyingCause: kueue.WorkloadWaitForRecovery, Count: 1,
		}))
		expect(ctx, other, "Admitted=True Admitted", "no Evicted")
	}, SpecTimeout(patience))

	// The second stage exists from the beginning, and waits for longer than the timeout until it is opened.
	It("are measured from their own admission", func(ctx SpecContext) {
		js := newQueued(t.namespace, "train", "first", "second")
		js.Labels[apis.QueueLabel] = t.localQueue.Name
		js.Spec.ReplicatedJobs[0].Template.Spec.Template.Annotations[controlplane.FakeRunTime] = (timeout + 2*time.Second).String()
		js.Spec.ReplicatedJobs[1].DependsOn = []jobset.DependsOn{{Name: "first", Status: jobset.DependencyComplete}}
		Expect(env.adminClient.Create(ctx, js)).To(Succeed())
		DeferCleanup(deleteJobSets, t.namespace)
		Eventually(func(g Gomega) {
			g.Expect(get(ctx, js).Status.TerminalState).To(BeEquivalentTo(jobset.JobSetCompleted))
		}).WithContext(ctx).Should(Succeed())
		var list kueue.WorkloadList
		Expect(env.adminClient.List(ctx, &list, client.InNamespace(t.namespace))).To(Succeed())
		Expect(list.Items).To(HaveLen(2))
		for i := range list.Items {
			expect(ctx, &list.Items[i], "no Evicted", "no count")
		}
	}, SpecTimeout(patience))

	It("evict their JobSet, with the reason in its condition", func(ctx SpecContext) {
		js := newQueued(t.namespace, "train", "main")
		js.Labels[apis.QueueLabel] = t.localQueue.Name
		js.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.NodeSelector = map[string]string{"no-node": "has-this"}
		Expect(env.adminClient.Create(ctx, js)).To(Succeed())
		DeferCleanup(deleteJobSets, t.namespace)
		var list kueue.WorkloadList
		Eventually(func(g Gomega) {
			g.Expect(env.adminClient.List(ctx, &list, client.InNamespace(t.namespace))).To(Succeed())
			g.Expect(list.Items).To(HaveLen(1))
		}).WithContext(ctx).Should(Succeed())
		expect(ctx, &list.Items[0], "Evicted=True PodsReadyTimeout", "count 1")
		Eventually(func(g Gomega) {
			g.Expect(env.adminClient.Get(ctx, client.ObjectKeyFromObject(js), js)).To(Succeed())
			g.Expect(whyItWaits(js)).To(Equal(kueue.WorkloadEvictedByPodsReadyTimeout))
			var told eventsv1.EventList
			g.Expect(env.adminClient.List(ctx, &told, client.InNamespace(js.Namespace))).To(Succeed())
			g.Expect(told.Items).To(ContainElement(And(
				HaveField("Regarding.UID", js.UID), HaveField("Reason", "StageEvicted"),
				HaveField("Note", ContainSubstring("Exceeded the PodsReady timeout of 4s (waitForPodsReady.timeout): 1 of 1 pods were not ready: 1 without a node (0/")),
			)))
		}).WithContext(ctx).Should(Succeed())
	}, SpecTimeout(patience))
})

func whyItWaits(js *jobsetapi.JobSet) string {
	if c := apimeta.FindStatusCondition(js.Status.Conditions, "StageAdmitted"); c != nil && c.Status == metav1.ConditionFalse {
		return c.Reason
	}
	return ""
}
