package podgroup_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/apis"
)

// expectStatus waits until a PodGroup has this status of its pods.
func expectStatus(ctx context.Context, group *unstructured.Unstructured, fields map[string]any) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(env.Admin.Get(ctx, client.ObjectKeyFromObject(group), group)).To(Succeed())
		for field, want := range fields {
			g.Expect(group.Object["status"]).To(HaveKeyWithValue(field, want))
		}
	}).WithContext(ctx).Should(Succeed())
}

// statusNow returns the status of a PodGroup.
func statusNow(ctx context.Context, group *unstructured.Unstructured) any {
	GinkgoHelper()
	Expect(env.Admin.Get(ctx, client.ObjectKeyFromObject(group), group)).To(Succeed())
	return group.Object["status"]
}

var _ = Describe("The status of a PodGroup", func() {
	It("of Coscheduling follows its pods until they have terminated, and is final then", func(ctx SpecContext) {
		t := newTeam(ctx, "3", "0")
		group := t.podGroup(ctx, coscheduling, "job", map[string]any{"minMember": int64(2)}, nil)
		in := func(name string) pod { return t.member(name, 0).label(apis.CoschedulingLabel, "job") }
		create(ctx, in("p-0"))
		expectStatus(ctx, group, map[string]any{"phase": "Pending", "running": int64(0)})
		create(ctx, in("p-1"))
		expectStatus(ctx, group, map[string]any{"phase": "Running", "running": int64(2), "scheduleStartTime": ContainSubstring("T")})
		t.end(ctx, corev1.PodSucceeded, "p-0", "p-1")
		expectStatus(ctx, group, map[string]any{"phase": "Finished", "running": int64(0), "succeeded": int64(2)})

		By("being used again")
		for _, name := range []string{"p-0", "p-1"} {
			Expect(env.Admin.Delete(ctx, in(name).Pod, client.GracePeriodSeconds(0))).To(Succeed())
		}
		create(ctx, in("q-0"), in("q-1"))
		t.expectPods(ctx, "q-", "q-0=running", "q-1=running")
		By("having been reconciled again since then")
		create(ctx, in("q-2"))
		t.expectPods(ctx, "q-", "q-0=running", "q-1=running", "q-2=running")
		Expect(statusNow(ctx, group)).To(And(HaveKeyWithValue("phase", "Finished"), HaveKeyWithValue("succeeded", int64(2))))
	}, SpecTimeout(specTimeout))

	It("of Koordinator counts pods with a node, and is not overwritten if another client writes it", func(ctx SpecContext) {
		t := newTeam(ctx, "2", "0")
		group := t.podGroup(ctx, koordinator, "job", map[string]any{"minMember": int64(2)}, nil)
		in := func(name string) pod { return t.member(name, 0).label(apis.KoordinatorLabel, "job") }
		create(ctx, in("p-0"), in("p-1"))
		expectStatus(ctx, group, map[string]any{"phase": "Running", "scheduled": int64(2), "running": int64(2)})
		Expect(group.Object["spec"]).To(HaveKeyWithValue("minMember", int64(2)))

		By("being written by a controller of its own")
		after := group.DeepCopy()
		Expect(unstructured.SetNestedField(after.Object, "Unknown", "status", "phase")).To(Succeed())
		Expect(env.Admin.Patch(ctx, after, client.MergeFrom(group), client.FieldOwner("koord-scheduler"))).To(Succeed())
		t.end(ctx, corev1.PodSucceeded, "p-0", "p-1")
		t.expectUsage(ctx, "cpu", 0)
		By("having been reconciled again since then")
		create(ctx, in("q-0"), in("q-1"))
		t.expectPods(ctx, "q-", "q-0=running", "q-1=running")
		Expect(statusNow(ctx, group)).To(And(HaveKeyWithValue("phase", "Unknown"), HaveKeyWithValue("running", int64(2))))
	}, SpecTimeout(specTimeout))

	It("of kube-batch counts its pods", func(ctx SpecContext) {
		t := newTeam(ctx, "2", "0")
		group := t.podGroup(ctx, "scheduling.incubator.k8s.io/v1alpha1", "job", map[string]any{"minMember": int64(2)}, nil)
		DeferCleanup(func(ctx SpecContext) {
			Expect(client.IgnoreNotFound(env.Admin.Delete(ctx, group))).To(Succeed())
		}, NodeTimeout(patience))
		in := func(name string) pod { return t.member(name, 0).annotate(apis.GroupNameAnnotation, "job") }
		create(ctx, in("p-0"), in("p-1"))
		expectStatus(ctx, group, map[string]any{"admitted": int64(2), "running": int64(2), "succeeded": int64(0), "failed": int64(0)})
		t.end(ctx, corev1.PodSucceeded, "p-0")
		t.end(ctx, corev1.PodFailed, "p-1")
		expectStatus(ctx, group, map[string]any{"admitted": int64(2), "running": int64(0), "succeeded": int64(1), "failed": int64(1)})
	}, SpecTimeout(specTimeout))

	It("of docs/gangs.md about Coscheduling counts its pods, whose quota is reserved before they are created", func(ctx SpecContext) {
		t := newTeam(ctx, "2", "0")
		spec := map[string]any{"minMembers": int64(2), "totalResources": map[string]any{"cpu": "2"}}
		group := t.podGroup(ctx, "incubator.scheduling.k8s.io/v1alpha1", "job", spec, nil)
		DeferCleanup(func(ctx SpecContext) {
			Expect(client.IgnoreNotFound(env.Admin.Delete(ctx, group))).To(Succeed())
		}, NodeTimeout(patience))
		label := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"kueue.x-k8s.io/queue-name":"main"}}}`))
		Expect(env.Admin.Patch(ctx, group, label)).To(Succeed())
		t.expectUsage(ctx, "cpu", 2)
		in := func(name string) pod { return t.member(name, 0).annotate(apis.GroupNameAnnotation, "job") }
		create(ctx, in("p-0"))
		expectNoted(ctx, group, "Quota is reserved for the gang, which waits for its pods")
		t.expectPods(ctx, "p-", "p-0=gated")
		create(ctx, in("p-1"))
		t.expectPods(ctx, "p-", "p-0=running", "p-1=running")
		expectStatus(ctx, group, map[string]any{"admitted": int64(2), "running": int64(2), "succeeded": int64(0), "failed": int64(0)})
		t.end(ctx, corev1.PodSucceeded, "p-0", "p-1")
		expectStatus(ctx, group, map[string]any{"admitted": int64(2), "running": int64(0), "succeeded": int64(2), "failed": int64(0)})
		t.expectUsage(ctx, "cpu", 0)
	}, SpecTimeout(specTimeout))
})
