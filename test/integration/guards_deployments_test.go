package integration_test

import (
	"context"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
)

// newTemplated returns an object without pods, whose template has only the label that it selects.
func newTemplated(namespace, kind string, labels map[string]string) *unstructured.Unstructured {
	version, selector := appsv1.SchemeGroupVersion.String(), map[string]any{"matchLabels": map[string]any{"app": "web"}}
	object := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"replicas": int64(0), "serviceName": "web", "selector": selector,
		"template": map[string]any{
			"metadata": map[string]any{"labels": map[string]any{"app": "web"}},
			"spec":     map[string]any{"containers": []any{map[string]any{"name": "main", "image": "example.com/main"}}},
		},
	}}}
	spec := object.Object["spec"].(map[string]any)
	switch kind {
	case "ReplicationController":
		version, spec["selector"] = corev1.SchemeGroupVersion.String(), selector["matchLabels"]
	case "DaemonSet":
		delete(spec, "replicas")
	}
	if kind != "StatefulSet" {
		delete(spec, "serviceName")
	}
	object.SetGroupVersionKind(schema.FromAPIVersionAndKind(version, kind))
	object.SetNamespace(namespace)
	object.SetName("web")
	object.SetLabels(labels)
	return object
}

// podLabels returns the labels of a pod template.
func podLabels(object *unstructured.Unstructured) map[string]string {
	GinkgoHelper()
	labels, _, err := unstructured.NestedStringMap(object.Object, "spec", "template", "metadata", "labels")
	Expect(err).NotTo(HaveOccurred())
	return labels
}

// setPodLabel sets a label in a pod template.
func setPodLabel(object *unstructured.Unstructured, key, value string) {
	GinkgoHelper()
	Expect(unstructured.SetNestedField(object.Object, value, "spec", "template", "metadata", "labels", key)).To(Succeed())
}

