package podgroup_test

import (
	"context"
	"fmt"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
)

const web = "web"

// template returns the labels that select the pods of an object named web, and a template whose pods ask for one CPU and name no queue.
func (t team) template() (*metav1.LabelSelector, corev1.PodTemplateSpec) {
	member := t.member("", 0).label("made-by", web)
	delete(member.Labels, apis.QueueLabel)
	member.Spec.RestartPolicy = corev1.RestartPolicyAlways
	return &metav1.LabelSelector{MatchLabels: map[string]string{"made-by": web}}, corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: member.Labels}, Spec: member.Spec}
}

// queued returns the metadata of an object that names the LocalQueue of the team.
func (t team) queued() metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: t.name, Name: web, Labels: map[string]string{apis.QueueLabel: "main"}}
}

// submitAs creates an object, and deletes it with its pods after the spec.
func submitAs(ctx context.Context, who client.Client, object client.Object) {
	GinkgoHelper()
	Expect(who.Create(ctx, object)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) {
		Expect(client.IgnoreNotFound(env.Admin.Delete(ctx, object, client.PropagationPolicy(metav1.DeletePropagationBackground)))).To(Succeed())
	}, NodeTimeout(patience))
}

// tenant returns a client with the role edit in the namespace of the team.
func (t team) tenant(ctx context.Context) client.Client {
	GinkgoHelper()
	user := t.name + "-tenant"
	Expect(env.Admin.Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: t.name, Name: user},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	})).To(Succeed())
	who, err := env.As(user)
	Expect(err).NotTo(HaveOccurred())
	return who
}

// localQueue creates a LocalQueue of another name on the ClusterQueue of another team.
func (t team) localQueue(ctx context.Context, name string, of team) {
	GinkgoHelper()
	Expect(env.Admin.Create(ctx, &kueue.LocalQueue{
		ObjectMeta: metav1.ObjectMeta{Namespace: t.name, Name: name}, Spec: kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(of.name)},
	})).To(Succeed())
}

func (t team) expectStates(ctx context.Context, want map[string]int) {
	GinkgoHelper()
	Eventually(func(g Gomega) { g.Expect(t.count(ctx, g, web)).To(Equal(want)) }).WithContext(ctx).Should(Succeed())
}

// scale writes the subresource, as an autoscaler does.
func scale(ctx context.Context, who client.Client, object client.Object, replicas int32) {
	GinkgoHelper()
	wanted := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: replicas}}
	Expect(who.SubResource("scale").Update(ctx, object, client.WithSubResourceBody(wanted))).To(Succeed())
}

func merge(ctx context.Context, who client.Client, object client.Object, patch string) {
	GinkgoHelper()
	Expect(who.Patch(ctx, object, client.RawPatch(types.MergePatchType, []byte(patch)))).To(Succeed())
}

// havePods waits until all pods of web have a label, and are in these states.
func (t team) havePods(ctx context.Context, key, value string, want map[string]int) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(t.count(ctx, g, web)).To(Equal(want))
		for _, p := range t.pods(ctx, g) {
			g.Expect(p.Labels).To(HaveKeyWithValue(key, value))
		}
	}).WithContext(ctx).Should(Succeed())
}

const running = string(corev1.PodRunning)

