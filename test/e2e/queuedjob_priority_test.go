package e2e_test

import (
	"os/exec"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
)

var _ = Describe("A queued Job", func() {
	It("is preempted by a Job of a higher priority class, and runs again after that", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "4")
		t.patchQueue(ctx, `{"spec":{"preemption":{"withinClusterQueue":"LowerPriority"}}}`)
		class := &kueue.WorkloadPriorityClass{ObjectMeta: metav1.ObjectMeta{Name: t.namespace + "-high"}, Value: 1000}
		Expect(env.Admin.Create(ctx, class)).To(Succeed())
		Expect(env.Admin.Create(ctx, t.newJob("low", 2, "2"))).To(Succeed())
		t.expectJob(ctx, "low", "ready")

		high := t.newJob("high", 1, "4")
		high.Labels[apis.PriorityClassLabel] = class.Name
		Expect(env.Admin.Create(ctx, high)).To(Succeed())
		t.expectJob(ctx, "high", "ready")
		t.expectJob(ctx, "low", "waiting")
		_, w := t.queued(ctx, Default, "high")
		Expect(*w.Spec.Priority).To(Equal(int32(1000)))
		_, w = t.queued(ctx, Default, "low")
		preempted := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadPreempted)
		Expect(preempted).NotTo(BeNil())
		Expect(preempted.Reason).To(Equal(kueue.InClusterQueueReason))
		Expect(apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadEvicted).Message).To(Equal(preempted.Message + `; preemptor: Job "high"`))
		explained, err := exec.CommandContext(ctx, filepath.Join(env.Root, "bin", "tranche"), "explain", "job/low", "-n", t.namespace, "--kubeconfig", env.AdminKubeconfig).Output() // #nosec G204 -- a name of the test
		Expect(err).NotTo(HaveOccurred())
		Expect(string(explained)).To(And(HavePrefix("Job "+t.namespace+"/low\n"), ContainSubstring("WaitingForQuota: waits for quota in ClusterQueue "+t.namespace)))

		Eventually(func(g Gomega) {
			t.endPodsOf(ctx, g, "high", 1)
			_, w := t.queued(ctx, g, "high")
			g.Expect(stateOfStage(w)).To(Equal("Succeeded"))
		}).WithContext(ctx).Should(Succeed())
		t.expectJob(ctx, "low", "ready")
	}, SpecTimeout(specTimeout))

	It("is evicted and deactivated when it reaches its maximum execution time", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "4")
		job := t.newJob("long", 1, "4")
		job.Labels[apis.MaxExecTimeLabel] = "5"
		Expect(env.Admin.Create(ctx, job)).To(Succeed())
		t.expectReserved(ctx, "4")
		Expect(env.Admin.Create(ctx, t.newJob("next", 1, "4"))).To(Succeed())
		t.expectJob(ctx, "next", "ready")
		job, w := t.queued(ctx, Default, "long")
		Expect(*w.Spec.Active).To(BeFalse())
		Expect(*job.Spec.Suspend).To(BeTrue())
		Expect(t.podsOfJob(ctx, Default, "long")).To(BeEmpty())
		evicted := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadEvicted)
		Expect(evicted).NotTo(BeNil())
		Expect(evicted.Reason).To(Equal("DeactivatedDueToMaximumExecutionTimeExceeded"))
	}, SpecTimeout(specTimeout))
})
