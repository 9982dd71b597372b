package integration_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// The rows are the checks of docs/reference/validation.md.
var _ = Describe("The schema of quota Workloads", Ordered, func() {
	const gatedBy = "kueue.x-k8s.io/admission-gated-by"
	var namespace string
	BeforeAll(func(ctx SpecContext) { namespace = newTenant(ctx) })

	DescribeTable("on creation", func(ctx SpecContext, change func(*kueue.Workload), want string) {
		w := validWorkload(namespace)
		change(w)
		expectAnswer(env.adminClient.Create(ctx, w, client.DryRunAll), want)
	},
		Entry("accept a valid one", func(*kueue.Workload) {}, allowed),
		Entry("refuse a label of pods", func(w *kueue.Workload) { w.Spec.PodSets[0].Template.Labels = map[string]string{"team": "no value"} },
			`spec.podSets[*].template.metadata.labels: "team: no value" of pod set main is not valid on pods`),
		Entry("refuse an annotation of pods", func(w *kueue.Workload) { w.Spec.PodSets[0].Template.Annotations = map[string]string{"-a": ""} },
			`spec.podSets[*].template.metadata.annotations: the key "-a" of pod set main`),
		Entry("refuse the resource pods", func(w *kueue.Workload) {
			w.Spec.PodSets[0].Template.Spec.Containers[0].Resources.Requests["pods"] = resource.MustParse("1")
		}, `the resource "pods: 1" of pod set main cannot be requested`),
		Entry("refuse a negative request", func(w *kueue.Workload) {
			w.Spec.PodSets[0].Template.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("-1")
		}, `the resource "cpu: -1" of pod set main cannot be requested`),
		Entry("refuse a negative limit of an init container", func(w *kueue.Workload) {
			w.Spec.PodSets[0].Template.Spec.InitContainers = []corev1.Container{{
				Name: "init", Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"cpu": resource.MustParse("-1")}},
			}}
		}, `the resource "cpu: -1" of pod set main cannot be requested`),
		Entry("refuse a negative request of the pod", func(w *kueue.Workload) {
			w.Spec.PodSets[0].Template.Spec.Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("-1")}}
		}, `the resource "cpu: -1" of pod set main cannot be requested`),
		Entry("refuse minCount in two pod sets", func(w *kueue.Workload) {
			w.Spec.PodSets = append(w.Spec.PodSets, *w.Spec.PodSets[0].DeepCopy())
			w.Spec.PodSets[1].Name = "other"
			w.Spec.PodSets[0].MinCount, w.Spec.PodSets[1].MinCount = ptr.To[int32](1), ptr.To[int32](1)
		}, "spec.podSets: only one pod set may have minCount"),
		Entry("refuse a minCount above the count", func(w *kueue.Workload) { w.Spec.PodSets[0].MinCount = ptr.To[int32](9) },
			"minCount should be positive and less or equal to count"),
		Entry("refuse a slice without a size", func(w *kueue.Workload) {
			w.Spec.PodSets[0].TopologyRequest = &kueue.PodSetTopologyRequest{PodSetSliceRequiredTopology: new("rack")}
		}, "pod set main must have podSetSliceRequiredTopology together with a podSetSliceSize above 0, or neither"),
		Entry("refuse a slice without pods", func(w *kueue.Workload) {
			w.Spec.PodSets[0].TopologyRequest = &kueue.PodSetTopologyRequest{PodSetSliceRequiredTopology: new("rack"), PodSetSliceSize: ptr.To[int32](0)}
		}, "podSetSliceSize above 0"),
		Entry("refuse a priority class without a priority", func(w *kueue.Workload) {
			w.Spec.PriorityClassRef = &kueue.PriorityClassRef{Group: "kueue.x-k8s.io", Kind: "WorkloadPriorityClass", Name: "high"}
		}, "priority should not be nil when priorityClassRef is set"),
		Entry("accept gates", func(w *kueue.Workload) { w.Annotations = map[string]string{gatedBy: "example.com/a, example.com/b"} }, allowed),
		Entry("refuse a gate without a domain", func(w *kueue.Workload) { w.Annotations = map[string]string{gatedBy: "gate"} },
			`metadata.annotations: kueue.x-k8s.io/admission-gated-by is "gate"; write different names with a domain`),
		Entry("refuse a gate twice", func(w *kueue.Workload) { w.Annotations = map[string]string{gatedBy: "example.com/a,example.com/a"} }, "write different names"),
		Entry("refuse an empty gate", func(w *kueue.Workload) { w.Annotations = map[string]string{gatedBy: "example.com/a,"} }, "write different names"),
	)

	// Each change is tried on a Workload that holds quota, and has a check that is Ready, one that is Pending and a reclaimable pod.
	DescribeTable("while it holds quota", func(ctx SpecContext, change func(*kueue.Workload), want string) {
		w := validWorkload(namespace)
		w.GenerateName = "schema-"
		w.Name = ""
		w.Annotations = map[string]string{gatedBy: "example.com/a"}
		Expect(env.adminClient.Create(ctx, w)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(env.adminClient.Delete(ctx, w)).To(Succeed()) })
		holdQuota(w)
		Expect(env.adminClient.Status().Update(ctx, w)).To(Succeed())
		changed := w.DeepCopy()
		change(changed)
		if equality.Semantic.DeepEqual(changed.Status, w.Status) {
			expectAnswer(env.adminClient.Update(ctx, changed, client.DryRunAll), want)
		} else {
			expectAnswer(env.adminClient.Status().Update(ctx, changed, client.DryRunAll), want)
		}
	},
		Entry("refuse other pod sets", func(w *kueue.Workload) { w.Spec.PodSets[0].Count = 1 }, "spec.podSets: cannot be changed while the Workload holds quota"),
		Entry("refuse another queue", func(w *kueue.Workload) { w.Spec.QueueName = "other" }, "queueName is immutable while workload quota reserved"),
		Entry("refuse another admission", func(w *kueue.Workload) { w.Status.Admission.ClusterQueue = "other" }, "status.admission: cannot be changed, only removed"),
		Entry("refuse another flavor", func(w *kueue.Workload) {
			w.Status.Admission.PodSetAssignments[0].Flavors = map[corev1.ResourceName]kueue.ResourceFlavorReference{"cpu": "red"}
		}, "status.admission: cannot be changed, only removed"),
		Entry("refuse quota without an admission", func(w *kueue.Workload) { w.Status.Admission = nil }, "status.admission: is required while the condition QuotaReserved is True"),
		Entry("accept that the quota is released", func(w *kueue.Workload) {
			w.Status.Admission = nil
			apimeta.SetStatusCondition(&w.Status.Conditions, metav1.Condition{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionFalse, Reason: "Pending"})
		}, allowed),
		Entry("refuse an assignment of an unknown pod set", func(w *kueue.Workload) { w.Status.Admission.PodSetAssignments[0].Name = "other" },
			"status.admission.podSetAssignments: each must have the name of one of spec.podSets: main"),
		Entry("refuse reclaimable pods of an unknown pod set", func(w *kueue.Workload) { w.Status.ReclaimablePods[0].Name = "other" },
			"status.reclaimablePods: each must have the name of one of spec.podSets (main)"),
		Entry("refuse more reclaimable pods than the pod set has", func(w *kueue.Workload) { w.Status.ReclaimablePods[0].Count = 9 }, "a count of at most the pods of that pod set"),
		Entry("refuse fewer reclaimable pods than before", func(w *kueue.Workload) { w.Status.ReclaimablePods[0].Count = 0 }, "write at least the old counts"),
		Entry("refuse that reclaimable pods are removed", func(w *kueue.Workload) { w.Status.ReclaimablePods = nil }, "write at least the old counts"),
		Entry("accept more reclaimable pods", func(w *kueue.Workload) { w.Status.ReclaimablePods[0].Count = 2 }, allowed),
		Entry("refuse podSetUpdates of an unknown pod set", updateOf(kueue.PodSetUpdate{Name: "other"}), `status.admissionChecks["pending"].podSetUpdates: there is no pod set "other"; name one of main`),
		Entry("refuse a node selector", updateOf(kueue.PodSetUpdate{Name: "main", NodeSelector: map[string]string{"a": "no value"}}), `"a: no value" is not a valid label`),
		Entry("refuse a label", updateOf(kueue.PodSetUpdate{Name: "main", Labels: map[string]string{"-a": ""}}), `"-a: " is not a valid label`),
		Entry("refuse an annotation", updateOf(kueue.PodSetUpdate{Name: "main", Annotations: map[string]string{"-a": ""}}), `"-a" is not a valid annotation key`),
		Entry("refuse a toleration", updateOf(kueue.PodSetUpdate{Name: "main", Tolerations: []corev1.Toleration{{Key: "-a", Operator: corev1.TolerationOpExists}}}),
			`"-a" is not a valid toleration key`),
		Entry("accept podSetUpdates", updateOf(kueue.PodSetUpdate{Name: "main", NodeSelector: map[string]string{"a": "b"}}), allowed),
		Entry("refuse other podSetUpdates of a check that is Ready", func(w *kueue.Workload) { w.Status.AdmissionChecks[0].PodSetUpdates = nil },
			"status.admissionChecks[*].podSetUpdates: cannot be changed while the check is Ready"),
		Entry("refuse a cluster that was not nominated", func(w *kueue.Workload) { w.Status.ClusterName = new("other") }, "status.clusterName: must be one of status.nominatedClusterNames"),
		Entry("refuse a gate that is added", func(w *kueue.Workload) { w.Annotations[gatedBy] = "example.com/a,example.com/b" },
			"gates can be added to kueue.x-k8s.io/admission-gated-by only when the Workload is created"),
		Entry("accept that a gate is removed", func(w *kueue.Workload) { delete(w.Annotations, gatedBy) }, allowed),
	)
})

