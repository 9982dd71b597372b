package integration_test

import (
	"context"
	"maps"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
)

// withGPU gives the first container of a pod an accelerator.
func withGPU(spec *corev1.PodSpec) {
	amount := corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")}
	spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: amount, Limits: amount}
}

// requireQueue labels a namespace, and waits until the API server refuses a pod with an accelerator in it.
func requireQueue(ctx context.Context, namespace string) {
	GinkgoHelper()
	require := jsonPatch(`[{"op":"add","path":"/metadata/labels/tranche.dev~1require-queue","value":"true"}]`)
	Expect(env.adminClient.Patch(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, require)).To(Succeed())
	Eventually(func() error {
		pod := newPod(namespace, "probe")
		pod.Labels = nil
		withGPU(&pod.Spec)
		return env.adminClient.Create(ctx, pod, client.DryRunAll)
	}).WithContext(ctx).Should(MatchError(ContainSubstring("has accelerators or ResourceClaims, but no quota")))
}

var _ = Describe("Accelerators where queues are required", func() {
	const refused = "set the label kueue.x-k8s.io/queue-name to a LocalQueue on the Job or JobSet, or in the pod template of any other owner"

	Context("without a manager", Ordered, func() {
		var namespace string
		BeforeAll(func(ctx SpecContext) {
			namespace = newTenant(ctx)
			awaitGuards(ctx, namespace)
			Expect(env.adminClient.Create(ctx, &kueue.LocalQueue{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "main"}, Spec: kueue.LocalQueueSpec{ClusterQueue: "any"},
			})).To(Succeed())
			requireQueue(ctx, namespace)
		}, NodeTimeout(patience))

		unqueued := func(pod *corev1.Pod) { delete(pod.Labels, apis.QueueLabel) }
		ownedBy := func(apiVersion, kind string) func(*corev1.Pod) {
			return func(pod *corev1.Pod) {
				unqueued(pod)
				pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: "x", UID: "x", Controller: new(true)}}
			}
		}
		amounts := func(name corev1.ResourceName, amount string) func(*corev1.Pod) {
			return func(pod *corev1.Pod) {
				unqueued(pod)
				list := corev1.ResourceList{name: resource.MustParse(amount)}
				pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: list, Limits: list}
			}
		}

		DescribeTable("refuse a pod of a tenant that has no quota for them", func(ctx SpecContext, change func(*corev1.Pod), want string) {
			pod := newPod(namespace, "free")
			withGPU(&pod.Spec)
			change(pod)
			expectAnswer(env.clientAs(alice).Create(ctx, pod, client.DryRunAll), want)
		},
			Entry("by itself", unqueued, refused),
			Entry("of a controller of an unknown kind", ownedBy("ray.io/v1", "RayCluster"), refused),
			Entry("of a DaemonSet", ownedBy("apps/v1", "DaemonSet"), refused),
			Entry("with the label of pods that have quota", func(pod *corev1.Pod) { unqueued(pod); label(apis.PodSetLabel, "main")(pod) }, refused),
			Entry("in an init container", func(pod *corev1.Pod) {
				unqueued(pod)
				pod.Spec.InitContainers = []corev1.Container{*pod.Spec.Containers[0].DeepCopy()}
				pod.Spec.InitContainers[0].Name = "init"
				pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{}
			}, refused),
			Entry("of any other name", amounts("example.com/tpu", "4"), refused),
			Entry("as a ResourceClaim", func(pod *corev1.Pod) {
				amounts(corev1.ResourceCPU, "1")(pod)
				pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: new("gpus")}}
			}, refused),
			Entry("but not for what every node has", amounts(corev1.ResourceEphemeralStorage, "1Gi"), allowed),
			Entry("but not for huge pages", func(pod *corev1.Pod) {
				amounts("hugepages-2Mi", "2Mi")(pod)
				pod.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("1")
			}, allowed),
			Entry("but not for none of them", amounts("nvidia.com/gpu", "0"), allowed),
			Entry("but not if it waits for quota", func(*corev1.Pod) {}, allowed),
			Entry("but not if it waits in a group", label(apis.PodGroupNameLabel, "g"), allowed),
		)

		It("refuse a JobSet and a Job that label their pods as those that have quota", func(ctx SpecContext) {
			js := newQueued(namespace, "forged", "a", "b")
			js.Spec.ReplicatedJobs[0].Template.Spec.Template.Labels = map[string]string{apis.PodSetLabel: "a"}
			Expect(env.clientAs(alice).Create(ctx, js.DeepCopy(), client.DryRunAll)).To(Succeed(), "the manager writes the label")
			js.Labels = nil
			js.Spec.StartupPolicy = &jobsetapi.StartupPolicy{StartupPolicyOrder: jobset.InOrder, Rules: []jobsetapi.StartupPolicyRule{{
				TargetReplicatedJobs: []string{"a"}, WaitForReplicatedJobsStatus: "Ready",
			}}}
			js.Namespace = newTenant(ctx) // where no queue is required yet
			awaitGuards(ctx, js.Namespace)
			Expect(env.clientAs(alice).Create(ctx, js.DeepCopy(), client.DryRunAll)).To(MatchError(ContainSubstring("kueue.x-k8s.io/podset is only for pods with quota")))

			By("not letting a Job that is held for its order get the label")
			js.Spec.ReplicatedJobs[0].Template.Spec.Template.Labels = nil
			Expect(env.clientAs(alice).Create(ctx, js)).To(Succeed())
			job := awaitJobs(ctx, js, 1)[0]
			forge := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"template":{"metadata":{"labels":{"kueue.x-k8s.io/podset":"a"}}}}}`))
			Expect(env.clientAs(alice).Patch(ctx, job.DeepCopy(), forge, client.DryRunAll)).To(MatchError(ContainSubstring("kueue.x-k8s.io/podset is only for pods with quota")))
			Expect(env.clientAs(alice).Patch(ctx, job.DeepCopy(), client.RawPatch(types.MergePatchType,
				[]byte(`{"spec":{"template":{"metadata":{"labels":{"team":"ml"}}}}}`)), client.DryRunAll)).To(Succeed())
		}, SpecTimeout(patience))

		It("let an administrator choose the resources and the users", func(ctx SpecContext) {
			create := func(user string, change func(*corev1.Pod)) func() error {
				return func() error {
					pod := newPod(namespace, "chosen")
					change(pod)
					return env.clientAs(user, "system:masters").Create(ctx, pod, client.DryRunAll)
				}
			}
			gpu, other := amounts("nvidia.com/gpu", "1"), amounts("example.com/nic", "1")
			setParameters(ctx, map[string]string{"accelerators": "nvidia.com/gpu\nexample.com/tpu", "usersWithoutQueue": "operator\nexempted"})
			Eventually(create("carol", other)).WithContext(ctx).Should(Succeed())
			Eventually(create("operator", gpu)).WithContext(ctx).Should(Succeed())
			Expect(create("carol", gpu)()).To(MatchError(ContainSubstring("exempt the user carol by usersWithoutQueue")))
			Expect(create("operat", gpu)()).To(MatchError(ContainSubstring(refused)))
			setParameters(ctx, map[string]string{"usersWithoutQueue": "system:masters"})
			Eventually(create("carol", gpu)).WithContext(ctx).Should(Succeed())
		}, SpecTimeout(patience))
	})

	// The controllers of Kubernetes create the pods.
	It("start only with quota, whichever controller creates the pods", func(ctx SpecContext) {
		startManager(ctx, nil)
		t := newQueue(ctx)
		t.configure(ctx, func(spec *kueue.ClusterQueueSpec) {
			group := &spec.ResourceGroups[0]
			group.CoveredResources = append(group.CoveredResources, "nvidia.com/gpu")
			for i := range group.Flavors {
				group.Flavors[i].Resources = append(group.Flavors[i].Resources, kueue.ResourceQuota{Name: "nvidia.com/gpu", NominalQuota: resource.MustParse("8")})
			}
		})
		// Its pods have the label of a group while it is created, and no longer when it starts.
		sly := plainJob(t.namespace, "sly")
		sly.Spec.Suspend = new(true)
		sly.Spec.Template.Labels = map[string]string{apis.PodGroupNameLabel: "g"}
		withGPU(&sly.Spec.Template.Spec)
		requireQueue(ctx, t.namespace)
		Expect(env.adminClient.Create(ctx, sly)).To(Succeed())
		start := client.RawPatch(types.JSONPatchType, []byte(`[{"op":"remove","path":"/spec/template/metadata/labels/kueue.x-k8s.io~1pod-group-name"},
			{"op":"replace","path":"/spec/suspend","value":false}]`))
		Expect(env.adminClient.Patch(ctx, sly, start)).To(Succeed())
		selfish := plainDeployment(t.namespace, "selfish")
		withGPU(&selfish.Spec.Template.Spec)
		Expect(env.adminClient.Create(ctx, selfish)).To(Succeed())

		js := newQueued(t.namespace, "set", "a", "b")
		job := newQueuedJob(t.namespace, "job")
		pod := newPod(t.namespace, "pod")
		deployment := plainDeployment(t.namespace, "deployment")
		for _, object := range []client.Object{js, job, pod, deployment} {
			object.SetLabels(map[string]string{apis.QueueLabel: t.localQueue.Name})
		}
		for i := range js.Spec.ReplicatedJobs {
			withGPU(&js.Spec.ReplicatedJobs[i].Template.Spec.Template.Spec)
		}
		for _, spec := range []*corev1.PodSpec{&job.Spec.Template.Spec, &pod.Spec, &deployment.Spec.Template.Spec} {
			withGPU(spec)
			// A class of Kubernetes itself: a tenant may name it, and gets no priority in the queue.
			spec.PriorityClassName = "system-node-critical"
		}
		js.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.PriorityClassName = "system-node-critical"
		for _, object := range []client.Object{js, job, pod, deployment} {
			Expect(env.adminClient.Create(ctx, object)).To(Succeed())
		}
		DeferCleanup(func(ctx SpecContext) {
			for _, object := range []client.Object{js, job, pod, deployment, sly, selfish} {
				Expect(env.adminClient.Delete(ctx, object, client.PropagationPolicy(metav1.DeletePropagationBackground))).To(Succeed())
			}
			Eventually(func(g Gomega) {
				var left kueue.WorkloadList
				g.Expect(env.adminClient.List(ctx, &left, client.InNamespace(t.namespace))).To(Succeed())
				g.Expect(left.Items).To(BeEmpty(), "under blockAdmission, those of all namespaces count")
			}).WithContext(ctx).Should(Succeed())
		}, NodeTimeout(patience))
		Eventually(func(g Gomega) {
			running := map[string]int{}
			var pods corev1.PodList
			g.Expect(env.adminClient.List(ctx, &pods, client.InNamespace(t.namespace))).To(Succeed())
			for i := range pods.Items {
				p := &pods.Items[i]
				g.Expect(p.Labels).To(Or(HaveKey(apis.PodSetLabel), HaveKey(apis.PodGroupMemberLabel)), p.Name)
				if p.Spec.NodeName != "" {
					running[p.Labels[jobset.JobSetNameKey]+p.Labels[batchv1.JobNameLabel]+p.Labels["app"]]++
				}
			}
			g.Expect(running).To(Equal(map[string]int{"setset-a-0": 1, "setset-b-0": 1, "job": 2, "": 1, "deployment": 1}))
			var workloads kueue.WorkloadList
			g.Expect(env.adminClient.List(ctx, &workloads, client.InNamespace(t.namespace))).To(Succeed())
			g.Expect(workloads.Items).NotTo(BeEmpty())
			for i := range workloads.Items {
				w := &workloads.Items[i].Spec
				g.Expect(ptr.Deref(w.Priority, 0)).To(BeZero(), workloads.Items[i].Name)
				g.Expect(w.PriorityClassRef).To(BeNil(), workloads.Items[i].Name)
			}
			var events corev1.EventList
			g.Expect(env.adminClient.List(ctx, &events, client.InNamespace(t.namespace))).To(Succeed())
			for _, kind := range []string{"Job", "ReplicaSet"} {
				g.Expect(events.Items).To(ContainElement(And(
					HaveField("InvolvedObject.Kind", kind), HaveField("Reason", "FailedCreate"), HaveField("Message", ContainSubstring(refused)))))
			}
		}).WithContext(ctx).Should(Succeed())
	}, SpecTimeout(patience))
})

func plainDeployment(namespace, name string) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	spec := plainJob(namespace, "").Spec.Template.Spec
	spec.RestartPolicy = corev1.RestartPolicyAlways
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec},
		},
	}
}

// setParameters changes parameters of the admission policies until the spec has ended.
func setParameters(ctx context.Context, change map[string]string) {
	GinkgoHelper()
	parameters := get(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: apis.SystemNamespace, Name: apis.GuardsConfigMap}})
	before := parameters.DeepCopy()
	maps.Copy(parameters.Data, change)
	Expect(env.adminClient.Update(ctx, parameters)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) {
		before.ResourceVersion = ""
		Expect(env.adminClient.Update(ctx, before)).To(Succeed())
	}, NodeTimeout(patience))
}
