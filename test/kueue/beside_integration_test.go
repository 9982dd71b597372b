package kueue_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/test/controlplane"
)

var _ = Describe("With Kueue's integration of JobSets", Ordered, ContinueOnFailure, func() {
	BeforeAll(func(ctx SpecContext) {
		Expect(env.Plane.RestartKueue(ctx, controlplane.KueueOptions{Settings: map[string]any{
			"integrations":            map[string]any{"frameworks": []string{"batch/job", "pod", "jobset.x-k8s.io/jobset"}},
			"objectRetentionPolicies": map[string]any{"workloads": map[string]any{"afterFinished": "0s"}},
		}})).To(Succeed())
		DeferCleanup(func(ctx SpecContext) {
			Expect(env.Plane.RestartKueue(ctx, controlplane.KueueOptions{})).To(Succeed())
		}, NodeTimeout(2*patience))
		startBeside(ctx)
	}, NodeTimeout(3*patience))

	It("a finished stage whose Workload Kueue deletes does not run again", func(ctx SpecContext) {
		tenant(ctx, "retained", 2)
		js := ownStaged("retained", "js")
		js.Spec.ReplicatedJobs[0].Template.Spec.TTLSecondsAfterFinished = new(int32(0)) // its Jobs do not record the success either
		js.Spec.ReplicatedJobs[1].Template.Spec.Template.Annotations[controlplane.FakeRunTime] = "4"
		Expect(env.Admin.Create(ctx, js)).To(Succeed())
		first := stageOf(ctx, js, "first")
		Eventually(read(ctx, first)).WithContext(ctx).Should(HaveField("DeletionTimestamp", Not(BeNil())), "Kueue deletes it")
		Expect(first).To(haveCondition(kueue.WorkloadFinished, metav1.ConditionTrue, kueue.WorkloadFinishedReasonSucceeded))
		Eventually(func(g Gomega) { g.Expect(runs(ctx, g, js, "second")).To(BeTrue()) }).WithContext(ctx).Should(Succeed())
		now := &kueue.Workload{}
		Eventually(func(g Gomega) {
			if read(ctx, js)(g).Status.TerminalState == "" {
				g.Expect(env.Admin.Get(ctx, client.ObjectKeyFromObject(first), now)).To(Succeed())
				// Without g, so that a moment in which it runs again fails the spec.
				Expect(now.UID).To(Equal(first.UID))
				Expect(podsOf(ctx, g, js, "first")).To(BeEmpty())
			}
			g.Expect(js.Status.TerminalState).NotTo(BeEmpty())
		}).WithContext(ctx).Should(Succeed())
		Eventually(func(g Gomega) {
			var workloads kueue.WorkloadList
			g.Expect(env.Admin.List(ctx, &workloads, client.InNamespace("retained"))).To(Succeed())
			g.Expect(workloads.Items).To(BeEmpty(), "those of a finished JobSet are gone")
		}).WithContext(ctx).Should(Succeed())
	}, NodeTimeout(patience))

	for name, policy := range map[string]metav1.DeletionPropagation{
		"foreground": metav1.DeletePropagationForeground, "background": metav1.DeletePropagationBackground,
	} {
		It("a JobSet that is deleted in the "+name+" holds its quota until its last pod has ended", func(ctx SpecContext) {
			namespace := "deleted-" + name
			tenant(ctx, namespace, 2)
			js := ownStaged(namespace, "js")
			template := &js.Spec.ReplicatedJobs[0].Template.Spec.Template
			template.Annotations[controlplane.FakeRunTime], template.Annotations[controlplane.FakeStopAfter] = "600", "4"
			template.Spec.TerminationGracePeriodSeconds = new(int64(60)) // with 0, the API server removes its pods at once
			Expect(env.Admin.Create(ctx, js)).To(Succeed())
			Eventually(func(g Gomega) { g.Expect(runs(ctx, g, js, "first")).To(BeTrue()) }).WithContext(ctx).Should(Succeed())
			first := stageOf(ctx, js, "first")
			next := newJob(namespace, 2)
			Expect(env.Admin.Create(ctx, next)).To(Succeed())
			waiting := workloadOf(ctx, next)
			Expect(env.Admin.Delete(ctx, js, client.PropagationPolicy(policy))).To(Succeed())
			stopping := 0 // how often its pods were seen when it was being deleted
			Eventually(func(g Gomega) {
				read(ctx, waiting)(g) // in this order: a pod that is seen later was there before
				if pods := podsOf(ctx, g, js, "first"); len(pods) > 0 {
					stopping++
					Expect(holds(waiting)).To(BeFalse(), "the next Job got quota that pods of the JobSet still use")
				}
				g.Expect(holds(waiting)).To(BeTrue())
			}).WithContext(ctx).Should(Succeed())
			Expect(stopping).To(BeNumerically(">", 1))
			Eventually(func() error { return env.Admin.Get(ctx, client.ObjectKeyFromObject(first), first) }).WithContext(ctx).Should(MatchError(ContainSubstring("not found")))
		}, NodeTimeout(patience))
	}
})

// holds reports whether a quota Workload has reserved quota.
func holds(w *kueue.Workload) bool { return w.Status.Admission != nil }

// ownStaged returns a JobSet with two stages whose queue is named by the label of Tranche.
func ownStaged(namespace, name string) *jobsetapi.JobSet {
	js := stagedJobSet(namespace, map[string]string{apis.OwnQueueLabel: "queue"}, "1")
	js.Name = name
	return js
}