func validWorkload(namespace string) *kueue.Workload {
	return &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "schema"}, Spec: kueue.WorkloadSpec{
		QueueName: "main", PodSets: []kueue.PodSet{{Name: "main", Count: 3, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{
				Name: "main", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("1")}},
			}},
		}}}},
	}}
}

// holdQuota gives a Workload quota.
func holdQuota(w *kueue.Workload) {
	w.Status.Admission = &kueue.Admission{ClusterQueue: "shared", PodSetAssignments: []kueue.PodSetAssignment{{
		Name: "main", Count: ptr.To[int32](3), Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{"cpu": "blue"},
		ResourceUsage: corev1.ResourceList{"cpu": resource.MustParse("3")},
	}}}
	apimeta.SetStatusCondition(&w.Status.Conditions, metav1.Condition{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionTrue, Reason: "QuotaReserved"})
	w.Status.ReclaimablePods = []kueue.ReclaimablePod{{Name: "main", Count: 1}}
	w.Status.AdmissionChecks = []kueue.AdmissionCheckState{
		{Name: "ready", State: kueue.CheckStateReady, LastTransitionTime: metav1.Now(), PodSetUpdates: []kueue.PodSetUpdate{{Name: "main"}}},
		{Name: "pending", State: kueue.CheckStatePending, LastTransitionTime: metav1.Now()},
	}
}

func updateOf(update kueue.PodSetUpdate) func(*kueue.Workload) {
	return func(w *kueue.Workload) { w.Status.AdmissionChecks[1].PodSetUpdates = []kueue.PodSetUpdate{update} }
}
