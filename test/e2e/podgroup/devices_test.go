package podgroup_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/apis"
)

// The configuration of the tests maps DeviceClass gpu.example.com to the GPUs of the quota. No node has such devices, so that pods that are
// ungated stay pending.
var _ = Describe("Devices that gangs of pods claim", func() {
	claiming := func(p pod, template string) pod {
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "devices", ResourceClaimTemplateName: &template}}
		return p
	}

	It("are charged to quota by the number that each pod was allocated", func(ctx SpecContext) {
		t := newTeam(ctx, "10", "15")
		t.claimTemplate(ctx, "devices", "gpu.example.com", 8)
		member := func(name, group string) pod {
			return claiming(t.member(name, 0).koordinator("name", group, "min-available", "2"), "devices")
		}
		create(ctx, member("a-0", "a"), member("a-1", "a"))
		t.expectTold(ctx, "Pod", "a-0", "nvidia.com/gpu")
		t.expectPods(ctx, "a-", "a-0=gated", "a-1=gated")
		t.expectUsage(ctx, gpu, 0)

		By("replacing the ResourceClaimTemplate: the pods keep their ResourceClaims, and the next pod gets a different one")
		t.claimTemplate(ctx, "devices", "gpu.example.com", 5)
		Expect(env.Admin.Delete(ctx, member("a-1", "a").Pod)).To(Succeed())
		create(ctx, member("a-2", "a"))
		t.expectPods(ctx, "a-", "a-0=pending", "a-2=pending")
		t.expectUsage(ctx, gpu, 8+5)
		Eventually(func(g Gomega) { g.Expect(t.claimed(ctx, g)).To(Equal(int64(8 + 5))) }).WithContext(ctx).Should(Succeed())

		By("adding one later, which asks for quota of its own")
		create(ctx, member("a-3", "a"))
		t.expectPods(ctx, "a-", "a-0=pending", "a-2=pending", "a-3=gated")
		t.expectTold(ctx, "Pod", "a-3", "pods created later wait for quota of their own")
	}, SpecTimeout(specTimeout))

	It("keep a gang pending while no resource maps them, until the mapping exists", func(ctx SpecContext) {
		t := newTeam(ctx, "2", "1")
		group := t.podGroup(ctx, coscheduling, "free", map[string]any{"minMember": int64(1)}, nil)
		member := func(name, template string) pod {
			return claiming(t.member(name, 0).label(apis.CoschedulingLabel, "free"), template)
		}
		create(ctx, member("free-0", "late"))
		t.expectTold(ctx, "Pod", "free-0", `Warning Misconfigured: pod "free-0": resource claim "devices" names ResourceClaimTemplate "late", which does not exist: create it`)
		t.claimTemplate(ctx, "late", "nic.example.com", 1)
		expectNoted(ctx, group, `pod "free-0": request "all" of resource claim "devices" is for DeviceClass "nic.example.com", which no quota is charged for: an administrator must map it`)
		t.expectPods(ctx, "free-", "free-0=gated")
		Expect(t.workloads(ctx, Default)).To(BeEmpty())

		By("creating the pod again, with devices that quota is charged for")
		Expect(env.Admin.Delete(ctx, member("free-0", "").Pod)).To(Succeed())
		t.claimTemplate(ctx, "one", "gpu.example.com", 1)
		create(ctx, member("free-1", "one"))
		t.expectPods(ctx, "free-", "free-1=pending")
		t.expectUsage(ctx, gpu, 1)
	}, SpecTimeout(specTimeout))
})

// claimTemplate creates or replaces a ResourceClaimTemplate.
func (t team) claimTemplate(ctx context.Context, name, class string, count int64) {
	GinkgoHelper()
	template := &resourcev1.ResourceClaimTemplate{
		ObjectMeta: metav1.ObjectMeta{Namespace: t.name, Name: name},
		Spec: resourcev1.ResourceClaimTemplateSpec{Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{
			Requests: []resourcev1.DeviceRequest{{Name: "all", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: class, Count: count}}},
		}}},
	}
	Expect(client.IgnoreNotFound(env.Admin.Delete(ctx, template.DeepCopy()))).To(Succeed())
	Expect(env.Admin.Create(ctx, template)).To(Succeed())
}

// claimed returns how many devices the ResourceClaims of a team ask for together.
func (t team) claimed(ctx context.Context, g Gomega) int64 {
	var list resourcev1.ResourceClaimList
	g.Expect(env.Admin.List(ctx, &list, client.InNamespace(t.name))).To(Succeed())
	devices := int64(0)
	for i := range list.Items {
		for _, r := range list.Items[i].Spec.Devices.Requests {
			devices += r.Exactly.Count
		}
	}
	return devices
}
