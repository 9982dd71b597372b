package kueue_test

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstatus"
	"github.com/tranche-dev/tranche/test/controlplane"
	"github.com/tranche-dev/tranche/test/sample"
)

var _ = Describe("Stages that wait while they hold quota", Ordered, ContinueOnFailure, func() {
	BeforeAll(func(ctx SpecContext) {
		startBeside(ctx)
		newSafetyCheck(ctx, "stage-safety")
	}, NodeTimeout(patience))

	It("do not deadlock with the AdmissionCheck", func(ctx SpecContext) {
		tenant(ctx, "judged-pair", 2, judgedStages)
		first, second := launcherAndWorkers("judged-pair", "first"), launcherAndWorkers("judged-pair", "second")
		Expect(env.Admin.Create(ctx, first)).To(Succeed())
		Expect(env.Admin.Create(ctx, second)).To(Succeed())
		awaitCompletion(ctx, first)
		awaitCompletion(ctx, second)
		since := func(js *jobsetapi.JobSet, stage, condition string) time.Time {
			return meta.FindStatusCondition(stageOf(ctx, js, stage).Status.Conditions, condition).LastTransitionTime.Time
		}
		if since(second, "launcher", kueue.WorkloadAdmitted).Before(since(first, "launcher", kueue.WorkloadAdmitted)) {
			first, second = second, first
		}
		Expect(since(second, "launcher", kueue.WorkloadAdmitted)).NotTo(BeTemporally("<", since(first, "workers", kueue.WorkloadFinished)), "one begins when the other needs nothing more")
	}, NodeTimeout(patience))

	It("share the AdmissionCheck with Jobs of Kueue, which are Ready at once", func(ctx SpecContext) {
		tenant(ctx, "judged-job", 2, judgedStages)
		job := newJob("judged-job", 2)
		Expect(env.Admin.Create(ctx, job)).To(Succeed())
		w := workloadOf(ctx, job)
		Eventually(read(ctx, w)).WithContext(ctx).Should(haveCondition(kueue.WorkloadFinished, metav1.ConditionTrue, ""))
	}, NodeTimeout(patience))

	It("wait until the queues of their JobSet exist", func(ctx SpecContext) {
		Expect(env.CreateNamespace(ctx, "unknown-queue", nil)).To(Succeed())
		first, second := launcherAndWorkers("unknown-queue", "first"), launcherAndWorkers("unknown-queue", "second")
		for _, js := range []*jobsetapi.JobSet{first, second} {
			Expect(env.Admin.Create(ctx, js)).To(Succeed())
			Eventually(read(ctx, js)).WithContext(ctx).Should(HaveField("Status.Conditions", ContainElement(And(
				HaveField("Type", jobsetstatus.StageAdmitted), HaveField("Status", metav1.ConditionFalse),
				HaveField("Message", ContainSubstring(`LocalQueue "queue" does not exist in namespace "unknown-queue": create it`)),
			))))
		}
		var list kueue.WorkloadList
		Expect(env.Admin.List(ctx, &list, client.InNamespace("unknown-queue"))).To(Succeed())
		Expect(list.Items).To(BeEmpty())
		createQueues(ctx, "unknown-queue", 2, judgedStages)
		awaitCompletion(ctx, first)
		awaitCompletion(ctx, second)
		Expect(env.Admin.List(ctx, &list, client.InNamespace("unknown-queue"))).To(Succeed())
		Expect(list.Items).To(HaveLen(4), "one quota Workload for each stage")
	}, NodeTimeout(patience))

	It("release their quota for each other when quota is cut for good", func(ctx SpecContext) {
		const queue = "cut"
		tenant(ctx, queue, 2, judgedStages)
		filler := lasting(newJob(queue, 2), "600")
		Expect(env.Admin.Create(ctx, filler)).To(Succeed())
		Eventually(read(ctx, workloadOf(ctx, filler))).WithContext(ctx).Should(haveCondition(kueue.WorkloadPodsReady, metav1.ConditionTrue, ""))
		first, second := launcherAndWorkers(queue, "first"), launcherAndWorkers(queue, "second")
		for _, js := range []*jobsetapi.JobSet{first, second} {
			for i := range js.Spec.ReplicatedJobs {
				js.Spec.ReplicatedJobs[i].Template.Spec.Template.Annotations[controlplane.FakeRunTime] = "600"
			}
			Expect(env.Admin.Create(ctx, js)).To(Succeed())
			_ = stageOf(ctx, js, "launcher")
		}
		patchQueue(ctx, queue, nominal(4)) // for both launchers at once: the workers of the first could take what the second needs
		for _, js := range []*jobsetapi.JobSet{first, second} {
			Eventually(func(g Gomega) { g.Expect(runs(ctx, g, js, "launcher")).To(BeTrue()) }).WithContext(ctx).Should(Succeed())
		}

		By("evicting one of two JobSets that wait for each other, so that the other one gets what it needs")
		patchQueue(ctx, queue, nominal(2))
		Expect(env.Admin.Delete(ctx, filler, client.PropagationPolicy(metav1.DeletePropagationBackground))).To(Succeed())
		var stays, leaves *jobsetapi.JobSet
		Eventually(func(g Gomega) {
			for js, other := range map[*jobsetapi.JobSet]*jobsetapi.JobSet{first: second, second: first} {
				if runs(ctx, g, js, "workers") {
					stays, leaves = js, other
				}
			}
			g.Expect(stays).NotTo(BeNil())
		}).WithContext(ctx).Should(Succeed())
		launcher := stageOf(ctx, leaves, "launcher")
		Expect(launcher.Status.SchedulingStats).To(HaveField("Evictions", ConsistOf(HaveField("Reason", kueue.WorkloadEvictedByAdmissionCheck))))
		// Kueue may reserve quota for it again before it is gated: then its condition has another message by now, and its check is Retry again.
		expectEvent(ctx, leaves, "StageRequeued", "deadlock recovery: the JobSet cannot progress in ClusterQueue cut")
		Expect(stageOf(ctx, stays, "launcher").Status.SchedulingStats).To(Or(BeNil(), HaveField("Evictions", BeEmpty())))
		Expect(podsOf(ctx, NewGomega(Fail), leaves, "launcher")).To(BeEmpty())
		Expect(read(ctx, leaves)(NewGomega(Fail)).Status.Restarts).To(BeZero())

		By("running the first again when the other has released its quota")
		Expect(env.Admin.Delete(ctx, stays, client.PropagationPolicy(metav1.DeletePropagationBackground))).To(Succeed())
		Eventually(func(g Gomega) { g.Expect(runs(ctx, g, leaves, "workers")).To(BeTrue()) }).WithContext(ctx).Should(Succeed())
	}, NodeTimeout(2*patience))

	It("are admitted together without the AdmissionCheck, and Events name the cure", func(ctx SpecContext) {
		tenant(ctx, "unjudged-pair", 2)
		first, second := launcherAndWorkers("unjudged-pair", "first"), launcherAndWorkers("unjudged-pair", "second")
		Expect(env.Admin.Create(ctx, first)).To(Succeed())
		Expect(env.Admin.Create(ctx, second)).To(Succeed())
		awaitCompletion(ctx, first)
		awaitCompletion(ctx, second)
		for _, js := range []*jobsetapi.JobSet{first, second} {
			expectWhole(ctx, js)
			expectEvent(ctx, js, "StagesNotProtected", "ClusterQueue unjudged-pair has no AdmissionCheck with controllerName tranche.dev/stage-safety for all of its flavors")
		}
	}, NodeTimeout(patience))

	It("are admitted together in a strict queue, or wait if all of their Jobs would start at once", func(ctx SpecContext) {
		const queue = "strict-pair"
		tenant(ctx, queue, 2, judgedStages, func(cq *kueue.ClusterQueue) { cq.Spec.QueueingStrategy = kueue.StrictFIFO })
		whole, inOrder := launcherAndWorkers(queue, "whole"), launcherAndWorkers(queue, "in-order")
		inOrder.Spec.ReplicatedJobs[1].DependsOn = nil
		inOrder.Spec.StartupPolicy = &jobsetapi.StartupPolicy{StartupPolicyOrder: jobset.InOrder}
		Expect(env.Admin.Create(ctx, whole)).To(Succeed())
		Expect(env.Admin.Create(ctx, inOrder)).To(Succeed())
		awaitCompletion(ctx, whole)
		expectWhole(ctx, whole)
		expectEvent(ctx, whole, "StagesNotProtected", "set queueingStrategy: BestEffortFIFO")
		Eventually(read(ctx, inOrder)).WithContext(ctx).Should(HaveField("Status.Conditions", ContainElement(And(
			HaveField("Type", jobsetstatus.StageAdmitted), HaveField("Status", metav1.ConditionFalse),
			HaveField("Message", ContainSubstring("the JobSet would hold quota while it waits for more, and could deadlock: queueingStrategy StrictFIFO")),
		))))

		By("running a later Job on all quota")
		later := newJob(queue, 2)
		Expect(env.Admin.Create(ctx, later)).To(Succeed())
		Eventually(read(ctx, workloadOf(ctx, later))).WithContext(ctx).Should(haveCondition(kueue.WorkloadFinished, metav1.ConditionTrue, ""))
		var list kueue.WorkloadList
		Expect(env.Admin.List(ctx, &list, client.InNamespace(queue), client.MatchingLabels{apis.JobSetLabel: inOrder.Name})).To(Succeed())
		for i := range list.Items {
			Expect(holds(&list.Items[i])).To(BeFalse(), list.Items[i].Name)
		}
		Expect(podsOf(ctx, NewGomega(Fail), inOrder, "launcher")).To(BeEmpty())
	}, NodeTimeout(patience))
})

