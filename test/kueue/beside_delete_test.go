package kueue_test

import (
	"context"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstatus"
	"github.com/tranche-dev/tranche/test/controlplane"
	"github.com/tranche-dev/tranche/test/invariants"
)

var _ = Describe("Deletions beside Kueue", Ordered, ContinueOnFailure, func() {
	var auditor *invariants.Auditor

	BeforeAll(func(ctx SpecContext) {
		startBeside(ctx)
		auditing, cancel := context.WithCancel(context.WithoutCancel(ctx))
		DeferCleanup(cancel)
		var err error
		auditor, err = invariants.Start(auditing, env.Admin)
		Expect(err).NotTo(HaveOccurred())
	}, NodeTimeout(patience))

	AfterAll(func(ctx SpecContext) {
		violations, err := auditor.Violations(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(violations).To(BeEmpty())
	}, NodeTimeout(patience))

	It("of a JobSet in each phase leave nothing behind, and release its quota", func(ctx SpecContext) {
		const queue, gpus = "deleted-phases", 12
		tenant(ctx, queue, gpus)
		phases := map[string]func(*jobsetapi.JobSet){
			"first-waits": func(js *jobsetapi.JobSet) {
				Eventually(func() *kueue.Workload { return stageOf(ctx, js, "first") }).WithContext(ctx).Should(haveCondition(kueue.WorkloadQuotaReserved, metav1.ConditionFalse, ""))
			},
			"first-runs": func(js *jobsetapi.JobSet) {
				Eventually(func(g Gomega) { g.Expect(runs(ctx, g, js, "first")).To(BeTrue()) }).WithContext(ctx).Should(Succeed())
			},
			"second-runs": func(js *jobsetapi.JobSet) {
				Eventually(func(g Gomega) { g.Expect(runs(ctx, g, js, "second")).To(BeTrue()) }).WithContext(ctx).Should(Succeed())
			},
			"completed": func(js *jobsetapi.JobSet) { awaitCompletion(ctx, js) },
		}
		policies := []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground}
		jobSets := map[string][]*jobsetapi.JobSet{} // in the order of the policies
		for phase := range phases {
			for _, policy := range policies {
				js := stagedJobSet(queue, map[string]string{apis.QueueLabel: "queue"}, "1")
				js.Name = phase + "-" + strings.ToLower(string(policy))
				switch phase {
				case "first-waits":
					js.Spec.ReplicatedJobs[0].Template.Spec.Parallelism, js.Spec.ReplicatedJobs[0].Template.Spec.Completions = new(int32(gpus+1)), new(int32(gpus+1))
				case "first-runs":
					js.Spec.ReplicatedJobs[0].Template.Spec.Template.Annotations[controlplane.FakeRunTime] = "600"
				case "second-runs":
					js.Spec.ReplicatedJobs[1].Template.Spec.Template.Annotations[controlplane.FakeRunTime] = "600"
				}
				Expect(env.Admin.Create(ctx, js)).To(Succeed())
				jobSets[phase] = append(jobSets[phase], js)
			}
		}
		for phase, reach := range phases {
			for i, policy := range policies {
				js := jobSets[phase][i]
				By("deleting " + js.Name)
				reach(js)
				Expect(env.Admin.Delete(ctx, js, client.PropagationPolicy(metav1.DeletePropagationOrphan))).To(MatchError(ContainSubstring("must be deleted with it")))
				Expect(env.Admin.Delete(ctx, js, client.PropagationPolicy(policy))).To(Succeed())
			}
		}
		expectGone(ctx, queue)
		next := newJob(queue, gpus)
		Expect(env.Admin.Create(ctx, next)).To(Succeed())
		Eventually(read(ctx, workloadOf(ctx, next))).WithContext(ctx).Should(haveCondition(kueue.WorkloadFinished, metav1.ConditionTrue, ""))
	}, NodeTimeout(3*patience))

	It("of the Workload of a stage make it wait again, and its JobSet completes", func(ctx SpecContext) {
		const queue = "deleted-workloads"
		tenant(ctx, queue, 2)
		holder := named(lasting(newJob(queue, 2), "600"), "holder")
		Expect(env.Admin.Create(ctx, holder)).To(Succeed())
		awaitRunning(ctx, holder, workloadOf(ctx, holder), 2)
		js := stagedJobSet(queue, map[string]string{apis.QueueLabel: "queue"}, "1")
		js.Spec.ReplicatedJobs[0].Template.Spec.Template.Annotations[controlplane.FakeRunTime] = "5"
		Expect(env.Admin.Create(ctx, js)).To(Succeed())

		By("deleting those of a stage that waits for quota, and of one that waits for the other stage")
		for _, stage := range []string{"first", "second"} {
			deleteWorkload(ctx, js, stage)
		}
		setActive(ctx, workloadOf(ctx, holder), "false")

		By("deleting that of a stage that runs")
		Eventually(func(g Gomega) { g.Expect(runs(ctx, g, js, "first")).To(BeTrue()) }).WithContext(ctx).Should(Succeed())
		deleteWorkload(ctx, js, "first")
		awaitCompletion(ctx, js)
		Expect(js.Status.Restarts).To(BeZero())
	}, NodeTimeout(2*patience))

	It("of queues let stages run to their end, and the next ones wait until the queues exist again", func(ctx SpecContext) {
		const queue = "deleted-queues"
		tenant(ctx, queue, 2)
		lq := &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: queue, Name: "queue"}}
		cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: queue}}
		read(ctx, cq)(NewGomega(Fail))
		missing := map[client.Object]string{
			lq: `LocalQueue "queue" does not exist in namespace "deleted-queues"`,
			// Kueue's manager reports it if the stage has opened before the ClusterQueue was gone, and otherwise Tranche's.
			cq: `ClusterQueue "?deleted-queues"? (of LocalQueue .*)?(is inactive|doesn't exist|does not exist)`,
		}
		for _, object := range []client.Object{lq, cq} {
			js := stagedJobSet(queue, map[string]string{apis.QueueLabel: "queue"}, "1")
			js.Name = map[client.Object]string{lq: "local", cq: "cluster"}[object]
			js.Spec.ReplicatedJobs[0].Template.Spec.Template.Annotations[controlplane.FakeRunTime] = "4"
			Expect(env.Admin.Create(ctx, js)).To(Succeed())
			Eventually(func(g Gomega) { g.Expect(runs(ctx, g, js, "first")).To(BeTrue()) }).WithContext(ctx).Should(Succeed())
			var uids []types.UID
			Eventually(func() []types.UID {
				uids = podUIDs(ctx, childOf(ctx, js, "first"))
				return uids
			}).WithContext(ctx).Should(HaveLen(2))
			again := object.DeepCopyObject().(client.Object) //nolint:forcetypeassert // it is a copy
			again.SetResourceVersion("")
			again.SetUID("")
			again.SetFinalizers(nil)
			Expect(env.Admin.Delete(ctx, object)).To(Succeed())
			Eventually(func() *kueue.Workload { return stageOf(ctx, js, "first") }).WithContext(ctx).Should(
				haveCondition(kueue.WorkloadFinished, metav1.ConditionTrue, kueue.WorkloadFinishedReasonSucceeded))
			Expect(podUIDs(ctx, childOf(ctx, js, "first"))).To(Equal(uids), "what runs goes on")
			Eventually(func() error { return env.Admin.Get(ctx, client.ObjectKeyFromObject(object), object) }).WithContext(ctx).Should(Satisfy(apierrors.IsNotFound))
			Eventually(func(g Gomega) {
				c := meta.FindStatusCondition(read(ctx, js)(g).Status.Conditions, jobsetstatus.StageAdmitted)
				g.Expect(c).To(And(HaveField("Status", metav1.ConditionFalse), HaveField("Message", MatchRegexp(missing[object]))))
			}).WithContext(ctx).Should(Succeed())
			if object == lq {
				again = &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: queue, Name: "queue"}, Spec: kueue.LocalQueueSpec{ClusterQueue: queue}}
			}
			Expect(env.Admin.Create(ctx, again)).To(Succeed())
			awaitCompletion(ctx, js)
		}
	}, NodeTimeout(3*patience))
})

// expectGone waits until a namespace has no JobSet, Job, pod and quota Workload.
func expectGone(ctx context.Context, namespace string) {
	GinkgoHelper()
	for _, list := range []client.ObjectList{&jobsetapi.JobSetList{}, &batchv1.JobList{}, &corev1.PodList{}, &kueue.WorkloadList{}} {
		Eventually(func(g Gomega) {
			g.Expect(env.Admin.List(ctx, list, client.InNamespace(namespace))).To(Succeed())
			g.Expect(meta.LenList(list)).To(BeZero(), "%T", list)
		}).WithContext(ctx).Should(Succeed())
	}
}

// deleteWorkload deletes the quota Workload of a stage, and waits until there is another one.
func deleteWorkload(ctx context.Context, js *jobsetapi.JobSet, stage string) {
	GinkgoHelper()
	w := stageOf(ctx, js, stage)
	Expect(env.Admin.Delete(ctx, w)).To(Succeed())
	Eventually(func() *kueue.Workload { return stageOf(ctx, js, stage) }).WithContext(ctx).Should(HaveField("UID", Not(Equal(w.UID))))
}
