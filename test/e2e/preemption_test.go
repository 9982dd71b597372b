package e2e_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

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
		t.expectStages(ctx, "victim", "launcher=ready", "trainer-node=ready")
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
})
