package podgroup_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
)

// retries is the backoffLimitCount of these specs.
const retries = 2

// nowhere selects no node: the pods are admitted and ungated, and never ready.
func nowhere() map[string]string { return map[string]string{"kubernetes.io/hostname": "nowhere"} }

// evictions returns how often a quota Workload was evicted for a reason.
func evictions(w *kueue.Workload, reason string) int32 {
	if w.Status.SchedulingStats == nil {
		return 0
	}
	n := int32(0)
	for _, e := range w.Status.SchedulingStats.Evictions {
		if e.Reason == reason {
			n += e.Count
		}
	}
	return n
}

// expectDeactivated waits until there are so many quota Workloads, and all of them have used their retries.
func (t team) expectDeactivated(ctx context.Context, n int) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		all := t.workloads(ctx, g)
		g.Expect(all).To(HaveLen(n))
		for i := range all {
			w := &all[i]
			g.Expect(ptr.Deref(w.Spec.Active, true)).To(BeFalse(), w.Name)
			g.Expect(quotaworkload.HoldsQuota(w)).To(BeFalse(), w.Name)
			evicted := quotaworkload.FindTrue(w, kueue.WorkloadEvicted)
			g.Expect(evicted).NotTo(BeNil())
			g.Expect(evicted.Reason).To(Equal("DeactivatedDueToRequeuingLimitExceeded"))
			g.Expect(evicted.Message).To(ContainSubstring("set its spec.active to true to queue again"))
			g.Expect(evictions(w, kueue.WorkloadEvictedByPodsReadyTimeout)).To(Equal(int32(retries)))
		}
	}).WithContext(ctx).Should(Succeed())
}

// forget deletes the quota Workloads of a team. Those that outlive their pods otherwise wait for others for two minutes.
func (t team) forget(ctx context.Context) {
	GinkgoHelper()
	Expect(env.Admin.DeleteAllOf(ctx, &kueue.Workload{}, client.InNamespace(t.name))).To(Succeed())
}

