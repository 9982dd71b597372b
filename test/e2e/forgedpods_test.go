package e2e_test

import (
	"context"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/tranche-dev/tranche/test/controlplane"
)

var _ = Describe("An evicted JobSet", func() {
	It("keeps its quota only for its own pods, and not for forged ones", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "15")
		alice := t.editor(ctx, "alice")
		submit(ctx, slowly(t.training("victim"), "3s"))
		t.expectStages(ctx, "victim", "trainer=ready")
		t.submitUrgent(ctx, "15")
		own := t.pods(ctx, Default, "trainer")

		By("refusing those of a tenant")
		Eventually(func() error { return alice.Create(ctx, forgedPod(own[0], "of-alice"), client.DryRunAll) }).WithContext(ctx).
			Should(MatchError(ContainSubstring("only the Job controller creates the pods of a JobSet")))
		plain := forgedPod(own[0], "becomes-one")
		plain.Labels = nil
		Expect(alice.Create(ctx, plain)).To(Succeed())
		Expect(alice.Patch(ctx, plain.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"jobset.sigs.k8s.io/jobset-uid":"`+
			own[0].Labels[jobset.JobSetUIDKey]+`"}}}`)))).To(MatchError(ContainSubstring("only the Job controller creates the pods of a JobSet")))

		By("not counting pods that an administrator created, with or without a Job that controls them")
		decoy := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: "decoy"}}
		decoy.Spec = batchv1.JobSpec{
			ManualSelector: new(true), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"of": "decoy"}},
			Template: t.training("x").Spec.ReplicatedJobs[0].Template.Spec.Template,
		}
		decoy.Spec.Template.Labels = decoy.Spec.Selector.MatchLabels
		Expect(env.Admin.Create(ctx, decoy)).To(Succeed())
		forged := []*corev1.Pod{forgedPod(own[0], "without-owner"), forgedPod(own[0], "of-another")}
		forged[1].OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(decoy, batchv1.SchemeGroupVersion.WithKind("Job"))}
		forged[1].Labels["of"] = "decoy"
		for _, pod := range forged {
			Expect(env.Admin.Create(ctx, pod)).To(Succeed())
		}
		DeferCleanup(func(ctx SpecContext) { t.removeForged(ctx, decoy, append(forged, plain)) })

		t.evict(ctx, "victim", "trainer", preemption)
		t.expectStopping(ctx, "victim")
		t.expectStages(ctx, "urgent", "urgent=ready")
		for i := range own {
			Expect(apierrors.IsNotFound(env.Admin.Get(ctx, client.ObjectKeyFromObject(&own[i]), &corev1.Pod{}))).To(BeTrue(), own[i].Name)
		}
		for _, pod := range forged {
			Expect(env.Admin.Get(ctx, client.ObjectKeyFromObject(pod), pod)).To(Succeed(), "it is still there, and keeps nothing")
			Expect(pod.Status.Phase).NotTo(BeElementOf(corev1.PodSucceeded, corev1.PodFailed))
		}
		Expect(metav1.IsControlledBy(forged[1], decoy)).To(BeTrue())
	}, SpecTimeout(specTimeout))
})

// forgedPod creates a pod with the JobSet labels of another pod, but without the labels by which Jobs would adopt it. It has no owner, and
// runs until it is deleted.
func forgedPod(like corev1.Pod, name string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: like.Namespace, Name: name, Labels: map[string]string{},
		Annotations: map[string]string{controlplane.FakeExit: controlplane.FakeExitNever},
	}}
	for key, value := range like.Labels {
		if strings.HasPrefix(key, "jobset.sigs.k8s.io/") {
			pod.Labels[key] = value
		}
	}
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	pod.Spec.Containers = []corev1.Container{{Name: "main", Image: "example.com/forged"}}
	return pod
}

// removeForged deletes pods that no controller deletes, and the Job of one of them.
func (t team) removeForged(ctx context.Context, decoy *batchv1.Job, pods []*corev1.Pod) {
	GinkgoHelper()
	for _, pod := range pods {
		Eventually(func() error {
			return client.IgnoreNotFound(env.Admin.Patch(ctx, pod, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))
		}).WithContext(ctx).Should(Succeed())
		Expect(client.IgnoreNotFound(env.Admin.Delete(ctx, pod, client.GracePeriodSeconds(0)))).To(Succeed())
	}
	Expect(client.IgnoreNotFound(env.Admin.Delete(ctx, decoy, client.PropagationPolicy("Background")))).To(Succeed())
}