var _ = Describe("A Deployment that names a queue", func() {
	It("has no back-off and no retries when its pods were only preempted", func(ctx SpecContext) {
		t := newTeam(ctx, "10", "0")
		second := kueue.ResourceFlavorReference(t.name + "-second")
		Expect(env.Admin.Create(ctx, &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: string(second)}})).To(Succeed())
		Eventually(func(g Gomega) {
			var queue kueue.ClusterQueue
			g.Expect(env.Admin.Get(ctx, client.ObjectKey{Name: t.name}, &queue)).To(Succeed())
			cpus := &queue.Spec.ResourceGroups[0]
			cpus.Flavors = append(cpus.Flavors, kueue.FlavorQuotas{Name: second, Resources: []kueue.ResourceQuota{{Name: "cpu", NominalQuota: resource.MustParse("9")}}})
			g.Expect(env.Admin.Update(ctx, &queue)).To(Succeed())
		}).WithContext(ctx).Should(Succeed())
		selector, template := t.template()
		submitAs(ctx, t.tenant(ctx), &appsv1.Deployment{ObjectMeta: t.queued(), Spec: appsv1.DeploymentSpec{Replicas: new(int32(10)), Selector: selector, Template: template}})
		t.expectStates(ctx, map[string]int{running: 10})
		class := &kueue.WorkloadPriorityClass{ObjectMeta: metav1.ObjectMeta{Name: t.name + "-urgent"}, Value: 100}
		Expect(env.Admin.Create(ctx, class)).To(Succeed())
		urgent, all := t.member("urgent", 0).label(apis.PriorityClassLabel, class.Name), corev1.ResourceList{"cpu": resource.MustParse("10")}
		urgent.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: all, Limits: all}
		create(ctx, urgent)
		t.expectPods(ctx, "urgent", "urgent=running")
		t.expectStates(ctx, map[string]int{running: 9, "gated": 1})
		Expect(t.workloads(ctx, Default)).To(HaveEach(HaveField("Status.RequeueState", BeNil())))
		var events eventsv1.EventList
		Expect(env.Admin.List(ctx, &events, client.InNamespace(t.name))).To(Succeed())
		Expect(events.Items).NotTo(ContainElement(HaveField("Reason", "EvictedDueToPodsReadyTimeout")))
	}, SpecTimeout(specTimeout))

	It("runs as many pods as its quota has room for, through scaling, failures, rollouts and another queue", func(ctx SpecContext) {
		t, other := newTeam(ctx, "2", "0"), newTeam(ctx, "2", "0")
		t.localQueue(ctx, "other", other)
		tenant := t.tenant(ctx)
		selector, template := t.template()
		deployment := &appsv1.Deployment{ObjectMeta: t.queued(), Spec: appsv1.DeploymentSpec{Replicas: new(int32(3)), Selector: selector, Template: template}}
		submitAs(ctx, tenant, deployment)
		t.expectStates(ctx, map[string]int{running: 2, "gated": 1})
		t.expectUsage(ctx, "cpu", 2)
		Expect(t.workloads(ctx, Default)).To(HaveEach(HaveField("Name", HavePrefix("pod-web-"))))

		By("scaling")
		scale(ctx, tenant, deployment, 1)
		t.expectStates(ctx, map[string]int{running: 1})
		t.expectUsage(ctx, "cpu", 1)
		scale(ctx, tenant, deployment, 2)
		t.expectStates(ctx, map[string]int{running: 2})

		By("losing a pod, whose quota passes to the one that replaces it")
		lost := t.pods(ctx, Default)[0].Name
		t.end(ctx, corev1.PodFailed, lost)
		t.expectStates(ctx, map[string]int{running: 2, string(corev1.PodFailed): 1})
		Expect(tenant.Delete(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: t.name, Name: lost}})).To(Succeed())

		By("rolling out on full quota: a surge pod waits, and no pod is given up for it")
		merge(ctx, tenant, deployment, `{"spec":{"template":{"metadata":{"labels":{"revision":"2"}}}}}`)
		t.expectStates(ctx, map[string]int{running: 2, "gated": 1})
		t.expectUsage(ctx, "cpu", 2)
		merge(ctx, tenant, deployment, `{"spec":{"strategy":{"rollingUpdate":{"maxSurge":0,"maxUnavailable":1}}}}`)
		t.havePods(ctx, "revision", "2", map[string]int{running: 2})

		By("changing the queue")
		merge(ctx, tenant, deployment, `{"metadata":{"labels":{"kueue.x-k8s.io/queue-name":"other"}}}`)
		t.havePods(ctx, apis.QueueLabel, "other", map[string]int{running: 2})
		t.expectUsage(ctx, "cpu", 0)
		other.expectUsage(ctx, "cpu", 2)

		By("being evicted: its controller creates the pods again, which wait")
		stop := kueue.HoldAndDrain
		queue := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: other.name}}
		merge(ctx, env.Admin, queue, fmt.Sprintf(`{"spec":{"stopPolicy":%q}}`, stop))
		t.expectStates(ctx, map[string]int{"gated": 2})
		other.expectUsage(ctx, "cpu", 0)
		merge(ctx, env.Admin, queue, `{"spec":{"stopPolicy":"None"}}`)
		t.expectStates(ctx, map[string]int{running: 2})

		By("being deleted")
		Expect(tenant.Delete(ctx, deployment, client.PropagationPolicy(metav1.DeletePropagationBackground))).To(Succeed())
		other.expectUsage(ctx, "cpu", 0)
		Eventually(func(g Gomega) { g.Expect(t.workloads(ctx, g)).To(BeEmpty()) }).WithContext(ctx).Should(Succeed())
	}, SpecTimeout(specTimeout))

	It("keeps its quota against its tenant", func(ctx SpecContext) {
		t := newTeam(ctx, "1", "0")
		tenant := t.tenant(ctx)
		selector, template := t.template()
		deployment := &appsv1.Deployment{ObjectMeta: t.queued(), Spec: appsv1.DeploymentSpec{Replicas: new(int32(2)), Selector: selector, Template: template}}
		submitAs(ctx, tenant, deployment)
		t.expectStates(ctx, map[string]int{running: 1, "gated": 1})
		pods := t.pods(ctx, Default)
		slices.SortFunc(pods, func(a, b corev1.Pod) int { return len(a.Spec.SchedulingGates) - len(b.Spec.SchedulingGates) })
		runs, waits := &pods[0], &pods[1]
		for _, row := range []struct {
			pod         *corev1.Pod
			patch, want string
		}{
			{waits, `[{"op":"remove","path":"/spec/schedulingGates"}]`, "only Tranche's manager removes kueue.x-k8s.io/admission"},
			{waits, `[{"op":"remove","path":"/metadata/labels"}]`, "metadata.labels"},
			{runs, `[{"op":"remove","path":"/metadata/labels/kueue.x-k8s.io~1queue-name"}]`, "the labels for the queue and the group cannot be changed"},
			{runs, `[{"op":"remove","path":"/metadata/labels/tranche.dev~1pod-group-member"}]`, "only Tranche's manager"},
			{runs, `[{"op":"remove","path":"/metadata/annotations/tranche.dev~1admission"}]`, "only Tranche's manager"},
			{runs, `[{"op":"remove","path":"/metadata/ownerReferences"}]`, "metadata.ownerReferences"},
			{runs, `[{"op":"add","path":"/metadata/labels/kueue.x-k8s.io~1pod-group-name","value":"g"}]`, "metadata.labels"},
			{runs, `[{"op":"add","path":"/metadata/labels/batch.kubernetes.io~1controller-uid","value":"x"}]`, "only the Job controller"},
		} {
			err := tenant.Patch(ctx, row.pod.DeepCopy(), client.RawPatch(types.JSONPatchType, []byte(row.patch)))
			Expect(err).To(MatchError(ContainSubstring(row.want)), row.patch)
		}
		bind := &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: "cpu-0"}}
		Expect(env.Admin.SubResource("binding").Create(ctx, waits.DeepCopy(), bind)).NotTo(Succeed(), "Kubernetes binds no pod with a gate")

		By("releasing a pod from its ReplicaSet by its labels: it keeps its quota, and its replacement waits")
		Expect(tenant.Patch(ctx, runs.DeepCopy(), client.RawPatch(types.JSONPatchType, []byte(`[{"op":"replace","path":"/metadata/labels/made-by","value":"none"}]`)))).To(Succeed())
		t.expectStates(ctx, map[string]int{"gated": 2})
		t.expectUsage(ctx, "cpu", 1)
		By("taking the queue from the Deployment and its pods")
		for _, patch := range []string{
			`[{"op":"remove","path":"/metadata/labels/kueue.x-k8s.io~1queue-name"}]`,
			`[{"op":"remove","path":"/metadata/labels"},{"op":"remove","path":"/spec/template/metadata/labels/kueue.x-k8s.io~1queue-name"}]`,
		} {
			err := tenant.Patch(ctx, deployment.DeepCopy(), client.RawPatch(types.JSONPatchType, []byte(patch)))
			Expect(err).To(MatchError(ContainSubstring("the label kueue.x-k8s.io/queue-name cannot be removed")))
		}
		replicas := &appsv1.ReplicaSetList{}
		Expect(tenant.List(ctx, replicas, client.InNamespace(t.name))).To(Succeed())
		Expect(replicas.Items).To(HaveLen(1))
		err := tenant.Patch(ctx, &replicas.Items[0], client.RawPatch(types.JSONPatchType, []byte(`[{"op":"remove","path":"/spec/template/metadata/labels/kueue.x-k8s.io~1queue-name"}]`)))
		Expect(err).To(MatchError(ContainSubstring("on a ReplicaSet of a Deployment, set the label on the Deployment")))

		By("leaving its pods to themselves")
		Expect(tenant.Delete(ctx, deployment, client.PropagationPolicy(metav1.DeletePropagationOrphan))).To(Succeed())
		Expect(tenant.Delete(ctx, &replicas.Items[0], client.PropagationPolicy(metav1.DeletePropagationOrphan))).To(Succeed())
		Eventually(func(g Gomega) {
			for _, p := range t.pods(ctx, g) {
				g.Expect(p.OwnerReferences).To(BeEmpty())
			}
		}).WithContext(ctx).Should(Succeed())
		Expect(tenant.Delete(ctx, runs)).To(Succeed())
		t.expectStates(ctx, map[string]int{running: 1, "gated": 1})
		t.expectUsage(ctx, "cpu", 1)
	}, SpecTimeout(specTimeout))
})