var _ = Describe("With waitForPodsReady", Ordered, func() {
	restart := func(ctx context.Context, with map[string]any) {
		GinkgoHelper()
		Expect(manager.Stop()).To(Succeed())
		var err error
		manager, err = startManagerWith(ctx, with)
		Expect(err).NotTo(HaveOccurred())
	}
	settings := map[string]any{"waitForPodsReady": map[string]any{
		"enable": true, "timeout": "2s", "requeuingStrategy": map[string]any{"backoffLimitCount": retries, "backoffBaseSeconds": 1, "backoffMaxSeconds": 2},
	}}
	BeforeAll(func(ctx SpecContext) { restart(ctx, settings) }, NodeTimeout(patience))
	AfterAll(func(ctx SpecContext) { restart(ctx, nil) }, NodeTimeout(patience))

	It("a Deployment whose pods are never ready stops after its retries", func(ctx SpecContext) {
		t := newTeam(ctx, "2", "0")
		tenant := t.tenant(ctx)
		selector, template := t.template()
		template.Spec.NodeSelector = nowhere()
		deployment := &appsv1.Deployment{ObjectMeta: t.queued(), Spec: appsv1.DeploymentSpec{Replicas: new(int32(2)), Selector: selector, Template: template}}
		submitAs(ctx, tenant, deployment)
		t.expectDeactivated(ctx, 2)
		t.expectStates(ctx, map[string]int{"gated": 2})
		before := t.pods(ctx, Default)
		for _, p := range before {
			t.expectTold(ctx, "Pod", p.Name, "due to exceeding the maximum number of re-queuing retries")
		}

		By("deleting the pods that wait: their replacements do not begin again")
		for i := range before {
			Expect(tenant.Delete(ctx, &before[i])).To(Succeed())
		}
		Eventually(func(g Gomega) {
			g.Expect(t.count(ctx, g, web)).To(Equal(map[string]int{"gated": 2}))
			owners := map[string]string{}
			for _, w := range t.workloads(ctx, g) {
				owners[w.Annotations[apis.PodGroupKey]] = w.Labels[apis.JobUIDLabel]
			}
			for _, p := range t.pods(ctx, g) {
				g.Expect(owners).To(HaveKeyWithValue("pod."+p.Name, string(p.UID)))
			}
		}).WithContext(ctx).Should(Succeed())
		awaitHandled(ctx)
		Expect(t.count(ctx, Default, web)).To(Equal(map[string]int{"gated": 2}))
		t.expectDeactivated(ctx, 2) // with as many evictions as before
		t.expectUsage(ctx, "cpu", 0)

		By("activating one of them")
		first := t.workloads(ctx, Default)[0]
		merge(ctx, env.Admin, &first, `{"spec":{"active":true}}`)
		Eventually(func(g Gomega) {
			g.Expect(evictions(t.workload(ctx, g, first.Name), kueue.WorkloadEvictedByPodsReadyTimeout)).To(BeNumerically(">", retries))
		}).WithContext(ctx).Should(Succeed())

		By("a rollout to pods that are ready")
		merge(ctx, tenant, deployment, `{"spec":{"template":{"spec":{"nodeSelector":null}}}}`)
		t.expectStates(ctx, map[string]int{running: 2})
		Expect(tenant.Delete(ctx, deployment, client.PropagationPolicy(metav1.DeletePropagationBackground))).To(Succeed())
		Eventually(func(g Gomega) { g.Expect(t.workloads(ctx, g)).To(BeEmpty()) }).WithContext(ctx).Should(Succeed())
	}, SpecTimeout(specTimeout))

	It("a StatefulSet whose pod is never ready stops after its retries, and runs when it is corrected and activated", func(ctx SpecContext) {
		t := newTeam(ctx, "2", "0")
		tenant := t.tenant(ctx)
		selector, template := t.template()
		template.Spec.NodeSelector = nowhere()
		set := &appsv1.StatefulSet{ObjectMeta: t.queued(), Spec: appsv1.StatefulSetSpec{Replicas: new(int32(1)), Selector: selector, Template: template}}
		submitAs(ctx, tenant, set)
		t.expectDeactivated(ctx, 1)
		t.expectPods(ctx, "", "web-0=gated")
		merge(ctx, tenant, set, `{"spec":{"template":{"spec":{"nodeSelector":null}}}}`)
		first := t.pods(ctx, Default)[0]
		Expect(tenant.Delete(ctx, &first)).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(t.pods(ctx, g)).To(ConsistOf(HaveField("UID", Not(Equal(first.UID)))))
		}).WithContext(ctx).Should(Succeed())
		awaitHandled(ctx)
		Expect(t.standing(ctx, Default, "")).To(Equal([]string{"web-0=gated"}), "it runs only when it is activated")
		w := t.workloads(ctx, Default)[0]
		merge(ctx, env.Admin, &w, `{"spec":{"active":true}}`)
		t.expectPods(ctx, "", "web-0=running")
		Expect(t.workloads(ctx, Default)).To(ConsistOf(HaveField("UID", w.UID)))
	}, SpecTimeout(specTimeout))

	It("a group of pods keeps its back-off when its user creates the pods again", func(ctx SpecContext) {
		t := newTeam(ctx, "2", "0")
		members := func() []pod {
			var all []pod
			for _, name := range []string{"g-0", "g-1"} {
				p := t.member(name, 0).label(apis.PodGroupNameLabel, "g").annotate(apis.PodGroupTotalCountAnnotation, "2")
				p.Spec.NodeSelector = nowhere()
				all = append(all, p)
			}
			return all
		}
		DeferCleanup(func(ctx SpecContext) { t.forget(ctx) }, NodeTimeout(patience))
		var first kueue.Workload
		for try := range int32(retries + 1) {
			create(ctx, members()...)
			Eventually(func(g Gomega) {
				w := t.workload(ctx, g, "g")
				g.Expect(quotaworkload.IsTrue(w, kueue.WorkloadEvicted)).To(BeTrue())
				g.Expect(evictions(w, kueue.WorkloadEvictedByPodsReadyTimeout)).To(Equal(min(try+1, retries)))
				g.Expect(t.pods(ctx, g)).To(BeEmpty())
			}).WithContext(ctx).Should(Succeed())
			w := t.workload(ctx, Default, "g")
			Expect(w.OwnerReferences).To(BeEmpty())
			if try == 0 {
				first = *w
			}
			Expect(w.UID).To(Equal(first.UID))
		}
		t.expectDeactivated(ctx, 1)
		create(ctx, members()...)
		t.expectTold(ctx, "Pod", "g-0", "due to exceeding the maximum number of re-queuing retries")
		awaitHandled(ctx)
		Expect(t.standing(ctx, Default, "g-")).To(Equal([]string{"g-0=gated", "g-1=gated"}))
	}, SpecTimeout(specTimeout))

	It("a Deployment keeps its quota Workloads in order whatever its tenant does, and whenever the manager ends", func(ctx SpecContext) {
		t := newTeam(ctx, "0", "2")
		tenant := t.tenant(ctx)
		selector, template := t.template()
		requests := corev1.ResourceList{gpu: resource.MustParse("1")}
		template.Spec.NodeSelector, template.Spec.Containers[0].Resources = nowhere(), corev1.ResourceRequirements{Requests: requests, Limits: requests}
		deployment := &appsv1.Deployment{ObjectMeta: t.queued(), Spec: appsv1.DeploymentSpec{Replicas: new(int32(3)), Selector: selector, Template: template}}
		submitAs(ctx, tenant, deployment)
		random, replicas := rand.New(rand.NewPCG(uint64(GinkgoRandomSeed()), 1)), int32(3)
		for round := range 24 {
			switch pods, n := t.pods(ctx, Default), random.IntN(8); {
			case n < 4 && len(pods) > 0:
				Expect(client.IgnoreNotFound(tenant.Delete(ctx, &pods[random.IntN(len(pods))]))).To(Succeed())
			case n < 6:
				replicas = 1 + random.Int32N(3)
				scale(ctx, tenant, deployment, replicas)
			case n == 6:
				merge(ctx, tenant, deployment, fmt.Sprintf(`{"spec":{"template":{"metadata":{"labels":{"revision":"%d"}}}}}`, round))
			default:
				Expect(manager.Kill()).To(Succeed())
				var err error
				manager, err = startManagerWith(ctx, settings)
				Expect(err).NotTo(HaveOccurred())
			}
			Eventually(func(g Gomega) {
				owned := map[string]int{}
				for _, w := range t.workloads(ctx, g) {
					owned[w.Annotations[apis.PodGroupKey]]++
				}
				n := int32(0)
				for _, p := range t.pods(ctx, g) {
					if p.DeletionTimestamp == nil {
						g.Expect(owned["pod."+p.Name]).To(Equal(1), p.Name)
						n++
					}
				}
				g.Expect(n).To(BeNumerically(">=", replicas))
			}).WithContext(ctx).Should(Succeed())
		}

		By("a template that can run")
		scale(ctx, tenant, deployment, 2)
		merge(ctx, tenant, deployment, `{"spec":{"strategy":{"rollingUpdate":{"maxSurge":0,"maxUnavailable":2}},"template":{"spec":{"nodeSelector":null}}}}`)
		t.expectStates(ctx, map[string]int{running: 2})
		Expect(tenant.Delete(ctx, deployment, client.PropagationPolicy(metav1.DeletePropagationBackground))).To(Succeed())
		Eventually(func(g Gomega) { g.Expect(t.workloads(ctx, g)).To(BeEmpty()) }).WithContext(ctx).Should(Succeed())
		t.expectUsage(ctx, gpu, 0)
	}, SpecTimeout(specTimeout))

	It("a deleted namespace takes quota Workloads along that wait for pods", func(ctx SpecContext) {
		t := newTeam(ctx, "2", "0")
		p := t.member("p", 0)
		p.Spec.NodeSelector = nowhere()
		create(ctx, p)
		Eventually(func(g Gomega) {
			g.Expect(t.pods(ctx, g)).To(BeEmpty())
			g.Expect(t.workloads(ctx, g)).To(ConsistOf(SatisfyAll(
				HaveField("OwnerReferences", BeEmpty()), WithTransform(func(w kueue.Workload) bool { return quotaworkload.HoldsQuota(&w) }, BeFalse()),
			)))
		}).WithContext(ctx).Should(Succeed())
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: t.name}}
		Expect(env.Admin.Delete(ctx, namespace)).To(Succeed())
		Eventually(func(g Gomega) { g.Expect(isGone(ctx, g, namespace)).To(BeTrue()) }).WithContext(ctx).WithTimeout(time.Minute).Should(Succeed())
	}, SpecTimeout(specTimeout))
})
