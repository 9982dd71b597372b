package podgroup_test

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
)

// replicas returns a ReplicaSet that recreates pods of a gang when they are deleted. They run until they are deleted.
func (t team) replicas(name string, pods int32, member pod) *appsv1.ReplicaSet {
	member.label("made-by", name)
	member.Spec.RestartPolicy = corev1.RestartPolicyAlways
	return &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: t.name, Name: name}, Spec: appsv1.ReplicaSetSpec{
		Replicas: &pods, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"made-by": name}},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: member.Labels, Annotations: member.Annotations}, Spec: member.Spec},
	}}
}

// count returns the states of the pods that a controller has created: how many are gated, running and so on.
func (t team) count(ctx context.Context, g Gomega, by string) map[string]int {
	counts := map[string]int{}
	for _, p := range t.pods(ctx, g) {
		if p.Labels["made-by"] != by || p.DeletionTimestamp != nil {
			continue
		}
		if len(p.Spec.SchedulingGates) > 0 {
			counts["gated"]++
		} else {
			counts[string(p.Status.Phase)]++
		}
	}
	return counts
}

func (t team) expectCount(ctx context.Context, by, how string, want int) {
	GinkgoHelper()
	Eventually(func(g Gomega) { g.Expect(t.count(ctx, g, by)).To(Equal(map[string]int{how: want})) }).WithContext(ctx).Should(Succeed())
}

func (t team) submit(ctx context.Context, replicas *appsv1.ReplicaSet) {
	GinkgoHelper()
	Expect(env.Admin.Create(ctx, replicas)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) { withdraw(ctx, replicas) }, NodeTimeout(patience))
}

// withdraw deletes the controller and its pods.
func withdraw(ctx context.Context, replicas *appsv1.ReplicaSet) {
	GinkgoHelper()
	Expect(client.IgnoreNotFound(env.Admin.Delete(ctx, replicas, client.PropagationPolicy(metav1.DeletePropagationBackground)))).To(Succeed())
}

var _ = Describe("A gang", func() {
	It("that is preempted loses its pods, releases its quota when they have terminated, and requeues", func(ctx SpecContext) {
		t := newTeam(ctx, "4", "0")
		class := &kueue.WorkloadPriorityClass{ObjectMeta: metav1.ObjectMeta{Name: t.name + "-urgent"}, Value: 100}
		Expect(env.Admin.Create(ctx, class)).To(Succeed())
		t.podGroup(ctx, koordinator, "low", map[string]any{"minMember": int64(3)}, nil)
		t.submit(ctx, t.replicas("low", 3, t.member("", 0).label(apis.KoordinatorLabel, "low")))
		t.expectCount(ctx, "low", string(corev1.PodRunning), 3)

		By("a gang of higher priority")
		urgent := func(name string) pod {
			return t.member(name, 0).koordinator("name", "high", "min-available", "2").label(apis.PriorityClassLabel, class.Name)
		}
		create(ctx, urgent("high-0"), urgent("high-1"))
		t.expectPods(ctx, "high-", "high-0=running", "high-1=running")
		t.expectCount(ctx, "low", "gated", 3)
		t.expectUsage(ctx, "cpu", 2)

		By("finishing the JobSet")
		t.end(ctx, corev1.PodSucceeded, "high-0", "high-1")
		t.expectCount(ctx, "low", string(corev1.PodRunning), 3)
		t.expectUsage(ctx, "cpu", 3)
		group := t.podGroups(ctx, Default)
		Expect(group).To(HaveLen(1))
		expectNoted(ctx, &group[0], "has started")
	}, SpecTimeout(specTimeout))

	It("of bare pods reports that they are deleted when its queue is stopped, and pending gangs start when the queue is resumed", func(ctx SpecContext) {
		t := newTeam(ctx, "4", "0")
		in := func(name, gang string) pod { return t.member(name, 0).koordinator("name", gang, "min-available", "2") }
		create(ctx, in("p-0", "p"), in("p-1", "p"))
		t.expectPods(ctx, "p-", "p-0=running", "p-1=running")
		stop := func(policy kueue.StopPolicy) {
			queue := &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: t.name, Name: "main"}}
			patch := client.RawPatch(types.MergePatchType, []byte(fmt.Sprintf(`{"spec":{"stopPolicy":%q}}`, policy)))
			Expect(env.Admin.Patch(ctx, queue, patch)).To(Succeed())
		}
		stop(kueue.HoldAndDrain)
		Eventually(func(g Gomega) { g.Expect(t.pods(ctx, g)).To(BeEmpty()) }).WithContext(ctx).Should(Succeed())
		t.expectTold(ctx, "Pod", "p-0", "no controller will recreate it")
		Eventually(func(g Gomega) { g.Expect(t.workloads(ctx, g)).To(BeEmpty()) }).WithContext(ctx).Should(Succeed())
		t.expectUsage(ctx, "cpu", 0)
		create(ctx, in("q-0", "q"), in("q-1", "q"))
		Eventually(func(g Gomega) { g.Expect(t.workloads(ctx, g)).To(HaveLen(1)) }).WithContext(ctx).Should(Succeed())
		awaitHandled(ctx)
		Expect(t.standing(ctx, Default, "q-")).To(Equal([]string{"q-0=gated", "q-1=gated"}), "there is quota, but the queue is stopped")
		stop(kueue.None)
		t.expectPods(ctx, "q-", "q-0=running", "q-1=running")
	}, SpecTimeout(specTimeout))

	It("keeps its state under the next manager", func(ctx SpecContext) {
		t := newTeam(ctx, "3", "0")
		group := t.podGroup(ctx, koordinator, "job", map[string]any{"minMember": int64(3)}, nil)
		replicas := t.replicas("job", 3, t.member("", 0).label(apis.KoordinatorLabel, "job"))
		t.submit(ctx, replicas)
		t.expectCount(ctx, "job", string(corev1.PodRunning), 3)
		first := t.workloads(ctx, Default)
		Expect(first).To(HaveLen(1))
		Expect(manager.Kill()).To(Succeed())

		By("losing a pod, and creating the next gang, while no manager runs")
		pods := t.pods(ctx, Default)
		Expect(env.Admin.Delete(ctx, &pods[0], client.GracePeriodSeconds(0))).To(Succeed())
		create(ctx, t.member("next-0", 0).koordinator("name", "next", "min-available", "1"))
		Eventually(func(g Gomega) {
			g.Expect(t.count(ctx, g, "job")).To(Equal(map[string]int{string(corev1.PodRunning): 2, "gated": 1}))
		}).WithContext(ctx).Should(Succeed())
		var err error
		manager, err = startManager(ctx)
		Expect(err).NotTo(HaveOccurred())
		t.expectCount(ctx, "job", string(corev1.PodRunning), 3)
		t.expectPods(ctx, "next-", "next-0=gated")

		Expect(t.workload(ctx, Default, first[0].Name).UID).To(Equal(first[0].UID))

		By("ending")
		withdraw(ctx, replicas)
		Expect(env.Admin.Delete(ctx, group)).To(Succeed())
		t.expectPods(ctx, "next-", "next-0=running")
	}, SpecTimeout(specTimeout))

	It("of Kueue has the quota Workload that Kueue would create", func(ctx SpecContext) {
		t := newTeam(ctx, "4", "4")
		in := func(name string, gpus int64) pod {
			return t.member(name, gpus).label(apis.PodGroupNameLabel, "train").annotate(apis.PodGroupTotalCountAnnotation, "3")
		}
		create(ctx, in("p-0", 0), in("p-1", 2))
		t.expectTold(ctx, "Pod", "p-0", "fewer than the 3 pods")
		create(ctx, in("p-2", 2))
		t.expectPods(ctx, "p-", "p-0=running", "p-1=running", "p-2=running")
		workload := t.workload(ctx, Default, "train")
		Expect(workload.OwnerReferences).To(HaveLen(3))
		Expect(workload.Spec.PodSets).To(HaveLen(2))
		Eventually(func(g Gomega) {
			g.Expect(quotaworkload.IsTrue(t.workload(ctx, g, "train"), kueue.WorkloadPodsReady)).To(BeTrue())
		}).WithContext(ctx).Should(Succeed())
		t.end(ctx, corev1.PodSucceeded, "p-1")
		t.expectUsage(ctx, gpu, 2)
		t.end(ctx, corev1.PodSucceeded, "p-0", "p-2")
		t.expectFinished(ctx, "train")
		t.expectUsage(ctx, gpu, 0)
	}, SpecTimeout(specTimeout))
})