var _ = Describe("A StatefulSet that names a queue", func() {
	It("runs as many pods as its quota has room for, one after the other, through scaling, a rollout and another queue", func(ctx SpecContext) {
		t, other := newTeam(ctx, "2", "0"), newTeam(ctx, "2", "0")
		t.localQueue(ctx, "other", other)
		tenant := t.tenant(ctx)
		selector, template := t.template()
		set := &appsv1.StatefulSet{ObjectMeta: t.queued(), Spec: appsv1.StatefulSetSpec{Replicas: new(int32(3)), Selector: selector, Template: template}}
		submitAs(ctx, tenant, set)
		t.expectPods(ctx, "", "web-0=running", "web-1=running", "web-2=gated")
		scale(ctx, tenant, set, 1)
		t.expectPods(ctx, "", "web-0=running")
		t.expectUsage(ctx, "cpu", 1)
		scale(ctx, tenant, set, 2)
		t.expectPods(ctx, "", "web-0=running", "web-1=running")

		By("rolling out, and changing the queue")
		merge(ctx, tenant, set, `{"spec":{"template":{"metadata":{"labels":{"revision":"2"}}}}}`)
		t.havePods(ctx, "revision", "2", map[string]int{running: 2})
		merge(ctx, tenant, set, `{"metadata":{"labels":{"kueue.x-k8s.io/queue-name":"other"}}}`)
		t.havePods(ctx, apis.QueueLabel, "other", map[string]int{running: 2})
		t.expectUsage(ctx, "cpu", 0)
		other.expectUsage(ctx, "cpu", 2)
		Eventually(func(g Gomega) {
			for _, w := range t.workloads(ctx, g) {
				g.Expect(quotaworkload.IsTrue(&w, kueue.WorkloadAdmitted) && strings.HasPrefix(w.Name, "pod-web-")).To(BeTrue(), w.Name)
			}
		}).WithContext(ctx).Should(Succeed())
	}, SpecTimeout(specTimeout))
})
