package integration_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

var _ = Describe("The guards of unsupported fields", func() {
	It("refuse fields that would be ignored", func(ctx SpecContext) {
		meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }
		topology := kueue.TopologyReference("racks")
		for object, want := range map[client.Object]string{
			&kueue.Topology{ObjectMeta: meta("racks"), Spec: kueue.TopologySpec{Levels: []kueue.TopologyLevel{{NodeLabel: "rack"}}}}: "a Topology has no effect",
			&kueue.ResourceFlavor{ObjectMeta: meta("tas"), Spec: kueue.ResourceFlavorSpec{
				TopologyName: &topology, NodeLabels: map[string]string{"tas": "yes"},
			}}: "spec.topologyName is not supported",
			&kueue.ClusterQueue{ObjectMeta: meta("concurrent"), Spec: kueue.ClusterQueueSpec{
				ConcurrentAdmissionPolicy: &kueue.ConcurrentAdmissionPolicy{
					Migration: kueue.ConcurrentAdmissionMigration{Mode: kueue.ConcurrentAdmissionTryPreferredFlavors},
				},
			}}: "spec.concurrentAdmissionPolicy is not supported",
		} {
			Eventually(func() error { return env.adminClient.Create(ctx, object, client.DryRunAll) }).WithContext(ctx).
				Should(MatchError(ContainSubstring(want)))
		}
		By("not changing objects without any of them")
		plain := &unstructured.Unstructured{}
		plain.SetGroupVersionKind(kueue.SchemeGroupVersion.WithKind("ResourceFlavor"))
		plain.SetName("without-spec")
		Expect(env.adminClient.Create(ctx, plain, client.DryRunAll)).To(Succeed())
	}, SpecTimeout(patience))
})