var _ = Describe("A gang whose PodGroup declares its requests", func() {
	spec := func(pods int64, cpus string) map[string]any {
		return map[string]any{"minMember": pods, "minResources": map[string]any{"cpu": cpus}}
	}

	It("gets its quota before its pods exist", func(ctx SpecContext) {
		t := newTeam(ctx, "3", "0")
		group := t.podGroup(ctx, coscheduling, "early", spec(3, "3"), nil)
		label := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"kueue.x-k8s.io/queue-name":"main"}}}`))
		Expect(env.Admin.Patch(ctx, group, label)).To(Succeed())
		t.expectUsage(ctx, "cpu", 3)
		expectNoted(ctx, group, "waits for its pods")
		create(ctx, t.member("other-0", 0).koordinator("name", "other", "min-available", "1"))
		in := func(name string) pod { return t.member(name, 0).label(apis.CoschedulingLabel, "early") }
		create(ctx, in("p-0"))
		t.expectPods(ctx, "", "other-0=gated", "p-0=gated")
		create(ctx, in("p-1"), in("p-2"))
		t.expectPods(ctx, "", "other-0=gated", "p-0=running", "p-1=running", "p-2=running")
		create(ctx, in("p-3"))
		Eventually(func(g Gomega) {
			g.Expect(t.workloads(ctx, g)).To(HaveLen(3), "one is for the pod that is not paid for")
		}).WithContext(ctx).Should(Succeed())
		t.end(ctx, corev1.PodSucceeded, "p-0")
		t.expectPods(ctx, "p-", "p-0=succeeded", "p-1=running", "p-2=running", "p-3=running")
		t.end(ctx, corev1.PodSucceeded, "p-1", "p-2", "p-3")
		t.expectPods(ctx, "other-", "other-0=running")
	}, SpecTimeout(specTimeout))

	It("requeues when its pods need more", func(ctx SpecContext) {
		t := newTeam(ctx, "3", "0")
		group := t.podGroup(ctx, coscheduling, "early", spec(2, "1"), nil)
		label := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"kueue.x-k8s.io/queue-name":"main"}}}`))
		Expect(env.Admin.Patch(ctx, group, label)).To(Succeed())
		t.expectUsage(ctx, "cpu", 1)
		in := func(name string) pod { return t.member(name, 0).label(apis.CoschedulingLabel, "early") }
		create(ctx, in("p-0"), in("p-1"))
		t.expectTold(ctx, "PodGroup", "early", "request more than minResources")
		t.expectPods(ctx, "p-", "p-0=running", "p-1=running")
		t.expectUsage(ctx, "cpu", 2)
	}, SpecTimeout(specTimeout))
})
