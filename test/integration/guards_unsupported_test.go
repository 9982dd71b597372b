package integration_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
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

	It("warn about a queue name that has no effect", func(ctx SpecContext) {
		namespace := newTenant(ctx)
		warnings := &recorder{}
		config := env.Plane.UserConfig(alice)
		config.WarningHandler = warnings
		warned, err := client.New(config, client.Options{Scheme: env.adminClient.Scheme()})
		Expect(err).NotTo(HaveOccurred())
		pods := corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "main", Image: "example.com/main"}}}
		job := func() *batchv1.Job {
			return &batchv1.Job{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "alone", Labels: map[string]string{apis.QueueLabel: "queue"}},
				Spec:       batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: pods}},
			}
		}
		app := map[string]string{"app": "web"}
		ofPods := &metav1.LabelSelector{MatchLabels: app}
		forever := *pods.DeepCopy()
		forever.RestartPolicy = corev1.RestartPolicyAlways
		template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: app}, Spec: forever}
		deployment := &appsv1.Deployment{ObjectMeta: job().ObjectMeta, Spec: appsv1.DeploymentSpec{Selector: ofPods, Template: template}}
		Eventually(func(g Gomega) {
			warnings.reset()
			g.Expect(warned.Create(ctx, deployment.DeepCopy(), client.DryRunAll)).To(Succeed())
			g.Expect(warnings.text()).To(ContainElement(ContainSubstring("has no effect on this Deployment, which runs without quota")))
		}).WithContext(ctx).Should(Succeed())
		template.Labels = map[string]string{"app": "web", apis.QueueLabel: "queue"}
		deployment.Spec.Template = template
		warnings.reset()
		Expect(warned.Create(ctx, deployment.DeepCopy(), client.DryRunAll)).To(Succeed())
		Expect(warnings.text()).To(ContainElement(ContainSubstring("the pods of this Deployment will be refused")))
		warnings.reset()
		Expect(warned.Create(ctx, &appsv1.StatefulSet{ObjectMeta: job().ObjectMeta, Spec: appsv1.StatefulSetSpec{Selector: ofPods, Template: template}}, client.DryRunAll)).To(Succeed())
		Expect(warnings.text()).To(BeEmpty(), "its pods wait for quota")
		warnings.reset()
		ofGroup := job()
		ofGroup.Labels = nil // the API server gives it those of its pods
		ofGroup.Spec.Template.Labels = map[string]string{apis.QueueLabel: "queue", "scheduling.x-k8s.io/pod-group": "group"}
		Expect(warned.Create(ctx, ofGroup, client.DryRunAll)).To(Succeed())
		Expect(ofGroup.Labels).NotTo(HaveKey(apis.HoldLabel), "its pods wait for quota")
		withoutQueue := job()
		withoutQueue.Spec.Template.Labels = map[string]string{"scheduling.x-k8s.io/pod-group": "group"}
		Expect(warned.Create(ctx, withoutQueue, client.DryRunAll)).To(Succeed())
		Expect(withoutQueue.Labels).To(HaveKeyWithValue(apis.HoldLabel, apis.HoldQueued), "its pods name no queue")
		Expect(warnings.text()).NotTo(ContainElement(ContainSubstring("has no effect")))
		warnings.reset()
		Expect(warned.Create(ctx, newQueued(namespace, "queued", "a"), client.DryRunAll)).To(Succeed())
		Expect(warnings.text()).NotTo(ContainElement(ContainSubstring("has no effect")))
	}, SpecTimeout(patience))
})
