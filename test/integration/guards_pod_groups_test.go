package integration_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/test/testenv"
)

var _ = Describe("The guards of pods of groups", func() {
	var namespace string
	var tenant client.Client

	BeforeEach(func(ctx SpecContext) {
		namespace = newTenant(ctx)
		tenant = env.clientAs(alice)
		awaitGuards(ctx, namespace)
		awaitPodGuards(ctx, namespace)
	}, NodeTimeout(patience))

	DescribeTable("gate a pod of a queue that names its group", func(ctx SpecContext, change func(*corev1.Pod)) {
		pod := newPod(namespace, "a")
		change(pod)
		Expect(tenant.Create(ctx, pod)).To(Succeed())
		Expect(pod.Labels).To(HaveKeyWithValue(apis.PodGroupMemberLabel, apis.PodGroupMemberValue))
		Expect(gatesOf(pod)).To(ContainElement(apis.PodAdmissionGate))
		Expect(slices.Compact(slices.Sorted(slices.Values(gatesOf(pod))))).To(HaveLen(len(gatesOf(pod))), "each gate once")
	},
		Entry("in Kueue's label", label(apis.PodGroupNameLabel, "g")),
		Entry("in Kueue's annotation", annotation(apis.PodGroupNameLabel, "g")),
		Entry("in the label of scheduler-plugins", label("scheduling.x-k8s.io/pod-group", "g")),
		Entry("in Koordinator's label", label("pod-group.scheduling.sigs.k8s.io", "g")),
		Entry("in Koordinator's older label", label("pod-group.scheduling.sigs.k8s.io/name", "g")),
		Entry("in Koordinator's annotation", annotation("gang.scheduling.koordinator.sh/name", "g")),
		Entry("in the annotation of kube-batch and Volcano", annotation("scheduling.k8s.io/group-name", "g")),
		Entry("and has gates already", func(pod *corev1.Pod) {
			label(apis.PodGroupNameLabel, "g")(pod)
			pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/mine"}}
		}),
		Entry("and has this gate already", func(pod *corev1.Pod) {
			label(apis.PodGroupNameLabel, "g")(pod)
			pod.Labels[apis.PodGroupMemberLabel] = apis.PodGroupMemberValue
			pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: apis.PodAdmissionGate}, {Name: "example.com/mine"}}
		}),
	)

	DescribeTable("leave a pod alone", func(ctx SpecContext, change func(*corev1.Pod)) {
		pod := newPod(namespace, "a")
		change(pod)
		Expect(tenant.Create(ctx, pod)).To(Succeed())
		Expect(pod.Labels).NotTo(HaveKey(apis.PodGroupMemberLabel))
		Expect(pod.Spec.SchedulingGates).To(BeEmpty())
	},
		Entry("that names no queue", func(pod *corev1.Pod) { pod.Labels = map[string]string{apis.PodGroupNameLabel: "g"} }),
	)

	It("do not gate the pods of a queued JobSet, and gate those of a plain Job", func(ctx SpecContext) {
		keys := map[string]string{apis.QueueLabel: "main", apis.PodGroupNameLabel: "g"}
		js := newQueued(namespace, "staged", "a")
		js.Spec.ReplicatedJobs[0].Template.Spec.Template.Labels = maps.Clone(keys)
		Expect(tenant.Create(ctx, js)).To(Succeed())
		job := awaitJobs(ctx, js, 1)[0]
		start(ctx, js)
		release(ctx, job)
		Expect(awaitPod(ctx, job).Spec.SchedulingGates).To(BeEmpty())

		plain := plainJob(namespace, "plain")
		plain.Spec.Template.Labels = maps.Clone(keys)
		Expect(tenant.Create(ctx, plain)).To(Succeed())
		Expect(gatesOf(awaitPod(ctx, plain))).To(ConsistOf(apis.PodAdmissionGate))
	}, SpecTimeout(patience))

	DescribeTable("refuse a pod that", func(ctx SpecContext, change func(*corev1.Pod), want string) {
		for _, who := range []client.Client{tenant, env.adminClient} {
			pod := newPod(namespace, "refused")
			label(apis.PodGroupNameLabel, "g")(pod)
			change(pod)
			expectAnswer(who.Create(ctx, pod), want)
		}
	},
		Entry("has the member label and names no queue", func(pod *corev1.Pod) {
			pod.Labels = map[string]string{apis.PodGroupNameLabel: "g", apis.PodGroupMemberLabel: apis.PodGroupMemberValue}
		}, "tranche.dev/pod-group-member is set by Tranche"),
		Entry("has another label of Tranche", label("tranche.dev/x", "y"), "metadata.labels: only Tranche's manager"),
		Entry("has an annotation of Tranche", annotation("tranche.dev/x", "y"), "metadata.annotations: only Tranche's manager"),
		Entry("names the empty queue", label(apis.QueueLabel, ""), "kueue.x-k8s.io/queue-name is empty"),
		Entry("names a group of another namespace", annotation("gang.scheduling.koordinator.sh/name", "other/gang"), `metadata: "other/gang" is not a valid name of a group`),
		Entry("names a group with an invalid name", label(apis.PodGroupNameLabel, "My_Group"), `metadata: "My_Group" is not a valid name of a group`),
		Entry("has an invalid total count of its group", annotation(apis.PodGroupTotalCountAnnotation, "many"), `kueue.x-k8s.io/pod-group-total-count must be the number of pods of the group, not "many"`),
		Entry("is bound to a node already", func(pod *corev1.Pod) { pod.Spec.NodeName = "cpu-0" }, "spec.nodeName"),
	)

	// Only the manager may write: the cluster admin gets the same answers.
	DescribeTable("on a pod that waits", func(ctx SpecContext, patch, want string) {
		pod := newMember(ctx, tenant, namespace, "waits")
		for _, who := range []client.Client{tenant, env.adminClient} {
			expectAnswer(who.Patch(ctx, pod.DeepCopy(), jsonPatch(patch)), want)
		}
	},
		Entry("removes the gate", `[{"op":"remove","path":"/spec/schedulingGates"}]`, "spec.schedulingGates: only Tranche's manager removes kueue.x-k8s.io/admission"),
		Entry("replaces the gate by another", `[{"op":"replace","path":"/spec/schedulingGates/0/name","value":"example.com/mine"}]`, "spec.schedulingGates"),
		Entry("removes the label", `[{"op":"remove","path":"/metadata/labels/tranche.dev~1pod-group-member"}]`, "metadata.labels: only Tranche's manager"),
		Entry("changes the label", `[{"op":"replace","path":"/metadata/labels/tranche.dev~1pod-group-member","value":"x"}]`, "metadata.labels: only Tranche's manager"),
		Entry("removes the queue", `[{"op":"remove","path":"/metadata/labels/kueue.x-k8s.io~1queue-name"}]`, "metadata.labels: the labels for the queue and the group"),
		Entry("changes the queue", `[{"op":"replace","path":"/metadata/labels/kueue.x-k8s.io~1queue-name","value":"other"}]`, "metadata.labels: the labels for the queue"),
		Entry("changes the group", `[{"op":"replace","path":"/metadata/labels/kueue.x-k8s.io~1pod-group-name","value":"other"}]`, "metadata.labels: the labels for the queue"),
		Entry("joins a second group", `[{"op":"add","path":"/metadata/labels/scheduling.x-k8s.io~1pod-group","value":"other"}]`, "metadata.labels: the labels for the queue"),
		Entry("joins a second group by an annotation", `[{"op":"add","path":"/metadata/annotations/scheduling.k8s.io~1group-name","value":"other"}]`, "metadata.annotations: the annotations for the group"),
		Entry("changes the size of the group", `[{"op":"replace","path":"/metadata/annotations/kueue.x-k8s.io~1pod-group-total-count","value":"9"}]`, "metadata.annotations: the annotations for the group"),
		Entry("adds a node selector", `[{"op":"add","path":"/spec/nodeSelector","value":{"a":"b"}}]`, "spec.nodeSelector, spec.affinity, spec.tolerations"),
		Entry("adds a toleration", `[{"op":"add","path":"/spec/tolerations/-","value":{"key":"a","operator":"Exists"}}]`, "spec.nodeSelector, spec.affinity, spec.tolerations"),
		Entry("pretends that another queue pays for it", `[{"op":"add","path":"/metadata/labels/kueue.x-k8s.io~1local-queue-name","value":"other"}]`,
			"metadata.labels: only Tranche's manager sets kueue.x-k8s.io/podset"),
		Entry("adds an unrelated label", `[{"op":"add","path":"/metadata/labels/team","value":"ml"}]`, allowed),
	)

	It("refuse to bind a gated pod, and to change it through its subresources", func(ctx SpecContext) {
		pod := newMember(ctx, tenant, namespace, "waits")
		binding := &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: "cpu-0"}}
		expectAnswer(tenant.SubResource("binding").Create(ctx, pod.DeepCopy(), binding), "cannot create resource")
		expectAnswer(env.adminClient.SubResource("binding").Create(ctx, pod.DeepCopy(), binding), "schedulingGates")
		relabel := jsonPatch(`[{"op":"remove","path":"/metadata/labels/tranche.dev~1pod-group-member"},{"op":"remove","path":"/spec/schedulingGates"}]`)
		expectAnswer(tenant.Status().Patch(ctx, pod.DeepCopy(), relabel), "cannot patch resource")
		expectAnswer(env.adminClient.Status().Patch(ctx, pod.DeepCopy(), relabel), "only Tranche's manager")
		for _, subresource := range []string{"ephemeralcontainers", "resize"} {
			err := env.adminClient.SubResource(subresource).Patch(ctx, pod.DeepCopy(), relabel)
			after := get(ctx, pod)
			Expect(after.Labels).To(Equal(pod.Labels), "%s: %v", subresource, err)
			Expect(gatesOf(after)).To(Equal(gatesOf(pod)), "%s: %v", subresource, err)
		}
	}, SpecTimeout(patience))

	It("let the manager remove the gate, and keep the pod in its group and within its quota afterwards", func(ctx SpecContext) {
		pod := newMember(ctx, tenant, namespace, "runs")
		open := jsonPatch(`[{"op":"remove","path":"/spec/schedulingGates/0"},{"op":"add","path":"/spec/nodeSelector","value":{"kubernetes.io/os":"linux"}}]`)
		expectAnswer(env.clientAs(testenv.ManagerUser, "system:masters").Patch(ctx, pod, open), allowed)
		expectAnswer(tenant.Patch(ctx, pod.DeepCopy(), jsonPatch(`[{"op":"remove","path":"/metadata/labels/kueue.x-k8s.io~1queue-name"}]`)), "metadata.labels: the labels for the queue")
		expectAnswer(tenant.Patch(ctx, pod.DeepCopy(), jsonPatch(`[{"op":"replace","path":"/metadata/labels/kueue.x-k8s.io~1pod-group-name","value":"other"}]`)), "metadata.labels: the labels for the queue")
		resize := func(who client.Client, amount string) error {
			return who.SubResource("resize").Patch(ctx, pod.DeepCopy(), jsonPatch(`[{"op":"replace","path":"/spec/containers/0/resources/requests/cpu","value":"`+amount+`"}]`))
		}
		expectAnswer(resize(tenant, "500m"), "cannot patch resource")
		expectAnswer(resize(env.adminClient, "2"), "spec.containers[*].resources.requests")
		expectAnswer(resize(env.adminClient, "500m"), allowed)
		expectAnswer(tenant.Patch(ctx, pod.DeepCopy(), jsonPatch(`[{"op":"remove","path":"/spec/schedulingGates"}]`)), allowed)
	}, SpecTimeout(patience))

	It("keep a pod with pod-level requests within its quota", func(ctx SpecContext) {
		member := func(name string, requests corev1.ResourceList) *corev1.Pod {
			pod := newPod(namespace, name)
			label(apis.PodGroupNameLabel, "g")(pod)
			if requests != nil {
				pod.Spec.Resources = &corev1.ResourceRequirements{Requests: requests}
			}
			Expect(tenant.Create(ctx, pod)).To(Succeed())
			return pod
		}
		resize := func(pod *corev1.Pod, patch string) error {
			return env.adminClient.SubResource("resize").Patch(ctx, pod.DeepCopy(), jsonPatch(patch))
		}
		const cpu, want = `[{"op":"replace","path":"/spec/resources/requests/cpu","value":%q}]`, "spec.resources.requests: quota was charged for the requests"
		whole := member("whole", corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")})
		expectAnswer(resize(whole, fmt.Sprintf(cpu, "3")), want)
		expectAnswer(resize(whole, `[{"op":"add","path":"/spec/resources/requests/memory","value":"1Gi"}]`), want)
		expectAnswer(resize(whole, fmt.Sprintf(cpu, "1500m")), allowed)
		expectAnswer(resize(member("parts", nil), `[{"op":"add","path":"/spec/resources","value":{"requests":{"cpu":"4"}}}]`), want)
	}, SpecTimeout(patience))

	It("let a pod join a queued group at its creation only", func(ctx SpecContext) {
		const want = "a pod can join the group of a queue only when it is created"
		grouped := newPod(namespace, "grouped")
		grouped.Labels = map[string]string{apis.PodGroupNameLabel: "g"}
		Expect(tenant.Create(ctx, grouped)).To(Succeed())
		join := jsonPatch(`[{"op":"add","path":"/metadata/labels/kueue.x-k8s.io~1queue-name","value":"main"}]`)
		Eventually(func() error { return tenant.Patch(ctx, grouped.DeepCopy(), join, client.DryRunAll) }).
			WithContext(ctx).Should(MatchError(ContainSubstring(want)), "tranche-guard-pod-group-joins")
		expectAnswer(tenant.Patch(ctx, grouped.DeepCopy(), join), want)
		alone := newPod(namespace, "alone")
		Expect(tenant.Create(ctx, alone)).To(Succeed())
		for _, leave := range []string{
			`[{"op":"add","path":"/metadata/annotations","value":{"kueue.x-k8s.io/pod-group-name":"g"}}]`,
			`[{"op":"add","path":"/metadata/annotations","value":{"scheduling.k8s.io/group-name":"g"}}]`,
			`[{"op":"add","path":"/metadata/labels/kueue.x-k8s.io~1pod-group-name","value":"g"}]`,
			`[{"op":"add","path":"/metadata/labels/scheduling.x-k8s.io~1pod-group","value":"g"}]`,
			`[{"op":"remove","path":"/spec/schedulingGates"}]`,
			`[{"op":"remove","path":"/metadata/labels/kueue.x-k8s.io~1queue-name"}]`,
			`[{"op":"remove","path":"/metadata/labels/tranche.dev~1pod-group-member"}]`,
		} {
			Expect(tenant.Patch(ctx, alone.DeepCopy(), jsonPatch(leave), client.DryRunAll)).NotTo(Succeed(), leave)
		}
	}, SpecTimeout(patience))

	// The API server evaluates again only policies that an object matched before it was changed.
	It("refuse a pod of a group that gets its queue while it is created, and is not gated", func(ctx SpecContext) {
		const queueKey = "example.com/queue"
		policy := &admissionv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "names-queues-in-" + namespace}}
		policy.Spec = admissionv1.MutatingAdmissionPolicySpec{
			ReinvocationPolicy: admissionv1.NeverReinvocationPolicy,
			MatchConstraints: &admissionv1.MatchResources{
				ObjectSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: queueKey, Operator: metav1.LabelSelectorOpExists}}},
				ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Create},
					Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
				}}},
			},
			Mutations: []admissionv1.Mutation{{
				PatchType: admissionv1.PatchTypeJSONPatch,
				JSONPatch: &admissionv1.JSONPatch{Expression: `[JSONPatch{op: "add", path: "/metadata/labels/kueue.x-k8s.io~1queue-name", value: object.metadata.labels["` + queueKey + `"]}]`},
			}},
		}
		binding := &admissionv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: policy.Name}}
		binding.Spec = admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: policy.Name, MatchResources: &admissionv1.MatchResources{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
		}}
		for _, object := range []client.Object{policy, binding} {
			Expect(env.adminClient.Create(ctx, object)).To(Succeed())
			DeferCleanup(func(ctx SpecContext) { Expect(env.adminClient.Delete(ctx, object)).To(Succeed()) }, NodeTimeout(patience))
		}
		create := func(who client.Client, change func(*corev1.Pod)) (*corev1.Pod, error) {
			pod := newPod(namespace, "sent")
			pod.Labels = map[string]string{queueKey: "main"}
			change(pod)
			return pod, who.Create(ctx, pod, client.DryRunAll)
		}
		Eventually(func(g Gomega) {
			_, err := create(tenant, func(*corev1.Pod) {})
			g.Expect(err).To(MatchError(ContainSubstring("a webhook or policy added kueue.x-k8s.io/queue-name to this pod: ")), "by the policy of this spec")
		}).WithContext(ctx).Should(Succeed())

		const want = "a webhook or policy added kueue.x-k8s.io/queue-name to this pod of a group"
		_, err := create(tenant, label(apis.PodGroupNameLabel, "g"))
		Expect(err).To(MatchError(ContainSubstring(want)))
		_, err = create(env.adminClient, annotation("scheduling.k8s.io/group-name", "g"))
		Expect(err).To(MatchError(ContainSubstring(want)))
		pod, err := create(tenant, func(pod *corev1.Pod) {
			label(apis.PodGroupNameLabel, "g")(pod)
			label(apis.QueueLabel, "other")(pod)
		})
		Expect(err).NotTo(HaveOccurred(), "a pod that names a queue itself")
		Expect(gatesOf(pod)).To(ConsistOf(apis.PodAdmissionGate))
		_, err = create(tenant, func(pod *corev1.Pod) {
			label(apis.PodGroupNameLabel, "g")(pod)
			label(apis.PodGroupMemberLabel, apis.PodGroupMemberValue)(pod)
			pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: apis.PodAdmissionGate}}
		})
		Expect(err).NotTo(HaveOccurred(), "a pod that is gated already")
	}, SpecTimeout(patience))

	It("let a pod that names a queue and no group wait as a gang of one, or refuse it", func(ctx SpecContext) {
		create := func(change func(*corev1.Pod)) (*corev1.Pod, error) {
			pod := newPod(namespace, "alone")
			pod.Labels = map[string]string{apis.QueueLabel: "main"}
			change(pod)
			return pod, tenant.Create(ctx, pod, client.DryRunAll)
		}
		for _, notes := range []map[string]string{nil, {"a": "b"}} {
			pod, err := create(func(pod *corev1.Pod) { pod.Annotations = notes })
			Expect(err).NotTo(HaveOccurred())
			Expect(pod.Annotations).To(Equal(notes), "it names no group that another pod could name")
			Expect(pod.Labels).To(HaveKeyWithValue(apis.PodGroupMemberLabel, apis.PodGroupMemberValue))
			Expect(gatesOf(pod)).To(ConsistOf(apis.PodAdmissionGate))
		}
		pod, err := create(label("kueue.x-k8s.io/podset", "main"))
		Expect(err).NotTo(HaveOccurred())
		Expect(gatesOf(pod)).To(ConsistOf(apis.PodAdmissionGate), "a pod of no queued Job has no quota of one")
		pod, err = create(func(pod *corev1.Pod) {
			label(apis.PodGroupMemberLabel, apis.PodGroupMemberValue)(pod)
			pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/mine"}}
		})
		Expect(err).NotTo(HaveOccurred())
		Expect(gatesOf(pod)).To(ConsistOf("example.com/mine", apis.PodAdmissionGate))
		ofJob := newPod(namespace, "of-job")
		ofJob.Labels = map[string]string{
			apis.QueueLabel: "main", apis.PodGroupMemberLabel: apis.PodGroupMemberValue, apis.PodSetLabel: "main", batchv1.ControllerUidLabel: "x",
		}
		ofJob.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: apis.PodAdmissionGate}}
		expectAnswer(env.adminClient.Create(ctx, ofJob, client.DryRunAll), "do not belong to a JobSet or a queued Job")
		pod, err = create(func(pod *corev1.Pod) { pod.Name, pod.GenerateName = "", "web-" })
		Expect(err).NotTo(HaveOccurred(), "a pod whose name the API server makes up, as those of a Deployment")
		Expect(pod.Labels).To(HaveKeyWithValue(apis.PodGroupMemberLabel, apis.PodGroupMemberValue))
		Expect(gatesOf(pod)).To(ConsistOf(apis.PodAdmissionGate))
		_, err = create(func(pod *corev1.Pod) { pod.Name, pod.GenerateName, pod.Labels = "", "web-", nil })
		Expect(err).NotTo(HaveOccurred(), "a pod without a queue")
		_, err = create(label(apis.QueueLabel, ""))
		Expect(err).To(MatchError(ContainSubstring("queue-name must not be empty")))
		_, err = create(func(pod *corev1.Pod) { pod.Labels = map[string]string{"tranche.dev/queue-name": "main"} })
		Expect(err).To(MatchError(ContainSubstring("only a JobSet names its queue by tranche.dev/queue-name")))
	}, SpecTimeout(patience))

	It("let no pod that exists without a queue get one", func(ctx SpecContext) {
		pod := newPod(namespace, "runs")
		pod.Labels = map[string]string{"a": "b"}
		Expect(tenant.Create(ctx, pod)).To(Succeed())
		for key, want := range map[string]string{
			apis.QueueLabel: `cannot be queued in "main" any later`, "tranche.dev/queue-name": "only a JobSet names its queue",
		} {
			queue := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"`+key+`":"main"}}}`))
			Expect(tenant.Patch(ctx, pod.DeepCopy(), queue, client.DryRunAll)).To(MatchError(ContainSubstring(want)))
		}
		Expect(tenant.Patch(ctx, pod, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"c"}}}`)), client.DryRunAll)).To(Succeed())
	}, SpecTimeout(patience))

	It("require a queue of a pod of a group where queues are required, and of no other pod", func(ctx SpecContext) {
		require := jsonPatch(`[{"op":"add","path":"/metadata/labels/tranche.dev~1require-queue","value":"true"}]`)
		Expect(env.adminClient.Patch(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, require)).To(Succeed())
		create := func(who client.Client, change func(*corev1.Pod)) error {
			pod := newPod(namespace, "unqueued")
			pod.Labels = map[string]string{"a": "b"}
			change(pod)
			return who.Create(ctx, pod, client.DryRunAll)
		}
		unqueued := []func(*corev1.Pod){label("scheduling.x-k8s.io/pod-group", "g"), annotation("scheduling.k8s.io/group-name", "g")}
		for _, change := range unqueued {
			Eventually(create).WithArguments(tenant, change).WithContext(ctx).
				Should(MatchError(ContainSubstring("this-namespace-requires-a-queue-but-has-no-local-queue")))
		}
		Expect(env.adminClient.Create(ctx, &kueue.LocalQueue{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "main"}, Spec: kueue.LocalQueueSpec{ClusterQueue: "shared"},
		})).To(Succeed())
		for _, change := range unqueued {
			Eventually(create).WithArguments(tenant, change).WithContext(ctx).Should(MatchError(ContainSubstring(
				`a pod of a group in namespace ` + namespace + ` must name a LocalQueue: set its label kueue.x-k8s.io/queue-name to "main" (ClusterQueue shared)`)))
		}
		Expect(create(tenant, func(*corev1.Pod) {})).To(Succeed())
		Expect(create(env.adminClient, func(pod *corev1.Pod) {
			label("scheduling.x-k8s.io/pod-group", "g")(pod)
			label("jobset.sigs.k8s.io/jobset-uid", "x")(pod)
		})).To(Succeed(), "the pods of a JobSet have its queue")
	}, SpecTimeout(patience))

	It("let only the manager write the owner labels and the state annotations of a quota Workload", func(ctx SpecContext) {
		newWorkload := func(change func(*kueue.Workload)) *kueue.Workload {
			wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace, Name: "w", Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"a": "b"},
			}}
			pod := newPod(namespace, "")
			wl.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: 1, Template: corev1.PodTemplateSpec{Spec: pod.Spec}}}
			change(wl)
			return wl
		}
		expectAnswer(tenant.Create(ctx, newWorkload(func(*kueue.Workload) {})), "cannot create resource")
		plain := newWorkload(func(*kueue.Workload) {})
		expectAnswer(env.adminClient.Create(ctx, plain), allowed)
		manager := env.clientAs(testenv.ManagerUser)
		for field, keys := range map[string][]string{
			"labels": {apis.AdmitTogetherLabel, apis.PlanUIDLabel, apis.ExtraLabel, apis.StageLabel},
			"annotations": {
				apis.AdmitTogetherCountAnnotation, apis.StartedTogetherAnnotation, apis.PodGroupKey, apis.PartsAnnotation, apis.RoundAnnotation, apis.StartedAnnotation, apis.FlavorsAnnotation,
			},
		} {
			want := "metadata." + field + ": only Tranche's manager"
			for _, key := range keys {
				forged := newWorkload(func(wl *kueue.Workload) {
					wl.Name = "forged"
					map[string]map[string]string{"labels": wl.Labels, "annotations": wl.Annotations}[field][key] = "2"
				})
				expectAnswer(env.adminClient.Create(ctx, forged), want)
				patch := func(who client.Client, op, value string) error {
					return who.Patch(ctx, plain.DeepCopy(), jsonPatch(fmt.Sprintf(`[{"op":%q,"path":"/metadata/%s/%s","value":%q}]`, op, field, strings.ReplaceAll(key, "/", "~1"), value)))
				}
				expectAnswer(patch(tenant, "add", "2"), "cannot patch resource")
				expectAnswer(patch(env.adminClient, "add", "2"), want)
				expectAnswer(patch(manager, "add", "2"), allowed)
				expectAnswer(patch(env.adminClient, "replace", "3"), want)
				expectAnswer(patch(env.adminClient, "remove", ""), want)
			}
		}
		expectAnswer(env.adminClient.Patch(ctx, plain.DeepCopy(), jsonPatch(`[{"op":"add","path":"/metadata/labels/team","value":"ml"}]`)), allowed)
	}, SpecTimeout(patience))
})

