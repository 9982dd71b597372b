package e2e_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
)

// editor gives a user the role edit in the namespace of the team, and returns a client of that user. RBAC applies as soon as the API server
// has observed the binding.
func (t team) editor(ctx context.Context, user string) client.Client {
	GinkgoHelper()
	Expect(env.Admin.Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: user},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	})).To(Succeed())
	c, err := env.As(user)
	Expect(err).NotTo(HaveOccurred())
	return c
}

// These tests run with the manager: the attempts themselves, by all users and on every field, are in test/integration.
var _ = Describe("A tenant with the role edit", func() {
	merge := func(patch string) client.Patch { return client.RawPatch(types.MergePatchType, []byte(patch)) }

	It("can neither start a pending JobSet nor move a running one", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "15")
		alice := t.editor(ctx, "alice")
		Expect(env.Admin.Create(ctx, &kueue.LocalQueue{
			ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: "other"},
			Spec:       kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(t.namespace)},
		})).To(Succeed())
		Eventually(func() error { return alice.Create(ctx, t.fineTune("runs")) }).WithContext(ctx).Should(Succeed())
		t.end(ctx, "runs", "initializer", corev1.PodSucceeded)
		t.expectStages(ctx, "runs", "trainer-node=ready")

		By("submitting one that must wait for the GPUs of the first")
		waits := t.newJobSet("waits", replicatedJob{name: "trainer", gpus: "15"})
		Expect(alice.Create(ctx, waits)).To(Succeed())
		t.expectStages(ctx, "waits", "trainer=waiting")
		job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: "waits-trainer-0"}}
		Eventually(func() error { return alice.Get(ctx, client.ObjectKeyFromObject(job), job) }).WithContext(ctx).Should(Succeed())

		By("starting it")
		started, resumed := waits.DeepCopy(), job.DeepCopy()
		Expect(alice.Patch(ctx, started, merge(`{"spec":{"suspend":false}}`))).To(Succeed())
		Expect(started.Spec.Suspend).To(HaveValue(BeTrue()), "the write has no effect")
		Expect(alice.Patch(ctx, resumed, merge(`{"spec":{"suspend":false}}`))).To(Succeed())
		Expect(resumed.Spec.Suspend).To(HaveValue(BeTrue()), "the write has no effect")

		By("removing the hold, and forging labels of the manager")
		for object, patch := range map[client.Object]string{
			job.DeepCopy():   `{"metadata":{"labels":{"tranche.dev/hold":null}}}`,
			waits.DeepCopy(): `{"metadata":{"annotations":{"tranche.dev/started":"true"}}}`,
		} {
			Expect(alice.Patch(ctx, object, merge(patch))).To(MatchError(ContainSubstring("only Tranche's manager")))
		}
		Expect(alice.Patch(ctx, job.DeepCopy(), merge(`{"metadata":{"labels":{"jobset.sigs.k8s.io/replicatedjob-name":"initializer"}}}`))).NotTo(Succeed())

		By("admitting it")
		for _, w := range t.workloads(ctx, Default) {
			status := `{"status":{"conditions":[{"type":"Admitted","status":"True","reason":"Forged","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`
			Expect(apierrors.IsForbidden(alice.Status().Patch(ctx, w.DeepCopy(), merge(status)))).To(BeTrue())
			Expect(apierrors.IsForbidden(alice.Delete(ctx, w.DeepCopy()))).To(BeTrue())
		}

		By("moving the running one")
		runs := &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: "runs"}}
		Expect(alice.Patch(ctx, runs, merge(`{"metadata":{"labels":{"kueue.x-k8s.io/queue-name":"other"}}}`))).To(MatchError(ContainSubstring("suspend it")))

		By("moving the pending one, which is allowed")
		Expect(alice.Patch(ctx, waits.DeepCopy(), merge(`{"metadata":{"labels":{"kueue.x-k8s.io/queue-name":"other"}}}`))).To(Succeed())
		Eventually(func(g Gomega) {
			for _, w := range t.workloads(ctx, g) {
				if w.Labels[apis.JobSetLabel] == "waits" {
					g.Expect(w.Spec.QueueName).To(Equal(kueue.LocalQueueName("other")))
				}
			}
		}).WithContext(ctx).Should(Succeed())
		Expect(t.pods(ctx, Default, "trainer")).To(BeEmpty())
		t.end(ctx, "runs", "trainer-node", corev1.PodSucceeded)
		t.expectStages(ctx, "waits", "trainer=ready")
	}, SpecTimeout(specTimeout))
})
