package podgroup_test

import (
	"context"
	"fmt"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
)

// A team has a namespace, and a LocalQueue "main" there on a ClusterQueue of its own. Its GPUs are on tainted nodes.
type team struct{ name string }

var teams int

func newTeam(ctx context.Context, cpus, gpus string) team {
	GinkgoHelper()
	teams++
	t := team{fmt.Sprintf("team-%d", teams)}
	Expect(env.CreateNamespace(ctx, t.name, nil)).To(Succeed())
	quota := func(name corev1.ResourceName, amount string) kueue.FlavorQuotas {
		return kueue.FlavorQuotas{
			Name:      kueue.ResourceFlavorReference(t.name + "-" + strings.ReplaceAll(string(name), "nvidia.com/", "")),
			Resources: []kueue.ResourceQuota{{Name: name, NominalQuota: resource.MustParse(amount)}},
		}
	}
	for _, object := range []client.Object{
		&kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: t.name + "-cpu"}},
		&kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: t.name + "-gpu"}, Spec: kueue.ResourceFlavorSpec{
			NodeLabels: map[string]string{"accelerator": "a100"}, Tolerations: []corev1.Toleration{{Key: "gpu", Operator: corev1.TolerationOpExists}},
		}},
		&kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: t.name}, Spec: kueue.ClusterQueueSpec{
			NamespaceSelector: &metav1.LabelSelector{},
			Preemption:        &kueue.ClusterQueuePreemption{WithinClusterQueue: kueue.PreemptionPolicyLowerPriority},
			ResourceGroups: []kueue.ResourceGroup{
				{CoveredResources: []corev1.ResourceName{"cpu"}, Flavors: []kueue.FlavorQuotas{quota("cpu", cpus)}},
				{CoveredResources: []corev1.ResourceName{gpu}, Flavors: []kueue.FlavorQuotas{quota(gpu, gpus)}},
			},
		}},
		&kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: t.name, Name: "main"}, Spec: kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(t.name)}},
	} {
		Expect(env.Admin.Create(ctx, object)).To(Succeed())
	}
	DeferCleanup(func(ctx SpecContext) { t.empty(ctx) }, NodeTimeout(patience))
	return t
}

// empty deletes all objects of a team, and waits until its quota is released.
func (t team) empty(ctx context.Context) {
	GinkgoHelper()
	for _, group := range t.podGroups(ctx, Default) {
		Expect(client.IgnoreNotFound(env.Admin.Delete(ctx, &group))).To(Succeed())
	}
	Expect(env.Admin.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(t.name), client.GracePeriodSeconds(0))).To(Succeed())
	Eventually(func(g Gomega) {
		g.Expect(t.pods(ctx, g)).To(BeEmpty())
		g.Expect(t.workloads(ctx, g)).To(BeEmpty(), "quota Workloads go with their gangs")
	}).WithContext(ctx).Should(Succeed())
}

// awaitHandled waits until the controllers have handled all earlier writes: a pod of another team gets quota and a node after that. Each watch delivers changes
// in their order. A spec that something does not happen calls it before its last check, which could not fail before the manager has had the opportunity.
func awaitHandled(ctx context.Context) {
	GinkgoHelper()
	other := newTeam(ctx, "1", "0")
	create(ctx, other.member("probe", 0))
	other.expectPods(ctx, "probe", "probe=running")
}

// A pod describes a pod of a gang to create.
type pod struct{ *corev1.Pod }

// member makes a pod that asks for so many GPUs, or for one CPU if that is 0.
func (t team) member(name string, gpus int64) pod {
	requests := corev1.ResourceList{"cpu": resource.MustParse("1")}
	if gpus > 0 {
		requests = corev1.ResourceList{gpu: *resource.NewQuantity(gpus, resource.DecimalSI)}
	}
	return pod{&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: t.name, Name: name, Annotations: map[string]string{},
			Labels: map[string]string{apis.QueueLabel: "main"},
		},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, TerminationGracePeriodSeconds: new(int64(1)),
			Containers: []corev1.Container{{
				Name: "main", Image: "example.com/train", Resources: corev1.ResourceRequirements{Requests: requests, Limits: requests},
			}},
		},
	}}
}

func (p pod) label(key, value string) pod {
	p.Labels[key] = value
	return p
}

func (p pod) annotate(key, value string) pod {
	p.Annotations[key] = value
	return p
}

// koordinator puts a pod into a gang by annotations: name, min-available and so on.
func (p pod) koordinator(settings ...string) pod {
	for i := 0; i < len(settings); i += 2 {
		p.annotate(apis.KoordinatorPrefix+settings[i], settings[i+1])
	}
	return p
}

func create(ctx context.Context, pods ...pod) {
	GinkgoHelper()
	for _, p := range pods {
		Expect(env.Admin.Create(ctx, p.Pod)).To(Succeed())
	}
}

const (
	coscheduling = "scheduling.x-k8s.io/v1alpha1"
	koordinator  = "scheduling.sigs.k8s.io/v1alpha1"
)

// podGroup makes a PodGroup of one of the APIs.
func (t team) podGroup(ctx context.Context, api, name string, spec map[string]any, annotations map[string]string) *unstructured.Unstructured {
	GinkgoHelper()
	group := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	group.SetAPIVersion(api)
	group.SetKind("PodGroup")
	group.SetNamespace(t.name)
	group.SetName(name)
	group.SetAnnotations(annotations)
	Expect(env.Admin.Create(ctx, group)).To(Succeed())
	return group
}