func judgedStages(cq *kueue.ClusterQueue) { checked("stage-safety")(cq) }

// newSafetyCheck creates an AdmissionCheck that our manager answers, and waits until it is active.
func newSafetyCheck(ctx context.Context, name string) {
	GinkgoHelper()
	check := &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: kueue.AdmissionCheckSpec{ControllerName: apis.StageSafetyController}}
	Expect(env.Admin.Create(ctx, check)).To(Succeed())
	Eventually(func(g Gomega) {
		g.Expect(meta.IsStatusConditionTrue(read(ctx, check)(g).Status.Conditions, kueue.AdmissionCheckActive)).To(BeTrue())
	}).WithContext(ctx).Should(Succeed())
}

// launcherAndWorkers returns a JobSet whose launcher keeps its GPU until its worker, which needs another one, has run.
func launcherAndWorkers(namespace, name string) *jobsetapi.JobSet {
	one := sample.Amounts(string(gpu), "1")
	launcher := sample.ReplicatedJob("launcher", 1, one, map[string]string{controlplane.FakeRunTime: "5"})
	workers := sample.ReplicatedJob("workers", 1, one, map[string]string{controlplane.FakeRunTime: "1"})
	workers.DependsOn = []jobset.DependsOn{{Name: "launcher", Status: jobset.DependencyReady}}
	js := &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{apis.QueueLabel: "queue"}}}
	js.Spec.ReplicatedJobs = []jobsetapi.ReplicatedJob{launcher, workers}
	return js
}

