package podgroup_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/apis"
)

// timedOut returns the names of the pods with the annotation of a gang that did not start in time.
func (t team) timedOut(ctx context.Context, g Gomega) []string {
	var names []string
	for _, p := range t.pods(ctx, g) {
		if p.Annotations[apis.KoordinatorTimeoutAnnotation] == "true" {
			names = append(names, p.Name)
		}
	}
	return names
}

var _ = Describe("With podGroups.afterTimeout: Stop", Ordered, func() {
	restart := func(ctx context.Context, podGroups map[string]any) {
		GinkgoHelper()
		Expect(manager.Stop()).To(Succeed())
		var err error
		manager, err = startManagerWith(ctx, map[string]any{"podGroups": podGroups})
		Expect(err).NotTo(HaveOccurred())
	}
	BeforeAll(func(ctx SpecContext) { restart(ctx, map[string]any{"afterTimeout": "Stop"}) }, NodeTimeout(patience))
	AfterAll(func(ctx SpecContext) { restart(ctx, map[string]any{}) }, NodeTimeout(patience))

	It("a gang that did not start in time is not admitted before its pods are recreated", func(ctx SpecContext) {
		t := newTeam(ctx, "2", "0")
		create(ctx, t.member("first-0", 0).koordinator("name", "first", "min-available", "1"))
		t.expectPods(ctx, "first-", "first-0=running")
		in := func(name string) pod {
			return t.member(name, 0).koordinator("name", "x", "min-available", "2", "mode", "NonStrict", "waiting-time", "2s")
		}
		create(ctx, in("x-0"), in("x-1"))
		t.expectTold(ctx, "Pod", "x-0", `Warning GangTimedOut: The gang did not start within its waiting time: pod "x-0" and all other pods with annotation`)
		Expect(t.timedOut(ctx, Default)).To(ConsistOf("x-0", "x-1"))
		t.expectUsage(ctx, "cpu", 1)
		t.end(ctx, corev1.PodSucceeded, "first-0")
		t.expectUsage(ctx, "cpu", 0)
		Consistently(func(g Gomega) {
			g.Expect(t.usage(ctx, g, "cpu")).To(BeZero())
			g.Expect(t.standing(ctx, g, "x-")).To(Equal([]string{"x-0=gated", "x-1=gated"}))
		}).WithContext(ctx).WithTimeout(3 * time.Second).Should(Succeed())

		By("recreating them")
		for _, name := range []string{"x-0", "x-1"} {
			Expect(env.Admin.Delete(ctx, in(name).Pod, client.GracePeriodSeconds(0))).To(Succeed())
		}
		create(ctx, in("x-0"), in("x-1"))
		t.expectPods(ctx, "x-", "x-0=running", "x-1=running")
		t.expectUsage(ctx, "cpu", 2)
		Expect(t.timedOut(ctx, Default)).To(BeEmpty())
	}, SpecTimeout(specTimeout))

	It("a PodGroup whose pods were not created in time gets no quota before they exist", func(ctx SpecContext) {
		t := newTeam(ctx, "2", "0")
		spec := map[string]any{"minMember": int64(2), "minResources": map[string]any{"cpu": "2"}, "scheduleTimeoutSeconds": int64(2)}
		group := t.podGroup(ctx, koordinator, "early", spec, nil)
		label := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"kueue.x-k8s.io/queue-name":"main"}}}`))
		Expect(env.Admin.Patch(ctx, group, label)).To(Succeed())
		expectNoted(ctx, group, `No quota is reserved for PodGroup "early": it has annotation`)
		Expect(group.GetAnnotations()).To(HaveKeyWithValue(apis.KoordinatorTimeoutAnnotation, "true"))
		t.expectUsage(ctx, "cpu", 0)
		By("running another gang on all quota meanwhile")
		other := func(name string) pod { return t.member(name, 0).koordinator("name", "other", "min-available", "2") }
		create(ctx, other("other-0"), other("other-1"))
		t.expectPods(ctx, "other-", "other-0=running", "other-1=running")
		t.end(ctx, corev1.PodSucceeded, "other-0", "other-1")
		t.expectUsage(ctx, "cpu", 0)
		awaitHandled(ctx)
		Expect(t.usage(ctx, Default, "cpu")).To(BeZero())
		By("creating its pods")
		in := func(name string) pod { return t.member(name, 0).label(apis.KoordinatorLabel, "early") }
		create(ctx, in("p-0"), in("p-1"))
		t.expectPods(ctx, "p-", "p-0=running", "p-1=running")
		Eventually(func(g Gomega) {
			g.Expect(env.Admin.Get(ctx, client.ObjectKeyFromObject(group), group)).To(Succeed())
			g.Expect(group.GetAnnotations()).NotTo(HaveKey(apis.KoordinatorTimeoutAnnotation))
		}).WithContext(ctx).Should(Succeed())
	}, SpecTimeout(specTimeout))
})
