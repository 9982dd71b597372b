package e2e_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/test/controlplane"
)

var _ = Describe("An object that a user deletes", func() {
	It("is recreated: a child Job, after the pods of the deleted Job have terminated", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "15")
		submit(ctx, slowly(t.training("child"), "2s"))
		t.expectStages(ctx, "child", "trainer=ready")

		By("deleting a Job that runs")
		before, uid := t.jobUIDs(ctx, Default), t.workload(ctx, Default, "child", "trainer").UID
		t.deleteJob(ctx, "child-trainer-0")
		Eventually(func(g Gomega) {
			alive := t.podsOf(ctx, g, "child", "trainer")
			Expect(len(alive)).To(BeNumerically("<=", 3), "more pods than the stage has quota for")
			g.Expect(t.jobUIDs(ctx, g)["child-trainer-0"]).NotTo(Equal(before["child-trainer-0"]))
			g.Expect(ptr.Deref(t.job(ctx, g, "trainer").Status.Ready, 0)).To(Equal(int32(3)))
		}).WithContext(ctx).Should(Succeed(), func() string { return t.describe(ctx) })
		Expect(t.workload(ctx, Default, "child", "trainer").UID).To(Equal(uid))
		t.expectReserved(ctx, "15")
		t.drive(ctx, "child")
		t.expectNoRestart(ctx, "child")
	}, SpecTimeout(specTimeout))

	It("is recreated: the quota Workload of a stage, after the pods of the stage have terminated", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "20")
		submit(ctx, slowly(t.deepSpeed("mpi"), "1s"))
		t.expectStages(ctx, "mpi", "initializer=ready", "launcher=closed", "trainer-node=closed")
		t.replaceWorkload(ctx, "mpi", "trainer-node", "closed")
		t.replaceWorkload(ctx, "mpi", "initializer", "ready")
		t.end(ctx, "mpi", "initializer", corev1.PodSucceeded)
		t.expectStages(ctx, "mpi", "initializer=Succeeded", "launcher=ready", "trainer-node=ready")
		t.replaceWorkload(ctx, "mpi", "initializer", "Succeeded")
		t.succeedOne(ctx, "mpi", "trainer-node")
		t.replaceWorkload(ctx, "mpi", "trainer-node", "ready")
		Eventually(func(g Gomega) {
			for _, job := range t.jobs(ctx, g, "trainer-node") {
				g.Expect(job.Status.Succeeded).To(BeZero(), "the gang starts whole")
				g.Expect(ptr.Deref(job.Status.Ready, 0)).To(Equal(int32(3)))
			}
		}).WithContext(ctx).Should(Succeed(), func() string { return t.describe(ctx) })
		t.replaceWorkload(ctx, "mpi", "launcher", "ready")
		t.expectReserved(ctx, "20")
		t.drive(ctx, "mpi")
		t.expectNoRestart(ctx, "mpi")
		t.expectReserved(ctx, "0")
	}, SpecTimeout(specTimeout))
})

