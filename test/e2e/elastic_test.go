package e2e_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
)

var _ = Describe("An elastic JobSet", func() {
	It("gives back what it needs no more when it shrinks, and queues for all of it when it has grown while suspended", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "15")
		js := slowly(t.fineTune("elastic"), "1s")
		js.Spec.ReplicatedJobs[1].Template.Spec.CompletionMode = ptr.To(batchv1.IndexedCompletion)
		submit(ctx, js)
		t.end(ctx, "elastic", "initializer", corev1.PodSucceeded)
		t.expectStages(ctx, "elastic", "trainer-node=ready")
		submit(ctx, t.newJobSet("rival", replicatedJob{name: "main", cpus: "1", gpus: "5"}))
		t.expectStages(ctx, "rival", "main=waiting")

		By("growing while it runs, which would start pods before there is quota for them")
		Expect(t.scale(ctx, "elastic", 1, 4)).To(MatchError(ContainSubstring("larger while spec.suspend is true")))

		By("shrinking")
		Expect(t.scale(ctx, "elastic", 1, 2)).To(Succeed())
		t.expectStages(ctx, "rival", "main=ready")
		Expect(t.podsOf(ctx, Default, "elastic", "trainer-node")).To(HaveLen(2))
		t.expectReserved(ctx, "15")

		By("growing while it is suspended: the rival has a part of what it needs")
		suspend(ctx, js, true)
		Expect(t.scale(ctx, "elastic", 1, 3)).To(Succeed())
		suspend(ctx, js, false)
		t.expectStages(ctx, "elastic", "initializer=Succeeded", "trainer-node=waiting")
		t.expectReserved(ctx, "5")
		t.end(ctx, "rival", "main", corev1.PodSucceeded)
		t.expectStages(ctx, "elastic", "trainer-node=ready")
		Expect(t.podsOf(ctx, Default, "elastic", "trainer-node")).To(HaveLen(3))
		t.expectReserved(ctx, "15")
		t.drive(ctx, "elastic")
		t.expectNoRestart(ctx, "elastic")
		t.expectReserved(ctx, "0")
	}, SpecTimeout(specTimeout))

	It("queues for what it is when it shrinks before it has started", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "15")
		js := t.newJobSet("large", replicatedJob{name: "main", pods: 4, gpus: "5"})
		js.Spec.ReplicatedJobs[0].Template.Spec.CompletionMode = ptr.To(batchv1.IndexedCompletion)
		submit(ctx, js)
		t.expectStages(ctx, "large", "main=waiting")
		Expect(t.scale(ctx, "large", 0, 3)).To(Succeed())
		t.expectStages(ctx, "large", "main=ready")
		t.expectReserved(ctx, "15")
		t.drive(ctx, "large")
		t.expectOver(ctx, "large", jobset.JobSetCompleted)
	}, SpecTimeout(specTimeout))
})

// scale changes how many pods the Jobs of a ReplicatedJob have.
func (t team) scale(ctx context.Context, name string, replicatedJob int, pods int32) error {
	var err error
	Eventually(func(g Gomega) {
		js := t.get(ctx, g, name)
		spec := &js.Spec.ReplicatedJobs[replicatedJob].Template.Spec
		spec.Parallelism, spec.Completions = &pods, &pods
		err = env.Admin.Update(ctx, js)
		g.Expect(apierrors.IsConflict(err)).To(BeFalse())
	}).WithContext(ctx).Should(Succeed())
	return err
}