var _ = Describe("The guards of Deployments and the like that name a queue", func() {
	const (
		toQueue    = `{"op":"add","path":"/metadata/labels/kueue.x-k8s.io~1queue-name","value":%q}`
		podsTo     = `{"op":"add","path":"/spec/template/metadata/labels/kueue.x-k8s.io~1queue-name","value":%q}`
		ofNoQueue  = `{"op":"remove","path":"/metadata/labels/kueue.x-k8s.io~1queue-name"}`
		podsOfNone = `{"op":"remove","path":"/spec/template/metadata/labels/kueue.x-k8s.io~1queue-name"}`
	)
	kinds := []string{"Deployment", "StatefulSet", "ReplicaSet", "ReplicationController"}
	var namespace string
	var tenant client.Client

	BeforeEach(func(ctx SpecContext) {
		namespace = newTenant(ctx)
		awaitGuards(ctx, namespace)
		tenant = env.clientAs(alice)
		DeferCleanup(func(ctx SpecContext) {
			for _, kind := range append(kinds, "DaemonSet") {
				object := newTemplated(namespace, kind, nil)
				Expect(client.IgnoreNotFound(env.adminClient.Delete(ctx, object, client.PropagationPolicy("Background")))).To(Succeed())
			}
		})
	}, NodeTimeout(patience))

	queued := func(kind string) *unstructured.Unstructured {
		return newTemplated(namespace, kind, map[string]string{apis.QueueLabel: "main", apis.PriorityClassLabel: "high"})
	}
	// patched returns what a patch as a dry run makes of an object.
	patched := func(ctx context.Context, object *unstructured.Unstructured, operations ...string) (*unstructured.Unstructured, error) {
		after := object.DeepCopy()
		return after, tenant.Patch(ctx, after, jsonPatch("["+strings.Join(operations, ",")+"]"), client.DryRunAll)
	}

	It("copy queue and priority class into the pod template, and keep them there", func(ctx SpecContext) {
		for _, kind := range kinds {
			By(kind)
			object := queued(kind)
			setPodLabel(object, apis.QueueLabel, "other")
			Expect(tenant.Create(ctx, object)).To(Succeed())
			both := map[string]string{"app": "web", apis.QueueLabel: "main", apis.PriorityClassLabel: "high"}
			Expect(podLabels(object)).To(Equal(both))
			for _, operations := range [][]string{
				{podsOfNone}, {fmt.Sprintf(podsTo, "other")}, {`{"op":"replace","path":"/spec/template/metadata/labels","value":{"app":"web"}}`},
			} {
				after, err := patched(ctx, object, operations...)
				Expect(err).NotTo(HaveOccurred())
				Expect(podLabels(after)).To(Equal(both), "%v", operations)
			}
			forced := newTemplated(namespace, kind, map[string]string{apis.QueueLabel: "main", apis.PriorityClassLabel: "high"})
			setPodLabel(forced, apis.QueueLabel, "other")
			Expect(tenant.Apply(ctx, client.ApplyConfigurationFromUnstructured(forced), client.ForceOwnership, client.FieldOwner("tenant"), client.DryRunAll)).To(Succeed())
			Expect(podLabels(forced)).To(Equal(both), "by server-side apply")

			after, err := patched(ctx, object, fmt.Sprintf(toQueue, "other"))
			Expect(err).NotTo(HaveOccurred())
			Expect(podLabels(after)).To(HaveKeyWithValue(apis.QueueLabel, "other"), "it rolls the pods out in the other queue")
			after, err = patched(ctx, object, `{"op":"replace","path":"/metadata/labels/kueue.x-k8s.io~1priority-class","value":"low"}`)
			Expect(err).NotTo(HaveOccurred())
			Expect(podLabels(after)).To(HaveKeyWithValue(apis.PriorityClassLabel, "low"))
			after, err = patched(ctx, object, `{"op":"remove","path":"/metadata/labels/kueue.x-k8s.io~1priority-class"}`)
			Expect(err).NotTo(HaveOccurred())
			Expect(podLabels(after)).To(Equal(map[string]string{"app": "web", apis.QueueLabel: "main"}))
		}
	}, SpecTimeout(patience))

	It("refuse writes by which pods would start without quota, or never", func(ctx SpecContext) {
		for _, kind := range kinds {
			By(kind)
			object := queued(kind)
			Expect(tenant.Create(ctx, object)).To(Succeed())
			for _, row := range []struct {
				operations []string
				want       string
			}{
				{[]string{ofNoQueue}, "metadata.labels: the label kueue.x-k8s.io/queue-name cannot be removed: the pods are queued in LocalQueue main"},
				{[]string{ofNoQueue, podsOfNone}, "cannot be removed"},
				{[]string{ofNoQueue, `{"op":"remove","path":"/metadata/labels/kueue.x-k8s.io~1priority-class"}`, `{"op":"add","path":"/metadata/labels/team","value":"ml"}`}, "cannot be removed"},
				{[]string{fmt.Sprintf(toQueue, "")}, "must not be empty"},
				{[]string{fmt.Sprintf(toQueue, "Main")}, `kueue.x-k8s.io/queue-name is "Main", which is no name of a LocalQueue`},
				{[]string{`{"op":"add","path":"/spec/template/spec/terminationGracePeriodSeconds","value":4000}`}, "must be at most 3600"},
				{[]string{`{"op":"add","path":"/spec/template/metadata/labels/batch.kubernetes.io~1controller-uid","value":"x"}`}, "set on pods by their controllers only"},
				{[]string{`{"op":"add","path":"/spec/template/metadata/labels/tranche.dev~1pod-group-member","value":"true"}`}, "set on pods by their controllers only"},
				{
					[]string{`{"op":"add","path":"/spec/template/metadata/annotations","value":{"tranche.dev/admission":"x"}}`},
					"spec.template.metadata.annotations: tranche.dev/admission would keep the pods from being created",
				},
				{[]string{`{"op":"add","path":"/spec/template/metadata/annotations","value":{"kueue.x-k8s.io/safe-to-forcefully-delete":"true"}}`}, allowed},
				{[]string{`{"op":"add","path":"/metadata/labels/team","value":"ml"}`}, allowed},
				{[]string{`{"op":"add","path":"/spec/minReadySeconds","value":1}`}, allowed},
			} {
				_, err := patched(ctx, object, row.operations...)
				expectAnswer(err, row.want)
			}
			// The status of the others leaves labels as they are.
			if kind == "StatefulSet" || kind == "ReplicaSet" {
				patch := jsonPatch("[" + ofNoQueue + "]")
				expectAnswer(env.adminClient.Status().Patch(ctx, object.DeepCopy(), patch, &client.SubResourcePatchOptions{PatchOptions: client.PatchOptions{DryRun: []string{"All"}}}),
					"cannot be removed")
			}
			for queue, want := range map[string]string{"": "must not be empty", "Main": "no name of a LocalQueue"} {
				expectAnswer(tenant.Create(ctx, newTemplated(namespace, kind, map[string]string{apis.QueueLabel: queue}), client.DryRunAll), want)
			}
		}
	}, SpecTimeout(patience))

	It("refuse an annotation by which no pod could be created, unless the object has it already", Serial, func(ctx SpecContext) {
		annotated := func(kind string, labels map[string]string) *unstructured.Unstructured {
			object := newTemplated(namespace, kind, labels)
			Expect(unstructured.SetNestedField(object.Object, "x", "spec", "template", "metadata", "annotations", apis.AdmissionAnnotation)).To(Succeed())
			return object
		}
		const refused = apis.AdmissionAnnotation + " would keep the pods from being created"
		for _, kind := range kinds {
			object := annotated(kind, nil)
			Expect(tenant.Create(ctx, object)).To(Succeed(), "its pods do not wait for quota")
			_, err := patched(ctx, object, `{"op":"add","path":"/metadata/labels","value":{"kueue.x-k8s.io/queue-name":"main"}}`)
			expectAnswer(err, refused)
			Expect(tenant.Delete(ctx, object)).To(Succeed())
			expectAnswer(tenant.Create(ctx, annotated(kind, map[string]string{apis.QueueLabel: "main"}), client.DryRunAll), refused)
		}
		By("having been created before the policy")
		binding := get(ctx, &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "tranche-guard-deployments"}})
		Expect(env.adminClient.Delete(ctx, binding)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) {
			binding.ResourceVersion, binding.UID = "", ""
			Expect(client.IgnoreAlreadyExists(env.adminClient.Create(ctx, binding))).To(Succeed())
		}, NodeTimeout(patience))
		object := annotated("Deployment", map[string]string{apis.QueueLabel: "main"})
		Eventually(func() error { return tenant.Create(ctx, object) }).WithContext(ctx).Should(Succeed())
		binding.ResourceVersion, binding.UID = "", ""
		Expect(env.adminClient.Create(ctx, binding)).To(Succeed())
		const change = `{"op":"replace","path":"/spec/template/metadata/annotations/tranche.dev~1admission","value":"y"}`
		Eventually(func() error { _, err := patched(ctx, object, change); return err }).WithContext(ctx).Should(MatchError(ContainSubstring(refused)))
		for _, operation := range []string{
			`{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"example.com/other"}`, fmt.Sprintf(toQueue, "other"),
			`{"op":"add","path":"/metadata/labels/team","value":"ml"}`, `{"op":"remove","path":"/spec/template/metadata/annotations"}`,
		} {
			_, err := patched(ctx, object, operation)
			Expect(err).NotTo(HaveOccurred(), operation)
		}
	}, SpecTimeout(patience))

	It("leave alone what names no queue, and queue it as soon as it does", func(ctx SpecContext) {
		for _, kind := range kinds {
			By(kind)
			object := newTemplated(namespace, kind, map[string]string{"team": "ml"})
			Expect(tenant.Create(ctx, object)).To(Succeed())
			Expect(podLabels(object)).To(Equal(map[string]string{"app": "web"}))
			after, err := patched(ctx, object, fmt.Sprintf(toQueue, "main"))
			Expect(err).NotTo(HaveOccurred())
			Expect(podLabels(after)).To(HaveKeyWithValue(apis.QueueLabel, "main"))
			after, err = patched(ctx, object, fmt.Sprintf(podsTo, "main"))
			Expect(err).NotTo(HaveOccurred())
			Expect(after.GetLabels()).NotTo(HaveKey(apis.QueueLabel), "its pods name their queue themselves")
			By("not changing the ReplicaSet of a Deployment, which the Deployment would not recognize any longer")
			if kind == "ReplicaSet" {
				owned := queued(kind)
				owned.SetName("owned")
				owned.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", UID: "x", Controller: new(true)}})
				expectAnswer(tenant.Create(ctx, owned, client.DryRunAll), "on a ReplicaSet of a Deployment, set the label on the Deployment")
			}
		}
	}, SpecTimeout(patience))

	It("let the controller of a pod release it, and no tenant", func(ctx SpecContext) {
		controller := queued("ReplicationController")
		Expect(unstructured.SetNestedField(controller.Object, int64(1), "spec", "replicas")).To(Succeed())
		Expect(tenant.Create(ctx, controller)).To(Succeed())
		pods := &corev1.PodList{}
		Eventually(func(g Gomega) {
			g.Expect(env.adminClient.List(ctx, pods, client.InNamespace(namespace))).To(Succeed())
			g.Expect(pods.Items).To(HaveLen(1))
		}).WithContext(ctx).Should(Succeed())
		pod := &pods.Items[0]
		Expect(gatesOf(pod)).To(ConsistOf(apis.PodAdmissionGate))
		unowned := jsonPatch(`[{"op":"remove","path":"/metadata/ownerReferences"}]`)
		expectAnswer(tenant.Patch(ctx, pod.DeepCopy(), unowned, client.DryRunAll), "metadata.ownerReferences")
		for _, account := range []string{"daemon-set-controller", "replicaset-controller", "statefulset-controller"} {
			expectAnswer(env.clientAs("system:serviceaccount:kube-system:"+account).Patch(ctx, pod.DeepCopy(), unowned, client.DryRunAll), allowed)
		}
		Expect(tenant.Patch(ctx, pod, jsonPatch(`[{"op":"replace","path":"/metadata/labels/app","value":"none"}]`))).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(get(ctx, pod).OwnerReferences).To(BeEmpty())
			g.Expect(env.adminClient.List(ctx, pods, client.InNamespace(namespace), client.MatchingLabels{"app": "web"})).To(Succeed())
			g.Expect(pods.Items).To(HaveLen(1))
		}).WithContext(ctx).Should(Succeed())
		Expect(get(ctx, pod).Labels).To(HaveKeyWithValue(apis.QueueLabel, "main"))
		Expect(tenant.Delete(ctx, pod)).To(Succeed())
	}, SpecTimeout(patience))

	It("refuse a queue name that has no effect on a DaemonSet", func(ctx SpecContext) {
		expectAnswer(tenant.Create(ctx, queued("DaemonSet"), client.DryRunAll), "kueue.x-k8s.io/queue-name has no effect on a DaemonSet")
		waiting := queued("DaemonSet")
		setPodLabel(waiting, apis.QueueLabel, "main")
		Expect(tenant.Create(ctx, waiting, client.DryRunAll)).To(Succeed(), "its pods wait for quota")
		owned := queued("DaemonSet")
		owned.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Agent", Name: "web", UID: "x"}})
		Expect(tenant.Create(ctx, owned, client.DryRunAll)).To(Succeed())
		plain := newTemplated(namespace, "DaemonSet", nil)
		plain.Object["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)["nodeSelector"] = map[string]any{"no": "node"}
		Expect(tenant.Create(ctx, plain)).To(Succeed())
		_, err := patched(ctx, plain, `{"op":"add","path":"/metadata/labels","value":{"kueue.x-k8s.io/queue-name":"main"}}`)
		expectAnswer(err, "has no effect on a DaemonSet")
	}, SpecTimeout(patience))

	It("queue what names no queue where there is a LocalQueue named default, as Kueue does", func(ctx SpecContext) {
		existing := newTemplated(namespace, "Deployment", nil)
		Expect(tenant.Create(ctx, existing)).To(Succeed())
		Expect(podLabels(existing)).NotTo(HaveKey(apis.QueueLabel))
		Expect(env.adminClient.Create(ctx, &kueue.LocalQueue{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "default"}, Spec: kueue.LocalQueueSpec{ClusterQueue: "any"},
		})).To(Succeed())
		for _, kind := range []string{"Deployment", "StatefulSet"} {
			for _, labels := range []map[string]string{nil, {"team": "ml"}, {apis.PriorityClassLabel: "high"}} {
				Eventually(func(g Gomega) {
					object := newTemplated(namespace, kind, labels)
					object.SetName("other")
					g.Expect(tenant.Create(ctx, object, client.DryRunAll)).To(Succeed())
					g.Expect(object.GetLabels()).To(HaveKeyWithValue(apis.QueueLabel, "default"))
					g.Expect(podLabels(object)).To(HaveKeyWithValue(apis.QueueLabel, "default"))
					if class, ok := labels[apis.PriorityClassLabel]; ok {
						g.Expect(podLabels(object)).To(HaveKeyWithValue(apis.PriorityClassLabel, class))
					}
				}).WithContext(ctx).Should(Succeed())
			}
			named := newTemplated(namespace, kind, nil)
			named.SetName("named")
			setPodLabel(named, apis.QueueLabel, "main")
			Expect(tenant.Create(ctx, named, client.DryRunAll)).To(Succeed())
			Expect(named.GetLabels()).NotTo(HaveKey(apis.QueueLabel))
			Expect(podLabels(named)).To(HaveKeyWithValue(apis.QueueLabel, "main"))
		}
		for _, kind := range []string{"ReplicaSet", "DaemonSet", "ReplicationController"} {
			object := newTemplated(namespace, kind, nil)
			Expect(tenant.Create(ctx, object, client.DryRunAll)).To(Succeed())
			Expect(object.GetLabels()).NotTo(HaveKey(apis.QueueLabel), "its pods get the queue")
		}
		By("keeping it there when a controller writes all labels")
		object := newTemplated(namespace, "StatefulSet", nil)
		Expect(tenant.Create(ctx, object)).To(Succeed())
		after, err := patched(ctx, object, ofNoQueue, podsOfNone)
		Expect(err).NotTo(HaveOccurred())
		Expect(after.GetLabels()).To(HaveKeyWithValue(apis.QueueLabel, "default"))
		Expect(podLabels(after)).To(HaveKeyWithValue(apis.QueueLabel, "default"))
		after, err = patched(ctx, object, fmt.Sprintf(toQueue, "main"))
		Expect(err).NotTo(HaveOccurred())
		Expect(podLabels(after)).To(HaveKeyWithValue(apis.QueueLabel, "main"))
		after, err = patched(ctx, existing, `{"op":"add","path":"/metadata/labels","value":{"team":"ml"}}`)
		Expect(err).NotTo(HaveOccurred())
		Expect(after.GetLabels()).NotTo(HaveKey(apis.QueueLabel), "only when it is created")
	}, SpecTimeout(patience))
})