// nominal is a change of a ClusterQueue of a tenant, to so many GPUs.
func nominal(gpus int64) string {
	return fmt.Sprintf(`{"spec":{"resourceGroups":[{"coveredResources":[%q],"flavors":[{"name":%q,"resources":[{"name":%q,"nominalQuota":"%d"}]}]}]}}`, gpu, flavor, gpu, gpus)
}

// expectEvent expects an Event about a JobSet.
func expectEvent(ctx context.Context, js *jobsetapi.JobSet, reason, note string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		var list eventsv1.EventList
		g.Expect(env.Admin.List(ctx, &list, client.InNamespace(js.Namespace))).To(Succeed())
		g.Expect(list.Items).To(ContainElement(And(HaveField("Regarding.UID", js.UID), HaveField("Reason", reason), HaveField("Note", ContainSubstring(note)))))
	}).WithContext(ctx).Should(Succeed())
}

// expectWhole expects one quota Workload for all ReplicatedJobs of a JobSet.
func expectWhole(ctx context.Context, js *jobsetapi.JobSet) {
	GinkgoHelper()
	var list kueue.WorkloadList
	Expect(env.Admin.List(ctx, &list, client.InNamespace(js.Namespace), client.MatchingLabels{apis.JobSetLabel: js.Name})).To(Succeed())
	Expect(list.Items).To(HaveLen(1))
	Expect(list.Items[0].Spec.PodSets).To(HaveLen(2))
}