// newPod returns a pod of a queue, and of no group.
func newPod(namespace, name string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, Labels: map[string]string{apis.QueueLabel: "main"}, Annotations: map[string]string{"a": "b"},
		},
		Spec: plainJob(namespace, "").Spec.Template.Spec,
	}
	pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
	return pod
}

// newMember creates a pod that waits for its group.
func newMember(ctx context.Context, who client.Client, namespace, name string) *corev1.Pod {
	GinkgoHelper()
	pod := newPod(namespace, name)
	pod.Labels[apis.PodGroupNameLabel] = "g"
	pod.Annotations[apis.PodGroupTotalCountAnnotation] = "2"
	pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: apis.PodAdmissionGate}, {Name: "example.com/mine"}}
	Expect(who.Create(ctx, pod)).To(Succeed())
	return pod
}

func label(key, value string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Labels[key] = value }
}

func annotation(key, value string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Annotations[key] = value }
}

func gatesOf(pod *corev1.Pod) []string {
	var names []string
	for _, g := range pod.Spec.SchedulingGates {
		names = append(names, g.Name)
	}
	return names
}

// awaitPod waits for the pod of a Job.
func awaitPod(ctx context.Context, job *batchv1.Job) *corev1.Pod {
	GinkgoHelper()
	var pods corev1.PodList
	Eventually(func(g Gomega) {
		g.Expect(env.adminClient.List(ctx, &pods, client.InNamespace(job.Namespace), client.MatchingLabels{batchv1.JobNameLabel: job.Name})).To(Succeed())
		g.Expect(pods.Items).To(HaveLen(1))
	}).WithContext(ctx).Should(Succeed())
	return &pods.Items[0]
}

// awaitPodGuards waits until the API server also applies the policies for pods of groups.
func awaitPodGuards(ctx context.Context, namespace string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		pod := newPod(namespace, "probe")
		label(apis.PodGroupNameLabel, "g")(pod)
		g.Expect(env.adminClient.Create(ctx, pod, client.DryRunAll)).To(Succeed())
		g.Expect(gatesOf(pod)).NotTo(BeEmpty(), "tranche-gate-pods")
		pod = newPod(namespace, "probe")
		label(apis.PodGroupNameLabel, "A")(pod)
		g.Expect(env.adminClient.Create(ctx, pod, client.DryRunAll)).NotTo(Succeed(), "tranche-guard-pod-groups")
		wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "probe", Labels: map[string]string{apis.PlanUIDLabel: "x"}}}
		wl.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: 1, Template: corev1.PodTemplateSpec{Spec: newPod(namespace, "").Spec}}}
		g.Expect(env.adminClient.Create(ctx, wl, client.DryRunAll)).NotTo(Succeed(), "tranche-guard-quota-workloads")
	}).WithContext(ctx).Should(Succeed())
}
