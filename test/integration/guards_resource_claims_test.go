package integration_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Quota is charged for the devices in the ResourceClaim that Kubernetes creates for a pod. The scheduler takes any ResourceClaim of that name
// that the pod controls.
var _ = Describe("The guards of the ResourceClaims of pods", Ordered, ContinueOnFailure, func() {
	const (
		owned   = "metadata.ownerReferences: only Kubernetes creates the ResourceClaim of a pod"
		changed = "metadata.ownerReferences: only Kubernetes assigns a ResourceClaim to a pod"
		deleted = "the ResourceClaim belongs to a pod, and quota is charged for its devices while the pod exists; delete the pod instead"
	)
	var namespace string
	var tenant client.Client
	var pod *corev1.Pod
	var claim *resourcev1.ResourceClaim

	requests := func(count int64) resourcev1.ResourceClaimSpec {
		return resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{
			Name: "gpus", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "gpu.example.com", Count: count},
		}}}}
	}
	claimingPod := func(name string) *corev1.Pod {
		p := newPod(namespace, name)
		p.Labels = nil
		p.Spec.NodeSelector = map[string]string{"no": "such"}
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "devices", ResourceClaimTemplateName: new("one")}}
		return p
	}
	claimOf := func(ctx SpecContext, p *corev1.Pod) *resourcev1.ResourceClaim {
		GinkgoHelper()
		var c resourcev1.ResourceClaim
		Eventually(func(g Gomega) {
			statuses := get(ctx, p).Status.ResourceClaimStatuses
			g.Expect(statuses).To(HaveLen(1))
			g.Expect(env.adminClient.Get(ctx, client.ObjectKey{Namespace: p.Namespace, Name: *statuses[0].ResourceClaimName}, &c)).To(Succeed())
		}).WithContext(ctx).Should(Succeed())
		return &c
	}

	BeforeAll(func(ctx SpecContext) {
		namespace = newTenant(ctx)
		awaitGuards(ctx, namespace)
		tenant = env.clientAs(alice)
		template := &resourcev1.ResourceClaimTemplate{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "one"}, Spec: resourcev1.ResourceClaimTemplateSpec{Spec: requests(1)},
		}
		Expect(tenant.Create(ctx, template)).To(Succeed())
		pod = claimingPod("claims")
		Expect(tenant.Create(ctx, pod)).To(Succeed())
		claim = claimOf(ctx, pod)
		Eventually(func(g Gomega) { g.Expect(tenant.Delete(ctx, claim.DeepCopy(), client.DryRunAll)).NotTo(Succeed()) }).WithContext(ctx).Should(Succeed())
	}, NodeTimeout(patience))

	DescribeTable("on the ResourceClaim of a pod", func(ctx SpecContext, patch, want string) {
		expectAnswer(tenant.Patch(ctx, claim.DeepCopy(), jsonPatch(patch), client.DryRunAll), want)
		Expect(env.adminClient.Patch(ctx, claim.DeepCopy(), jsonPatch(patch), client.DryRunAll)).To(Succeed(), "an administrator may")
	},
		Entry("remove its owner reference to the pod", `[{"op":"remove","path":"/metadata/ownerReferences"}]`, changed),
		Entry("remove the controller flag of its owner reference", `[{"op":"replace","path":"/metadata/ownerReferences/0/controller","value":false}]`, changed),
		Entry("give it to another pod", `[{"op":"replace","path":"/metadata/ownerReferences/0/uid","value":"u"}]`, changed),
		Entry("assign it to another claim of the pod",
			`[{"op":"replace","path":"/metadata/annotations/resource.kubernetes.io~1pod-claim-name","value":"others"}]`, changed),
		Entry("label it", `[{"op":"add","path":"/metadata/labels","value":{"team":"ml"}}]`, allowed),
	)

	It("prevent tenants from replacing it by a claim with more devices", func(ctx SpecContext) {
		expectAnswer(tenant.Delete(ctx, claim.DeepCopy(), client.DryRunAll), deleted)
		expectAnswer(tenant.DeleteAllOf(ctx, &resourcev1.ResourceClaim{}, client.InNamespace(namespace), client.DryRunAll), deleted)
		forged := &resourcev1.ResourceClaim{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace, Name: "forged", Annotations: map[string]string{resourcev1.PodResourceClaimAnnotation: "devices"},
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID, Controller: new(true)}},
			},
			Spec: requests(8),
		}
		expectAnswer(tenant.Create(ctx, forged.DeepCopy(), client.DryRunAll), owned)
		forged.OwnerReferences[0].APIVersion, forged.OwnerReferences[0].Kind = "scheduling.k8s.io/v1alpha2", "PodGroup"
		expectAnswer(tenant.Create(ctx, forged.DeepCopy(), client.DryRunAll), owned)

		By("not restricting other ResourceClaims")
		forged.OwnerReferences, forged.Annotations = nil, nil
		Expect(tenant.Create(ctx, forged)).To(Succeed())
		give := `[{"op":"add","path":"/metadata/ownerReferences","value":[{"apiVersion":"v1","kind":"Pod","name":"claims","uid":"` + string(pod.UID) + `","controller":true}]}]`
		expectAnswer(tenant.Patch(ctx, forged.DeepCopy(), jsonPatch(give), client.DryRunAll), changed)
		Expect(tenant.Delete(ctx, forged)).To(Succeed())
	}, SpecTimeout(patience))

	It("allow its deletion with its pod, and with its namespace", func(ctx SpecContext) {
		gone := func(c *resourcev1.ResourceClaim) {
			GinkgoHelper()
			Eventually(func(g Gomega) {
				err := env.adminClient.Get(ctx, client.ObjectKeyFromObject(c), c.DeepCopy())
				g.Expect(err).To(HaveOccurred())
				g.Expect(client.IgnoreNotFound(err)).To(Succeed())
			}).WithContext(ctx).Should(Succeed())
		}
		Expect(tenant.Delete(ctx, pod, client.GracePeriodSeconds(0))).To(Succeed())
		gone(claim)
		other := claimingPod("of-a-namespace")
		Expect(tenant.Create(ctx, other)).To(Succeed())
		last := claimOf(ctx, other)
		Expect(env.adminClient.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})).To(Succeed())
		gone(last)
	}, SpecTimeout(patience))
})
