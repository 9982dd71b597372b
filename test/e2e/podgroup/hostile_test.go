package podgroup_test

import (
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
)

var _ = Describe("A tenant with the role edit", func() {
	It("gets no accelerator without quota from the pods of a group and from a pod without a group", func(ctx SpecContext) {
		t := newTeam(ctx, "0", "3")
		tenant := t.tenant(ctx)
		in := func(name, group string) pod {
			return t.member(name, 1).label(apis.PodGroupNameLabel, group).annotate(apis.PodGroupTotalCountAnnotation, "2")
		}
		create(ctx, in("runs-0", "runs"), in("runs-1", "runs"), t.member("alone", 1))
		t.expectPods(ctx, "", "alone=running", "runs-0=running", "runs-1=running")
		create(ctx, in("waits-0", "waits"), in("waits-1", "waits"), t.member("waits-alone", 1))
		t.expectPods(ctx, "waits", "waits-0=gated", "waits-1=gated", "waits-alone=gated")
		patches := []string{
			`[{"op":"remove","path":"/metadata/labels"}]`,
			`[{"op":"remove","path":"/metadata/labels/tranche.dev~1pod-group-member"}]`,
			`[{"op":"remove","path":"/metadata/labels/kueue.x-k8s.io~1queue-name"}]`,
			`[{"op":"add","path":"/metadata/labels/kueue.x-k8s.io~1pod-group-name","value":"runs2"}]`,
			`[{"op":"add","path":"/metadata/labels/pod-group.scheduling.sigs.k8s.io","value":"other"}]`,
			`[{"op":"add","path":"/metadata/labels/jobset.sigs.k8s.io~1jobset-uid","value":"x"}]`,
			`[{"op":"add","path":"/metadata/annotations","value":{}},{"op":"add","path":"/metadata/annotations/tranche.dev~1admission","value":"x.0/y"}]`,
			`[{"op":"add","path":"/metadata/annotations/scheduling.k8s.io~1group-name","value":"other"}]`,
			`[{"op":"add","path":"/metadata/ownerReferences","value":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"x","uid":"x","controller":true}]}]`,
			`[{"op":"add","path":"/spec/tolerations/-","value":{"key":"gpu","operator":"Exists"}},{"op":"add","path":"/spec/nodeSelector","value":{"x":"y"}}]`,
			`[{"op":"add","path":"/spec/schedulingGates","value":[]}]`,
			`[{"op":"add","path":"/spec/containers/0/resources/requests/nvidia.com~1gpu","value":"2"},{"op":"add","path":"/spec/containers/0/resources/limits/nvidia.com~1gpu","value":"2"}]`,
		}
		for _, name := range []string{"runs-0", "alone", "waits-0", "waits-alone"} {
			for _, patch := range patches {
				for _, subresource := range []string{"", "status", "resize", "ephemeralcontainers"} {
					before := t.pod(ctx, Default, name)
					raw, to := client.RawPatch(types.JSONPatchType, []byte(patch)), before.DeepCopy()
					var err error
					if subresource == "" {
						err = tenant.Patch(ctx, to, raw)
					} else {
						err = tenant.SubResource(subresource).Patch(ctx, to, raw)
					}
					if err != nil {
						continue
					}
					after := t.pod(ctx, Default, name)
					of := fmt.Sprintf("%s %s %s", name, subresource, patch)
					Expect(after.Labels).To(Equal(before.Labels), of)
					Expect(after.OwnerReferences).To(Equal(before.OwnerReferences), of)
					Expect(after.Annotations).To(Equal(before.Annotations), of)
					Expect(after.Spec).To(Equal(before.Spec), of)
				}
			}
		}

		By("deleting by force, and with a finalizer")
		alone := t.member("alone", 1).Pod
		const refusal = "gracePeriodSeconds is 0: the pod would disappear and release its quota at once"
		Expect(tenant.Delete(ctx, alone, client.GracePeriodSeconds(0))).To(MatchError(ContainSubstring(refusal)))
		force := &policyv1.Eviction{DeleteOptions: &metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}}
		Expect(tenant.SubResource("eviction").Create(ctx, alone, force)).To(MatchError(ContainSubstring(refusal)))
		all := []client.DeleteAllOfOption{client.InNamespace(t.name), client.GracePeriodSeconds(0)}
		Expect(tenant.DeleteAllOf(ctx, &corev1.Pod{}, all...)).To(MatchError(ContainSubstring(refusal)))
		finalizers := func(list string) client.Patch {
			return client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":`+list+`}}`))
		}
		Expect(tenant.Patch(ctx, alone.DeepCopy(), finalizers(`["example.com/stay"]`))).To(Succeed())
		Expect(tenant.Delete(ctx, alone)).To(Succeed())
		t.expectPods(ctx, "waits-alone", "waits-alone=gated")
		t.end(ctx, corev1.PodFailed, "alone") // the kubelet reports that its containers have ended
		t.expectPods(ctx, "waits-alone", "waits-alone=running")
		t.expectUsage(ctx, gpu, 3)
		Expect(tenant.Patch(ctx, alone.DeepCopy(), finalizers("null"))).To(Succeed())

		By("creating pods again under the names of those that terminate, in another order and in another group")
		for _, name := range []string{"runs-0", "runs-1"} {
			Expect(tenant.Delete(ctx, in(name, "runs").Pod)).To(Succeed())
			Eventually(func() error { return tenant.Create(ctx, in(name, "waits").Pod) }).WithContext(ctx).Should(Succeed())
		}
		t.expectPods(ctx, "waits-", "waits-0=running", "waits-1=running", "waits-alone=running")
		Expect(tenant.Delete(ctx, &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: t.name, Name: "waits"}})).NotTo(Succeed())
	}, SpecTimeout(specTimeout))
})

// pod returns a pod by its name.
func (t team) pod(ctx SpecContext, g Gomega, name string) *corev1.Pod {
	var p corev1.Pod
	g.Expect(env.Admin.Get(ctx, types.NamespacedName{Namespace: t.name, Name: name}, &p)).To(Succeed())
	return &p
}
