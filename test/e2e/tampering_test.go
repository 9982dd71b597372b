package e2e_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
)

var _ = Describe("Quota that a finalizer or a changed label could retain or release early", func() {
	merge := func(patch string) client.Patch { return client.RawPatch(types.MergePatchType, []byte(patch)) }
	const finalizer = `{"metadata":{"finalizers":["example.com/mine"]}}`

	// pin adds a finalizer to an object as a tenant, deletes the object, and removes the finalizer when the spec ends.
	pin := func(ctx context.Context, tenant client.Client, object client.Object) {
		GinkgoHelper()
		Eventually(func() error { return tenant.Patch(ctx, object, merge(finalizer)) }).WithContext(ctx).Should(Succeed())
		DeferCleanup(func(ctx SpecContext) {
			Expect(client.IgnoreNotFound(env.Admin.Patch(ctx, object, merge(`{"metadata":{"finalizers":null}}`)))).To(Succeed())
		})
		Expect(tenant.Delete(ctx, object, client.PropagationPolicy(metav1.DeletePropagationBackground))).To(Succeed())
		Expect(env.Admin.Get(ctx, client.ObjectKeyFromObject(object), object)).To(Succeed())
		Expect(object.GetDeletionTimestamp()).NotTo(BeNil())
	}

	It("goes to the pending JobSet when a JobSet is deleted, even if a finalizer keeps the deleted JobSet", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "15")
		submit(ctx, t.training("victim"))
		t.expectStages(ctx, "victim", "trainer=ready")
		t.submitUrgent(ctx, "15")
		pin(ctx, t.editor(ctx, "alice"), t.get(ctx, Default, "victim"))
		t.expectStages(ctx, "urgent", "urgent=ready")
		Expect(t.podsOf(ctx, Default, "victim", "trainer")).To(BeEmpty())
		Expect(t.workloadsOf(ctx, Default, "victim", "trainer")).To(BeEmpty())
		Expect(t.get(ctx, Default, "victim").Finalizers).To(ConsistOf("example.com/mine"))
		t.expectEvent(ctx, "victim", "Stopped")
	}, SpecTimeout(specTimeout))

	It("goes to the pending JobSet when a JobSet is evicted, even if a finalizer keeps a deleted Job", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "15")
		submit(ctx, t.training("victim"))
		t.expectStages(ctx, "victim", "trainer=ready")
		t.submitUrgent(ctx, "15")
		pin(ctx, t.editor(ctx, "alice"), &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: "victim-trainer-0"}})
		t.evict(ctx, "victim", "trainer", preemption)
		t.expectStages(ctx, "urgent", "urgent=ready")
		Expect(t.podsOf(ctx, Default, "victim", "trainer")).To(BeEmpty())
		t.expectEvent(ctx, "victim", "PodEnded")
	}, SpecTimeout(specTimeout))

	It("is held until all pods have terminated, including pods whose JobSet label an administrator removed", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "15")
		submit(ctx, slowly(t.training("victim"), "4s"))
		t.expectStages(ctx, "victim", "trainer=ready")
		t.submitUrgent(ctx, "15")
		own := t.pods(ctx, Default, "trainer")
		for i := range own {
			Expect(env.Admin.Patch(ctx, own[i].DeepCopy(), merge(`{"metadata":{"labels":{"jobset.sigs.k8s.io/jobset-uid":null}}}`))).To(Succeed())
		}
		Expect(env.Admin.Delete(ctx, &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: "victim"}})).To(Succeed())
		t.expectStages(ctx, "urgent", "urgent=ready")
		for i := range own {
			Expect(apierrors.IsNotFound(env.Admin.Get(ctx, client.ObjectKeyFromObject(&own[i]), &corev1.Pod{}))).To(BeTrue(), own[i].Name)
		}
	}, SpecTimeout(specTimeout))

	It("is not used twice when an administrator removes a pod's owner reference to its Job", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "15")
		submit(ctx, t.training("victim"))
		t.expectStages(ctx, "victim", "trainer=ready")
		own := t.pods(ctx, Default, "trainer")[0]
		auditor.Ignore(&own) // its Job may replace it before it has ended
		Expect(env.Admin.Patch(ctx, own.DeepCopy(), merge(`{"metadata":{"labels":{"batch.kubernetes.io/controller-uid":null,`+
			`"controller-uid":null,"batch.kubernetes.io/job-name":null,"job-name":null}}}`))).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(apierrors.IsNotFound(env.Admin.Get(ctx, client.ObjectKeyFromObject(&own), &corev1.Pod{}))).To(BeTrue())
			g.Expect(t.pods(ctx, g, "trainer")).To(HaveLen(3), "its Job has replaced it")
		}).WithContext(ctx).Should(Succeed(), func() string { return t.describe(ctx) })
		t.expectEvent(ctx, "victim", "PodEnded")
		t.expectStages(ctx, "victim", "trainer=ready")
	}, SpecTimeout(specTimeout))
})
