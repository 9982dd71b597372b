package e2e_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
)

var _ = Describe("A more important JobSet", func() {
	It("preempts a JobSet with two running stages as a whole after their minimum runtime, and it resumes after its last finished stage", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "20")
		queue := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: t.namespace}}
		patch := client.RawPatch(types.MergePatchType, []byte(
			`{"metadata":{"annotations":{"tranche.dev/minimum-runtime":"1h"}},"spec":{"preemption":{"withinClusterQueue":"LowerPriority"}}}`))
		Expect(env.Admin.Patch(ctx, queue, patch)).To(Succeed())
		submit(ctx, t.deepSpeed("victim"))
		t.end(ctx, "victim", "initializer", corev1.PodSucceeded)
		t.expectStages(ctx, "victim", "launcher=ready", "trainer-node=ready")

		early := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"tranche.dev/checkpointed-at":"2999-01-01T00:00:00Z"}}}`))
		Expect(env.Admin.Patch(ctx, &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: "victim"}}, early)).To(Succeed())
		t.expectEvent(ctx, "victim", "CheckpointIgnored")
		t.createUrgent(ctx, "20")
		t.expectSays(ctx, "urgent", kueue.WorkloadQuotaReservedReasonWaitingForQuota, "run for their minimum runtime first, the next until")
		newTeam(ctx, "1", "0").awaitHandled(ctx)
		t.expectNow(ctx, "victim", "launcher=ready", "trainer-node=ready")
		Expect(t.evictions(ctx, "victim", "launcher")+t.evictions(ctx, "victim", "trainer-node")).To(BeZero(), "its minimum runtime has not ended")
		shorter := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"tranche.dev/minimum-runtime":"1s"}}}`))
		Expect(env.Admin.Patch(ctx, queue, shorter)).To(Succeed())
		t.expectStages(ctx, "urgent", "urgent=ready")
		t.expectStages(ctx, "victim", "initializer=Succeeded", "launcher=waiting", "trainer-node=closed")
		for _, stage := range []string{"launcher", "trainer-node"} {
			w := t.workload(ctx, Default, "victim", stage)
			Expect(stateOf(w)).To(HaveKeyWithValue("Preempted", "True InClusterQueue"), stage)
		}
		t.expectEvent(ctx, "victim", "StageEvicted")

		t.end(ctx, "urgent", "urgent", corev1.PodSucceeded)
		t.expectStages(ctx, "victim", "launcher=ready", "trainer-node=ready")
		t.end(ctx, "victim", "trainer-node", corev1.PodSucceeded)
		t.end(ctx, "victim", "launcher", corev1.PodSucceeded)
		t.expectOver(ctx, "victim", jobset.JobSetCompleted)
		t.expectNoRestart(ctx, "victim")
	}, SpecTimeout(specTimeout))

	It("gives a JobSet notice, withdraws the notice when it is deleted, and preempts it at the end of the next notice", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "20")
		queue := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: t.namespace}}
		patch := client.RawPatch(types.MergePatchType, []byte(
			`{"metadata":{"annotations":{"tranche.dev/preemption-notice":"1h"}},"spec":{"preemption":{"withinClusterQueue":"LowerPriority"}}}`))
		Expect(env.Admin.Patch(ctx, queue, patch)).To(Succeed())
		submit(ctx, t.deepSpeed("victim"))
		t.end(ctx, "victim", "initializer", corev1.PodSucceeded)
		t.expectStages(ctx, "victim", "launcher=ready", "trainer-node=ready")

		t.createUrgent(ctx, "20")
		t.expectNotice(ctx, "victim", metav1.ConditionTrue, kueue.InClusterQueueReason)
		t.expectSays(ctx, "urgent", kueue.WorkloadQuotaReservedReasonWaitingForPreemptedWorkloads, "they have notice until")
		t.expectStages(ctx, "victim", "launcher=ready", "trainer-node=ready")
		for _, stage := range []string{"launcher", "trainer-node"} {
			notice := quotaworkload.NoticeOf(t.workload(ctx, Default, "victim", stage))
			Expect(notice).NotTo(BeNil(), stage)
			Expect(notice.Preemptor).To(Equal(t.workload(ctx, Default, "urgent", "urgent").UID), stage)
			Expect(time.Until(notice.Ends)).To(BeNumerically("~", time.Hour, 5*time.Minute), stage)
		}
		t.expectEvent(ctx, "victim", "PreemptionPending")
		By("waiting as docs/researcher.md does")
		Expect(env.Kubectl(ctx, "-n", t.namespace, "wait", "jobset/victim", "--for=condition=PreemptionPending", "--timeout=-1s")).To(Succeed())

		Expect(env.Admin.Delete(ctx, &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: "urgent"}},
			client.PropagationPolicy(metav1.DeletePropagationForeground))).To(Succeed())
		t.expectNotice(ctx, "victim", metav1.ConditionFalse, "Withdrawn")
		t.expectEvent(ctx, "victim", "PreemptionWithdrawn")
		t.expectStages(ctx, "victim", "launcher=ready", "trainer-node=ready")
		Eventually(func() bool {
			return apierrors.IsNotFound(env.Admin.Get(ctx, client.ObjectKey{Namespace: t.namespace, Name: "urgent"}, &jobsetapi.JobSet{}))
		}).WithContext(ctx).Should(BeTrue())

		shorter := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"tranche.dev/preemption-notice":"1s"}}}`))
		Expect(env.Admin.Patch(ctx, queue, shorter)).To(Succeed())
		t.createUrgent(ctx, "20")
		t.expectStages(ctx, "urgent", "urgent=ready")
		t.expectStages(ctx, "victim", "initializer=Succeeded", "launcher=waiting", "trainer-node=closed")
		t.expectNotice(ctx, "victim", metav1.ConditionFalse, kueue.WorkloadEvictedByPreemption)
		Expect(t.evictions(ctx, "victim", "launcher")).To(Equal(1), "the notice that was withdrawn has evicted nothing")
		t.expectNoRestart(ctx, "victim")
	}, SpecTimeout(specTimeout))
})

// expectNotice waits for the condition PreemptionPending of a JobSet.
func (t team) expectNotice(ctx context.Context, name string, status metav1.ConditionStatus, reason string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		c := apimeta.FindStatusCondition(t.jobSet(ctx, g, name).Status.Conditions, apis.PreemptionPendingCondition)
		g.Expect(c).NotTo(BeNil())
		g.Expect(*c).To(And(HaveField("Status", status), HaveField("Reason", reason)))
	}).WithContext(ctx).Should(Succeed())
}