func (t team) podGroups(ctx context.Context, g Gomega) []unstructured.Unstructured {
	var all []unstructured.Unstructured
	for _, api := range []string{coscheduling, koordinator} {
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion(api)
		list.SetKind("PodGroupList")
		g.Expect(env.Admin.List(ctx, list, client.InNamespace(t.name))).To(Succeed())
		all = append(all, list.Items...)
	}
	return all
}

func (t team) pods(ctx context.Context, g Gomega) []corev1.Pod {
	var list corev1.PodList
	g.Expect(env.Admin.List(ctx, &list, client.InNamespace(t.name))).To(Succeed())
	return list.Items
}

func (t team) workloads(ctx context.Context, g Gomega) []kueue.Workload {
	var list kueue.WorkloadList
	g.Expect(env.Admin.List(ctx, &list, client.InNamespace(t.name))).To(Succeed())
	return list.Items
}

// standing returns the state of each pod whose name has the prefix: gated, pending, running, succeeded or failed.
func (t team) standing(ctx context.Context, g Gomega, prefix string) []string {
	var all []string
	for _, p := range t.pods(ctx, g) {
		if !strings.HasPrefix(p.Name, prefix) {
			continue
		}
		how := strings.ToLower(string(p.Status.Phase))
		if len(p.Spec.SchedulingGates) > 0 {
			how = "gated"
		}
		all = append(all, p.Name+"="+how)
	}
	slices.Sort(all)
	return all
}

func (t team) expectPods(ctx context.Context, prefix string, want ...string) {
	GinkgoHelper()
	Eventually(func(g Gomega) { g.Expect(t.standing(ctx, g, prefix)).To(Equal(want)) }).WithContext(ctx).Should(Succeed())
}

// end finishes running pods in this way.
func (t team) end(ctx context.Context, phase corev1.PodPhase, names ...string) {
	GinkgoHelper()
	for _, name := range names {
		Eventually(func(g Gomega) {
			var p corev1.Pod
			g.Expect(env.Admin.Get(ctx, types.NamespacedName{Namespace: t.name, Name: name}, &p)).To(Succeed())
			g.Expect(p.Status.Phase).To(Equal(corev1.PodRunning))
			p.Status.Phase = phase
			g.Expect(env.Admin.Status().Update(ctx, &p)).To(Succeed())
		}).WithContext(ctx).Should(Succeed())
	}
}

// usage returns the reserved amount of a resource in the status of the ClusterQueue.
func (t team) usage(ctx context.Context, g Gomega, resourceName corev1.ResourceName) int64 {
	var queue kueue.ClusterQueue
	g.Expect(env.Admin.Get(ctx, types.NamespacedName{Name: t.name}, &queue)).To(Succeed())
	for _, flavor := range queue.Status.FlavorsReservation {
		for _, r := range flavor.Resources {
			if r.Name == resourceName {
				return r.Total.Value()
			}
		}
	}
	return 0
}

func (t team) expectUsage(ctx context.Context, resourceName corev1.ResourceName, want int64) {
	GinkgoHelper()
	Eventually(func(g Gomega) { g.Expect(t.usage(ctx, g, resourceName)).To(Equal(want)) }).WithContext(ctx).Should(Succeed())
}

func (t team) workload(ctx context.Context, g Gomega, name string) *kueue.Workload {
	var w kueue.Workload
	g.Expect(env.Admin.Get(ctx, types.NamespacedName{Namespace: t.name, Name: name}, &w)).To(Succeed())
	return &w
}

func (t team) expectFinished(ctx context.Context, name string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(quotaworkload.IsTrue(t.workload(ctx, g, name), kueue.WorkloadFinished)).To(BeTrue())
	}).WithContext(ctx).Should(Succeed())
}

// told returns the Events about one object.
func (t team) told(ctx context.Context, g Gomega, kind, name string) []string {
	var list eventsv1.EventList
	g.Expect(env.Admin.List(ctx, &list, client.InNamespace(t.name))).To(Succeed())
	var all []string
	for i := range list.Items {
		if e := &list.Items[i]; e.Regarding.Kind == kind && e.Regarding.Name == name {
			all = append(all, fmt.Sprintf("%s %s: %s", e.Type, e.Reason, e.Note))
		}
	}
	return all
}

func (t team) expectTold(ctx context.Context, kind, name, substring string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(t.told(ctx, g, kind, name)).To(ContainElement(ContainSubstring(substring)))
	}).WithContext(ctx).Should(Succeed())
}

// expectNoted waits until a PodGroup has this message about its gang.
func expectNoted(ctx context.Context, group *unstructured.Unstructured, substring string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(env.Admin.Get(ctx, client.ObjectKeyFromObject(group), group)).To(Succeed())
		g.Expect(group.GetAnnotations()[apis.GangMessageAnnotation]).To(ContainSubstring(substring))
	}).WithContext(ctx).Should(Succeed())
}

func isGone(ctx context.Context, g Gomega, object client.Object) bool {
	err := env.Admin.Get(ctx, client.ObjectKeyFromObject(object), object)
	g.Expect(client.IgnoreNotFound(err)).To(Succeed())
	return apierrors.IsNotFound(err)
}

func quote(s string) string { return fmt.Sprintf("%q", s) }
