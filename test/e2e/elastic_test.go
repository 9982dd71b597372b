package e2e_test

import (
	"context"
	"fmt"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
	"github.com/tranche-dev/tranche/test/testenv"
)

var _ = Describe("An elastic JobSet", func() {
	It("releases surplus quota when it shrinks, and queues for all of its pods when it has grown while suspended", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "15")
		js := slowly(t.fineTune("elastic"), "1s")
		js.Spec.ReplicatedJobs[1].Template.Spec.CompletionMode = ptr.To(batchv1.IndexedCompletion)
		submit(ctx, js)
		t.end(ctx, "elastic", "initializer", corev1.PodSucceeded)
		t.expectStages(ctx, "elastic", "trainer-node=ready")
		submit(ctx, t.newJobSet("rival", replicatedJob{name: "main", cpus: "1", gpus: "5"}))
		t.expectStages(ctx, "rival", "main=waiting")

		By("shrinking")
		Expect(t.scale(ctx, "elastic", 1, 2)).To(Succeed())
		t.expectStages(ctx, "rival", "main=ready")
		Expect(t.podsOf(ctx, Default, "elastic", "trainer-node")).To(HaveLen(2))
		t.expectReserved(ctx, "15")

		By("growing while it is suspended: the rival holds a part of the quota")
		suspend(ctx, js, true)
		Expect(t.scale(ctx, "elastic", 1, 3)).To(Succeed())
		t.expectReserved(ctx, "5")
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

	It("does not grow while it runs if it is a gang", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "40")
		js := t.elastic("a", 2)
		js.Spec.ReplicatedJobs[0].GangConfig = &jobsetapi.GangConfig{GangMode: jobsetapi.GangModeGang}
		submit(ctx, js)
		t.expectStages(ctx, "a", "main=ready")
		Expect(t.scale(ctx, "a", 0, 3)).To(MatchError(ContainSubstring("those of a gang become larger only while spec.suspend is true")))
		Expect(t.scale(ctx, "a", 0, 1)).To(Succeed())
		t.expectReserved(ctx, "5")
		suspend(ctx, js, true)
		t.expectReserved(ctx, "0")
		Expect(t.scale(ctx, "a", 0, 3)).To(Succeed())
		suspend(ctx, js, false)
		t.expectStages(ctx, "a", "main=ready")
		t.expectReserved(ctx, "15")
		t.expectGrowths(ctx, "a")
		t.drive(ctx, "a")
	}, SpecTimeout(specTimeout))

	It("queues for its new size when it shrinks before it has started", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "15")
		submit(ctx, t.elastic("large", 4))
		t.expectStages(ctx, "large", "main=waiting")
		Expect(t.scale(ctx, "large", 0, 3)).To(Succeed())
		t.expectStages(ctx, "large", "main=ready")
		t.expectReserved(ctx, "15")
		t.drive(ctx, "large")
		t.expectOver(ctx, "large", jobset.JobSetCompleted)
	}, SpecTimeout(specTimeout))

	It("grows while it runs, without interrupting its running pods", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "40")
		submit(ctx, t.elastic("a", 2))
		t.expectStages(ctx, "a", "main=ready")
		before := t.podUIDs(ctx, Default, "a")
		Expect(t.scale(ctx, "a", 0, 4)).To(Succeed())
		t.expectGrowths(ctx, "a", "1 ready for 2")
		t.expectPods(ctx, "a", 4, before)
		t.expectReserved(ctx, "20")
		t.expectEvent(ctx, "a", "StageGrows")
		t.expectEvent(ctx, "a", "StageResized")

		By("growing once more, and finishing with that size")
		before = t.podUIDs(ctx, Default, "a")
		Expect(t.scale(ctx, "a", 0, 6)).To(Succeed())
		t.expectGrowths(ctx, "a", "1 ready for 2", "2 ready for 2")
		t.expectPods(ctx, "a", 6, before)
		t.drive(ctx, "a")
		t.expectStages(ctx, "a", "main=Succeeded")
		t.expectGrowths(ctx, "a")
		t.expectReserved(ctx, "0")
		t.expectNoRestart(ctx, "a")
		Expect(t.jobs(ctx, Default, "main")[0].Status.Succeeded).To(BeEquivalentTo(6))
	}, SpecTimeout(specTimeout))

	It("waits for the quota of its growth, while its running pods continue", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "20")
		submit(ctx, t.elastic("a", 2))
		submit(ctx, t.newJobSet("rival", replicatedJob{name: "main", cpus: "1", gpus: "5"}))
		t.expectStages(ctx, "a", "main=ready")
		t.expectStages(ctx, "rival", "main=ready")
		before := t.podUIDs(ctx, Default, "a")
		Expect(t.scale(ctx, "a", 0, 4)).To(Succeed())
		t.expectGrowths(ctx, "a", "1 waiting for 2")
		t.expectRefused(ctx, "a", kueue.WorkloadQuotaReservedReasonWaitingForQuota)
		t.expectStages(ctx, "a", "main=ready")
		t.expectReserved(ctx, "15")

		By("enlarging the Job as the JobSet controller, and as a tenant")
		job := &t.jobs(ctx, Default, "main")[0]
		if job.Labels[jobset.JobSetNameKey] != "a" {
			job = &t.jobs(ctx, Default, "main")[1]
		}
		generation := job.Generation
		patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"parallelism":4,"completions":4}}`))
		Expect(env.Admin.Patch(ctx, job, patch)).To(Succeed())
		Expect(job.Spec.Parallelism).To(HaveValue(BeEquivalentTo(2)))
		Expect(job.Spec.Completions).To(HaveValue(BeEquivalentTo(2)))
		Expect(job.Generation).To(Equal(generation), "nothing was written")

		alice, err := env.As("alice")
		Expect(err).NotTo(HaveOccurred())
		Expect(env.Admin.Create(ctx, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: "alice"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "alice"}},
		})).To(Succeed())
		Eventually(func() error { return alice.Patch(ctx, job.DeepCopy(), patch) }).WithContext(ctx).
			Should(MatchError(ContainSubstring("because quota is charged for the number of pods")))

		By("ending the rival")
		t.expectPods(ctx, "a", 2, before)
		t.end(ctx, "rival", "main", corev1.PodSucceeded)
		t.expectGrowths(ctx, "a", "1 ready for 2")
		t.expectPods(ctx, "a", 4, before)
		t.expectNoneBefore(ctx, "a", before)
		t.expectReserved(ctx, "20")
		t.drive(ctx, "a")
		t.expectGrowths(ctx, "a")
		t.expectReserved(ctx, "0")
	}, SpecTimeout(specTimeout))

	It("withdraws growths when it shrinks, the newest first", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "20")
		submit(ctx, slowly(t.elastic("a", 2), "1s"))
		t.expectStages(ctx, "a", "main=ready")
		before := t.podUIDs(ctx, Default, "a")
		Expect(t.scale(ctx, "a", 0, 9)).To(Succeed())
		t.expectGrowths(ctx, "a", "1 waiting for 7")
		t.expectRefused(ctx, "a", kueue.WorkloadQuotaReservedReasonExceedsMaxQuota)
		By("asking for less, which fits")
		Expect(t.scale(ctx, "a", 0, 3)).To(Succeed())
		t.expectGrowths(ctx, "a", "1 ready for 1")
		By("asking for more, and withdrawing it")
		Expect(t.scale(ctx, "a", 0, 6)).To(Succeed())
		t.expectGrowths(ctx, "a", "1 ready for 1", "2 waiting for 3")
		Expect(t.scale(ctx, "a", 0, 3)).To(Succeed())
		t.expectGrowths(ctx, "a", "1 ready for 1")
		Expect(t.scale(ctx, "a", 0, 2)).To(Succeed())
		t.expectGrowths(ctx, "a")
		t.expectPods(ctx, "a", 2, before)
		t.expectReserved(ctx, "10")

		By("shrinking below its initial size after it has grown")
		Expect(t.scale(ctx, "a", 0, 4)).To(Succeed())
		t.expectGrowths(ctx, "a", "1 ready for 2")
		Expect(t.scale(ctx, "a", 0, 1)).To(Succeed())
		t.expectGrowths(ctx, "a")
		t.expectReserved(ctx, "5")
		t.expectPods(ctx, "a", 1, nil)
		By("growing again up to its initial size")
		submit(ctx, t.newJobSet("rival", replicatedJob{name: "main", cpus: "1", gpus: "15"}))
		t.expectStages(ctx, "rival", "main=ready")
		Expect(t.scale(ctx, "a", 0, 2)).To(Succeed())
		t.expectGrowths(ctx, "a", "1 waiting for 1")
		t.expectPods(ctx, "a", 1, nil)
		t.end(ctx, "rival", "main", corev1.PodSucceeded)
		t.expectGrowths(ctx, "a", "1 ready for 1")
		t.expectReserved(ctx, "10")
		t.drive(ctx, "a")
		t.expectReserved(ctx, "0")
		t.expectNoRestart(ctx, "a")
	}, SpecTimeout(specTimeout))

	It("is evicted with its growths, and queues for all of its pods", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "20")
		submit(ctx, slowly(t.elastic("a", 2), "1s"))
		t.expectStages(ctx, "a", "main=ready")
		Expect(t.scale(ctx, "a", 0, 3)).To(Succeed())
		t.expectGrowths(ctx, "a", "1 ready for 1")
		Expect(t.scale(ctx, "a", 0, 4)).To(Succeed())
		t.expectGrowths(ctx, "a", "1 ready for 1", "2 ready for 1")
		t.submitUrgent(ctx, "5")
		t.evict(ctx, "a", "main", preemption)
		t.expectStages(ctx, "urgent", "urgent=ready")
		t.expectStages(ctx, "a", "main=waiting")
		t.expectGrowths(ctx, "a")
		t.expectReserved(ctx, "5")
		Expect(t.workload(ctx, Default, "a", "main").Spec.PodSets[0].Count).To(BeEquivalentTo(4))
		t.end(ctx, "urgent", "urgent", corev1.PodSucceeded)
		t.expectStages(ctx, "a", "main=ready")
		t.expectGrowths(ctx, "a")
		t.expectReserved(ctx, "20")
		t.expectPods(ctx, "a", 4, nil)
		t.drive(ctx, "a")
		t.expectNoRestart(ctx, "a")
	}, SpecTimeout(specTimeout))

	It("keeps running without a growth that is evicted alone, deactivated or deleted", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "20")
		submit(ctx, slowly(t.elastic("a", 2), "1s"))
		t.expectStages(ctx, "a", "main=ready")
		before := t.podUIDs(ctx, Default, "a")
		Expect(t.scale(ctx, "a", 0, 4)).To(Succeed())
		t.expectGrowths(ctx, "a", "1 ready for 2")
		t.setGrowthActive(ctx, "a", false)
		t.expectGrowths(ctx, "a", "1 waiting for 2")
		t.expectPods(ctx, "a", 2, before)
		t.expectReserved(ctx, "10")
		t.expectStages(ctx, "a", "main=ready")
		t.expectEvent(ctx, "a", "GrowthRequeued")
		t.awaitHandled(ctx) // there is quota for the growth
		Expect(t.statesOfGrowths(ctx, Default, "a")).To(Equal([]string{"1 waiting for 2"}), "it is deactivated")
		Expect(t.podUIDs(ctx, Default, "a")).To(ConsistOf(before))
		t.setGrowthActive(ctx, "a", true)
		t.expectGrowths(ctx, "a", "1 ready for 2")
		t.expectPods(ctx, "a", 4, before)

		By("deleting it")
		growth := t.growths(ctx, Default, "a")[0]
		Expect(env.Admin.Delete(ctx, &growth)).To(Succeed())
		Eventually(func(g Gomega) {
			all := t.growths(ctx, g, "a")
			g.Expect(all).To(HaveLen(1))
			g.Expect(all[0].UID).NotTo(Equal(growth.UID))
		}).WithContext(ctx).Should(Succeed(), func() string { return t.describe(ctx) })
		t.expectGrowths(ctx, "a", "1 ready for 2")
		t.expectPods(ctx, "a", 4, before)
		t.drive(ctx, "a")
		t.expectGrowths(ctx, "a")
		t.expectReserved(ctx, "0")
		t.expectNoRestart(ctx, "a")
	}, SpecTimeout(specTimeout))

	It("keeps its quota when it is restarted, and releases all of it when it is suspended", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "20")
		js := t.elastic("a", 2)
		js.Spec.FailurePolicy = &jobset.FailurePolicy{MaxRestarts: 3}
		submit(ctx, js)
		t.expectStages(ctx, "a", "main=ready")
		base := t.workload(ctx, Default, "a", "main").UID
		Expect(t.scale(ctx, "a", 0, 3)).To(Succeed())
		t.expectGrowths(ctx, "a", "1 ready for 1")
		Expect(t.scale(ctx, "a", 0, 6)).To(Succeed())
		t.expectGrowths(ctx, "a", "1 ready for 1", "2 waiting for 3")
		t.endOne(ctx, "a", "main", corev1.PodFailed)
		t.expectRestarts(ctx, "a", 1)
		t.expectStages(ctx, "a", "main=ready")
		t.expectGrowths(ctx, "a", "1 ready for 1", "2 waiting for 3")
		t.expectPods(ctx, "a", 3, nil)
		t.expectReserved(ctx, "15")
		Expect(t.workload(ctx, Default, "a", "main").UID).To(Equal(base))

		suspend(ctx, js, true)
		t.expectReserved(ctx, "0")
		t.expectGrowths(ctx, "a")
		Expect(t.scale(ctx, "a", 0, 4)).To(Succeed())
		suspend(ctx, js, false)
		t.expectStages(ctx, "a", "main=ready")
		t.expectReserved(ctx, "20")
		t.expectPods(ctx, "a", 4, nil)
		t.expectGrowths(ctx, "a")
		t.drive(ctx, "a")
	}, SpecTimeout(specTimeout))

	It("opens later stages only after all of its pods, and finishes with a growth that was never admitted", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "10")
		js := inOrder(t.newJobSet("a",
			replicatedJob{name: "main", pods: 1, replicas: 2, cpus: "1", gpus: "2"},
			replicatedJob{name: "eval", cpus: "1"},
		), rule(jobsetapi.SucceededStatus, "main"))
		js.Spec.ReplicatedJobs[0].Template.Spec.CompletionMode = ptr.To(batchv1.IndexedCompletion)
		submit(ctx, js)
		t.expectStages(ctx, "a", "main=ready", "eval=closed")
		Expect(t.scale(ctx, "a", 0, 2)).To(Succeed())
		t.expectGrowths(ctx, "a", "1 ready for 2")
		t.expectReserved(ctx, "8")
		Expect(t.scale(ctx, "a", 0, 3)).To(Succeed())
		t.expectGrowths(ctx, "a", "1 ready for 2", "2 waiting for 2")
		t.endOne(ctx, "a", "main", corev1.PodSucceeded)
		t.endOne(ctx, "a", "main", corev1.PodSucceeded)
		Eventually(func(g Gomega) {
			succeeded := int32(0)
			for _, job := range t.jobs(ctx, g, "main") {
				succeeded += job.Status.Succeeded
			}
			g.Expect(succeeded).To(Equal(int32(2)), "as many pods as the stage had at first")
		}).WithContext(ctx).Should(Succeed(), func() string { return t.describe(ctx) })
		t.expectStages(ctx, "a", "main=ready", "eval=closed")
		t.expectStill(ctx, "a", "eval=closed")
		t.end(ctx, "a", "main", corev1.PodSucceeded)
		t.expectStages(ctx, "a", "main=Succeeded", "eval=ready")
		t.expectGrowths(ctx, "a")
		t.expectReserved(ctx, "0")
		t.drive(ctx, "a")
	}, SpecTimeout(specTimeout))

	It("is deleted with an admitted and a pending growth", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "20")
		js := slowly(t.elastic("a", 2), "1s")
		submit(ctx, js)
		t.expectStages(ctx, "a", "main=ready")
		Expect(t.scale(ctx, "a", 0, 3)).To(Succeed())
		t.expectGrowths(ctx, "a", "1 ready for 1")
		Expect(t.scale(ctx, "a", 0, 6)).To(Succeed())
		t.expectGrowths(ctx, "a", "1 ready for 1", "2 waiting for 3")
		Expect(env.Admin.Delete(ctx, js, client.PropagationPolicy("Foreground"))).To(Succeed())
		t.expectReserved(ctx, "0")
		Eventually(func(g Gomega) { g.Expect(t.workloads(ctx, g)).To(BeEmpty()) }).WithContext(ctx).Should(Succeed())
	}, SpecTimeout(specTimeout))
})

var _ = Describe("The manager of an elastic JobSet", func() {
	It("reaches the same growth when it is killed after each write", func(ctx SpecContext) {
		Expect(manager.Stop()).To(Succeed())
		proxy, err := env.StartProxy()
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { proxy.Stop() })
		t := newTeam(ctx, "100", "20")
		DeferCleanup(func(ctx SpecContext) {
			manager, err = env.StartManager(ctx, testenv.ManagerOptions{})
			Expect(err).NotTo(HaveOccurred())
		})
		managers, err := env.StartShortLived(proxy, testenv.ManagerOptions{})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() error { _, err := managers.Stop(); return err })
		const name = "killed"
		js := submit(ctx, t.elastic(name, 2))
		t.expectStages(ctx, name, "main=ready")
		before := t.podUIDs(ctx, Default, name)
		Expect(t.scale(ctx, name, 0, 4)).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(t.statesOfGrowths(ctx, g, name)).To(Equal([]string{"1 ready for 2"}))
		}).WithContext(ctx).Should(Succeed(), func() string { return t.describe(ctx) })
		t.expectPods(ctx, name, 4, before)
		Expect(t.scale(ctx, name, 0, 1)).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(t.statesOfGrowths(ctx, g, name)).To(BeEmpty())
			g.Expect(t.reserved(ctx, g)).To(Equal("5"))
		}).WithContext(ctx).Should(Succeed(), func() string { return t.describe(ctx) })
		Expect(env.Admin.Delete(ctx, js, client.PropagationPolicy("Background"))).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(t.workloads(ctx, g)).To(BeEmpty())
			g.Expect(t.reserved(ctx, g)).To(Equal("0"))
		}).WithContext(ctx).Should(Succeed(), func() string { return t.describe(ctx) })
		killed, err := managers.Stop()
		Expect(err).NotTo(HaveOccurred())
		AddReportEntry("killed managers", killed)
		Expect(killed).To(BeNumerically(">", 10), strings.Join(proxy.Writes(), "\n"))
	}, SpecTimeout(2*specTimeout))
})

// elastic makes a JobSet of one Indexed Job, whose pods have 5 GPUs each.
func (t team) elastic(name string, pods int32) *jobsetapi.JobSet {
	js := t.newJobSet(name, replicatedJob{name: "main", pods: pods, cpus: "1", gpus: "5"})
	js.Spec.ReplicatedJobs[0].Template.Spec.CompletionMode = ptr.To(batchv1.IndexedCompletion)
	return js
}

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

// growths returns the quota Workloads by which the stages of a JobSet have grown.
func (t team) growths(ctx context.Context, g Gomega, jobSet string) []kueue.Workload {
	var list kueue.WorkloadList
	g.Expect(env.Admin.List(ctx, &list, client.InNamespace(t.namespace), client.MatchingLabels{apis.JobSetLabel: jobSet},
		client.HasLabels{apis.GrowthLabel})).To(Succeed())
	return list.Items
}

// statesOfGrowths gives each growth as its number, its state and for how many pods it asks.
func (t team) statesOfGrowths(ctx context.Context, g Gomega, jobSet string) []string {
	states := []string{}
	for _, w := range t.growths(ctx, g, jobSet) {
		states = append(states, fmt.Sprintf("%s %s for %d", w.Labels[apis.GrowthLabel], stateOfStage(&w), w.Spec.PodSets[0].Count))
	}
	slices.Sort(states)
	return states
}

func (t team) expectGrowths(ctx context.Context, jobSet string, states ...string) {
	GinkgoHelper()
	want := append([]string{}, states...)
	Eventually(func(g Gomega) { g.Expect(t.statesOfGrowths(ctx, g, jobSet)).To(Equal(want)) }).
		WithContext(ctx).Should(Succeed(), func() string { return t.describe(ctx) })
}

// expectRefused waits until the last growth of a JobSet waits for this reason.
func (t team) expectRefused(ctx context.Context, jobSet, reason string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		all := t.growths(ctx, g, jobSet)
		g.Expect(all).NotTo(BeEmpty())
		wait := workloadstatus.WaitOf(&all[len(all)-1])
		g.Expect(wait).NotTo(BeNil())
		g.Expect(wait.Reason).To(Equal(reason), wait.Message)
	}).WithContext(ctx).Should(Succeed(), func() string { return t.describe(ctx) })
}

// podUIDs are the pods of a JobSet, by UID.
func (t team) podUIDs(ctx context.Context, g Gomega, jobSet string) []types.UID {
	var uids []types.UID
	for _, pod := range t.podsOf(ctx, g, jobSet, "") {
		uids = append(uids, pod.UID)
	}
	return uids
}

// expectPods waits until a JobSet has so many running pods, and checks that the earlier pods are still among them.
func (t team) expectPods(ctx context.Context, jobSet string, count int, before []types.UID) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		uids := t.podUIDs(ctx, g, jobSet)
		for _, uid := range before {
			if !slices.Contains(uids, uid) {
				StopTrying("a pod that ran before is gone").Now()
			}
		}
		g.Expect(uids).To(HaveLen(count))
		for _, pod := range t.podsOf(ctx, g, jobSet, "") {
			g.Expect(pod.Status.Phase).To(Equal(corev1.PodRunning), pod.Name)
		}
	}).WithContext(ctx).Should(Succeed(), func() string { return t.describe(ctx) })
}

// expectNoneBefore checks that the pods which a growth has brought are not older than its admission.
func (t team) expectNoneBefore(ctx context.Context, jobSet string, before []types.UID) {
	GinkgoHelper()
	growth := t.growths(ctx, Default, jobSet)[0]
	admitted := apimeta.FindStatusCondition(growth.Status.Conditions, kueue.WorkloadAdmitted).LastTransitionTime
	for _, pod := range t.podsOf(ctx, Default, jobSet, "") {
		if !slices.Contains(before, pod.UID) {
			Expect(pod.CreationTimestamp.Before(&admitted)).To(BeFalse(), pod.Name)
		}
	}
}

func (t team) setGrowthActive(ctx context.Context, jobSet string, active bool) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		w := t.growths(ctx, g, jobSet)[0]
		w.Spec.Active = &active
		g.Expect(env.Admin.Update(ctx, &w)).To(Succeed())
	}).WithContext(ctx).Should(Succeed())
}