var _ = Describe("While a JobSet runs", func() {
	It("the JobSet controller may be down: the JobSet resumes without loss when the controller is back", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "20")
		submit(ctx, t.fineTune("half"))
		submit(ctx, t.newJobSet("hog", replicatedJob{name: "main", cpus: "1", gpus: "5"}))
		submit(ctx, slowly(t.training("evicted"), "500ms"))
		t.expectStages(ctx, "half", "initializer=ready")
		t.expectStages(ctx, "hog", "main=ready")
		t.expectStages(ctx, "evicted", "trainer=ready")
		submit(ctx, t.newJobSet("next", replicatedJob{name: "main", cpus: "1", gpus: "5"}))
		t.expectStages(ctx, "next", "main=waiting")
		t.succeedOne(ctx, "evicted", "trainer")

		Expect(env.Plane.KillComponent(controlplane.JobSet)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(env.Plane.StartComponent(ctx, controlplane.JobSet)).To(Succeed()) })
		t.end(ctx, "half", "initializer", corev1.PodSucceeded)
		t.expectStages(ctx, "half", "initializer=Succeeded", "trainer-node=waiting")
		t.end(ctx, "hog", "main", corev1.PodSucceeded)
		t.expectStages(ctx, "hog", "main=Succeeded")
		t.expectStages(ctx, "next", "main=admitted")
		t.evict(ctx, "evicted", "trainer", preemption)
		t.expectEvent(ctx, "evicted", "StageRequeued")

		Expect(env.Plane.StartComponent(ctx, controlplane.JobSet)).To(Succeed())
		t.drive(ctx, "half", "hog", "evicted", "next")
		for _, name := range []string{"half", "hog", "evicted", "next"} {
			t.expectNoRestart(ctx, name)
		}
		t.expectReserved(ctx, "0")
	}, SpecTimeout(specTimeout))

	It("the labels of its flavor may change: new pods get the new labels, and Jobs that are held again lose the old ones", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "15")
		flavor := &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: t.namespace}, Spec: kueue.ResourceFlavorSpec{
			NodeLabels: map[string]string{corev1.LabelHostname: "a100-1"}, Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		}}
		Expect(env.Admin.Create(ctx, flavor)).To(Succeed())
		Eventually(func(g Gomega) {
			var queue kueue.ClusterQueue
			g.Expect(env.Admin.Get(ctx, client.ObjectKey{Name: t.namespace}, &queue)).To(Succeed())
			queue.Spec.ResourceGroups[1].Flavors[0].Name = kueue.ResourceFlavorReference(flavor.Name)
			g.Expect(env.Admin.Update(ctx, &queue)).To(Succeed())
		}).WithContext(ctx).Should(Succeed())
		js := t.training("moving")
		js.Spec.FailurePolicy = &jobset.FailurePolicy{MaxRestarts: 1}
		submit(ctx, js)
		t.expectStages(ctx, "moving", "trainer=ready")
		t.expectNodes(ctx, "moving", "a100-1")

		patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"nodeLabels":{"kubernetes.io/hostname":null,"accelerator":"a100"}}}`))
		Expect(env.Admin.Patch(ctx, flavor, patch)).To(Succeed())
		t.endOne(ctx, "moving", "trainer", corev1.PodFailed)
		t.expectRestarts(ctx, "moving", 1)
		t.expectSelector(ctx, "moving", map[string]string{"accelerator": "a100"})
		t.expectStages(ctx, "moving", "trainer=ready")

		patch = client.RawPatch(types.MergePatchType, []byte(`{"spec":{"nodeLabels":{"kubernetes.io/hostname":"a100-2","accelerator":null}}}`))
		Expect(env.Admin.Patch(ctx, flavor, patch)).To(Succeed())
		t.evict(ctx, "moving", "trainer", preemption)
		t.expectSelector(ctx, "moving", map[string]string{corev1.LabelHostname: "a100-2"})
		t.expectStages(ctx, "moving", "trainer=ready")
		t.expectNodes(ctx, "moving", "a100-2")
		t.drive(ctx, "moving")
	}, SpecTimeout(specTimeout))

	It("its success policy may finish it early: its quota is released when its last pod has terminated, and it is deleted when its time to live has expired", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "20")
		js := slowly(inOrder(t.newJobSet("early",
			replicatedJob{name: "launcher", cpus: "1", gpus: "5"},
			replicatedJob{name: "trainers", pods: 3, cpus: "1", gpus: "5"},
			replicatedJob{name: "evaluator", cpus: "1", gpus: "5"},
		), rule(jobsetapi.ReadyStatus, "launcher"), rule(jobsetapi.SucceededStatus, "trainers")), "2s")
		js.Spec.SuccessPolicy = &jobset.SuccessPolicy{Operator: jobset.OperatorAny, TargetReplicatedJobs: []string{"launcher"}}
		js.Spec.TTLSecondsAfterFinished = new(int32(10))
		submit(ctx, js)
		t.expectStages(ctx, "early", "launcher=ready", "trainers=ready", "evaluator=closed")
		submit(ctx, t.newJobSet("rival", replicatedJob{name: "main", cpus: "1", gpus: "20"}))
		t.end(ctx, "early", "launcher", corev1.PodSucceeded)
		t.expectOver(ctx, "early", jobset.JobSetCompleted)
		t.expectStages(ctx, "early", "launcher=Succeeded", "trainers=Succeeded", "evaluator=Succeeded")
		Expect(t.podsOf(ctx, Default, "early", "trainers")).To(BeEmpty())
		t.expectStages(ctx, "rival", "main=ready")
		Eventually(func(g Gomega) {
			g.Expect(t.stage(ctx, g, "early", "launcher")).To(Equal("missing"))
			g.Expect(t.stage(ctx, g, "early", "evaluator")).To(Equal("missing"))
			g.Expect(t.jobUIDs(ctx, g)).To(HaveLen(1))
		}).WithContext(ctx).Should(Succeed(), func() string { return t.describe(ctx) })
		t.drive(ctx, "rival")
		t.expectReserved(ctx, "0")
	}, SpecTimeout(specTimeout))
})

// deleteJob deletes a Job as kubectl does.
func (t team) deleteJob(ctx context.Context, name string) {
	GinkgoHelper()
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: name}}
	Expect(env.Admin.Delete(ctx, job, client.PropagationPolicy("Background"))).To(Succeed())
}

// replaceWorkload deletes the quota Workload of a stage and waits until a new one is in this state.
func (t team) replaceWorkload(ctx context.Context, jobSet, stage, state string) {
	GinkgoHelper()
	old := t.workload(ctx, Default, jobSet, stage)
	Expect(env.Admin.Delete(ctx, old)).To(Succeed())
	Eventually(func(g Gomega) {
		g.Expect(t.workload(ctx, g, jobSet, stage).UID).NotTo(Equal(old.UID))
		g.Expect(t.stage(ctx, g, jobSet, stage)).To(Equal(state), stage)
	}).WithContext(ctx).Should(Succeed(), func() string { return t.describe(ctx) })
}

// expectNodes checks on which node the pods of a JobSet are.
func (t team) expectNodes(ctx context.Context, jobSet, node string) {
	GinkgoHelper()
	for _, pod := range t.podsOf(ctx, Default, jobSet, "") {
		Expect(pod.Spec.NodeName).To(Equal(node))
	}
}

// expectSelector waits until the Jobs of a JobSet run with this node selector.
func (t team) expectSelector(ctx context.Context, jobSet string, selector map[string]string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		for _, job := range t.jobs(ctx, g, "") {
			g.Expect(*job.Spec.Suspend).To(BeFalse())
			g.Expect(job.Spec.Template.Spec.NodeSelector).To(Equal(selector))
		}
	}).WithContext(ctx).Should(Succeed(), func() string { return t.describe(ctx) })
}
