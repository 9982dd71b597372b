package gang_test

import (
	"context"
	"fmt"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
)

const (
	coscheduling = "scheduling.x-k8s.io/v1alpha1"
	volcano      = "scheduling.volcano.sh/v1beta1"
	koordinator  = "scheduling.sigs.k8s.io/v1alpha1"
)

// in submits a JobSet to another LocalQueue.
func in(queue string, js *jobsetapi.JobSet) *jobsetapi.JobSet {
	js.Labels[apis.QueueLabel] = queue
	return js
}

// groupsOf returns the PodGroups that a JobSet has in an API.
func groupsOf(ctx context.Context, g Gomega, js *jobsetapi.JobSet, apiVersion string) []unstructured.Unstructured {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(schema.FromAPIVersionAndKind(apiVersion, "PodGroupList"))
	g.Expect(env.Admin.List(ctx, list, client.InNamespace(namespace), client.MatchingLabels{apis.JobSetLabel: js.Name})).To(Succeed())
	return list.Items
}

// withoutUID cuts the digits of the UID off a name.
func withoutUID(name string) string { return name[:strings.LastIndex(name, "-")] }

// expectGroups waits until a JobSet has these PodGroups, each as its name and what it has.
func expectGroups(ctx context.Context, js *jobsetapi.JobSet, apiVersion string, show func(*unstructured.Unstructured) string, want ...string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		var got []string
		for _, group := range groupsOf(ctx, g, js, apiVersion) {
			g.Expect(metav1.IsControlledBy(&group, js)).To(BeTrue())
			got = append(got, withoutUID(group.GetName())+": "+show(&group))
		}
		slices.Sort(got)
		g.Expect(got).To(Equal(want))
	}).WithContext(ctx).Should(Succeed())
}

// expectPods waits until the pods of a JobSet are as wanted: for each ReplicatedJob, scheduler and shown value, such as the name of their
// gang without the digits of the UID, how many of how many have a node.
func expectPods(ctx context.Context, js *jobsetapi.JobSet, show func(*corev1.Pod) string, want ...string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		there, placed := map[string]int{}, map[string]int{}
		for _, pod := range podsOf(ctx, g, js) {
			g.Expect(pod.Spec.SchedulingGroup).To(BeNil(), "that is for the scheduler of Kubernetes")
			key := fmt.Sprintf("%s %s %s", pod.Labels[jobset.ReplicatedJobNameKey], pod.Spec.SchedulerName, show(&pod))
			there[key]++
			if pod.Spec.NodeName != "" {
				placed[key]++
			}
		}
		var got []string
		for key, n := range there {
			got = append(got, fmt.Sprintf("%s: %d of %d", key, placed[key], n))
		}
		slices.Sort(got)
		g.Expect(got).To(Equal(want))
	}).WithContext(ctx).Should(Succeed())
}

// expectNoGroups checks that a JobSet has no PodGroup in any API. Its Jobs are released only when the objects of its gangs exist.
func expectNoGroups(ctx context.Context, js *jobsetapi.JobSet) {
	GinkgoHelper()
	Expect(podGroups(ctx, Default, js)).To(BeEmpty())
	for _, apiVersion := range []string{coscheduling, volcano, koordinator} {
		Expect(groupsOf(ctx, Default, js, apiVersion)).To(BeEmpty(), apiVersion)
	}
}

func fieldsOf(fields ...string) func(*unstructured.Unstructured) string {
	return func(group *unstructured.Unstructured) string {
		spec, _ := group.Object["spec"].(map[string]any)
		var shown []string
		for _, field := range fields {
			shown = append(shown, fmt.Sprint(spec[field]))
		}
		return strings.Join(shown, " ")
	}
}

var _ = Describe("A gang of another scheduler", func() {
	It("has a PodGroup of Volcano, which is recreated with the status that Volcano wrote", func(ctx SpecContext) {
		js := in("volcano", asGang(newJobSet("volcano", role{name: "driver", replicas: 1, pods: 1}, role{name: "workers", replicas: 2, pods: 4})))
		js.Spec.FailurePolicy = &jobset.FailurePolicy{MaxRestarts: 1}
		submit(ctx, js)
		gang := func(pod *corev1.Pod) string {
			return withoutUID(pod.Annotations["scheduling.k8s.io/group-name"]) + " " + pod.Annotations["volcano.sh/task-spec"]
		}
		show := fieldsOf("minMember", "minTaskMember", "minResources", "queue")
		spec := "9 map[driver:1 workers:8] map[cpu:900m nvidia.com/gpu:9] default"
		expectGroups(ctx, js, volcano, show, "volcano-all-r0: "+spec)
		expectPods(ctx, js, gang, "driver default-scheduler volcano-all-r0 driver: 1 of 1", "workers default-scheduler volcano-all-r0 workers: 8 of 8")
		expectCondition(ctx, js, "GangScheduling", metav1.ConditionTrue, "1 gang, each with a PodGroup of scheduling.volcano.sh/v1beta1")

		group := groupsOf(ctx, Default, js, volcano)[0]
		patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"minMember":1},"status":{"phase":"Running","running":9}}`))
		Expect(env.Admin.Patch(ctx, &group, patch)).To(Succeed())
		expectGroups(ctx, js, volcano, show, "volcano-all-r0: "+spec)
		after := groupsOf(ctx, Default, js, volcano)[0]
		Expect(after.GetUID()).To(Equal(group.GetUID()), "it is changed while pods go by it")
		Expect(after.Object["status"]).To(HaveKeyWithValue("phase", "Running"))

		fail(ctx, js, "driver")
		expectPods(ctx, js, gang, "driver default-scheduler volcano-all-r1 driver: 1 of 1", "workers default-scheduler volcano-all-r1 workers: 8 of 8")
		expectGroups(ctx, js, volcano, show, "volcano-all-r1: "+spec)
	}, SpecTimeout(patience))

	It("has PodGroups of Koordinator, one for each ReplicatedJob, in one gang group", func(ctx SpecContext) {
		js := in("koordinator", asGang(newJobSet("koord", role{name: "driver", replicas: 1, pods: 1}, role{name: "workers", replicas: 2, pods: 4})))
		submit(ctx, js)
		expectGroups(ctx, js, koordinator, func(group *unstructured.Unstructured) string {
			annotations := group.GetAnnotations()
			names := strings.Count(annotations["gang.scheduling.koordinator.sh/groups"], `"`+namespace+"/koord-")
			return fmt.Sprintf("%s %s %s, %d in its group", fieldsOf("minMember")(group), annotations["gang.scheduling.koordinator.sh/mode"],
				annotations["gang.scheduling.koordinator.sh/match-policy"], names)
		}, "koord-driver-0-r0: 1 Strict waiting-and-running, 2 in its group", "koord-workers-1-r0: 8 Strict waiting-and-running, 2 in its group")
		expectPods(ctx, js, func(pod *corev1.Pod) string { return withoutUID(pod.Labels["pod-group.scheduling.sigs.k8s.io"]) },
			"driver koord-scheduler koord-driver-0-r0: 0 of 1", "workers koord-scheduler koord-workers-1-r0: 0 of 8")
	}, SpecTimeout(patience))

	It("has PodGroups of Coscheduling, one for each Job", func(ctx SpecContext) {
		js := in("coscheduling", newJobSet("cosched", role{name: "workers", replicas: 2, pods: 4, gang: jobsetapi.GangModeReplicatedGang}, role{name: "other", replicas: 1, pods: 1}))
		js.Spec.ReplicatedJobs[0].Template.Spec.Template.Labels = map[string]string{"mine": "kept"}
		submit(ctx, js)
		expectGroups(ctx, js, coscheduling, fieldsOf("minMember", "minResources", "scheduleTimeoutSeconds"),
			"cosched-workers-0x0-r0: 4 map[cpu:400m nvidia.com/gpu:4] 60", "cosched-workers-0x1-r0: 4 map[cpu:400m nvidia.com/gpu:4] 60")
		expectPods(ctx, js, func(pod *corev1.Pod) string {
			return pod.Labels["mine"] + " " + pod.Labels["scheduling.x-k8s.io/pod-group"][:min(len("cosched-workers-0x0-r0"), len(pod.Labels["scheduling.x-k8s.io/pod-group"]))]
		}, "other default-scheduler  : 1 of 1", "workers default-scheduler kept cosched-workers-0x0-r0: 4 of 4", "workers default-scheduler kept cosched-workers-0x1-r0: 4 of 4")
	}, SpecTimeout(patience))

	It("has no gang object if its LocalQueue names provider None", func(ctx SpecContext) {
		js := in("none", asGang(newJobSet("without-provider", role{name: "workers", replicas: 1, pods: 13})))
		submit(ctx, js)
		expectPods(ctx, js, func(*corev1.Pod) string { return "" }, "workers default-scheduler : 12 of 13")
		expectCondition(ctx, js, "GangScheduling", metav1.ConditionFalse, "names a scheduler that does")
		expectNoGroups(ctx, js)
	}, SpecTimeout(patience))

	It("is refused if its provider is unknown", func(ctx SpecContext) {
		want := MatchError(ContainSubstring(`tranche.dev/gang-provider must be None, Kube, Coscheduling, Volcano or Koordinator, not "Unknown"`))
		Expect(env.Admin.Create(ctx, newLocalQueue("unknown-provider", "Unknown"))).To(want)
		Expect(env.Admin.Create(ctx, newFlavor("unknown-provider", "Unknown"))).To(want)
	}, SpecTimeout(patience))

	It("uses the provider of the flavor of its first stage, and keeps it", func(ctx SpecContext) {
		js := in("flavored", newJobSet("flavored", role{name: "small", replicas: 1, pods: 2, gang: jobsetapi.GangModeGang}, role{name: "large", replicas: 1, pods: 4, gang: jobsetapi.GangModeGang}))
		js.Spec.StartupPolicy = &jobsetapi.StartupPolicy{StartupPolicyOrder: jobset.InOrder}
		submit(ctx, js)
		gang := func(pod *corev1.Pod) string { return withoutUID(pod.Annotations["scheduling.k8s.io/group-name"]) }
		expectPods(ctx, js, gang, "large default-scheduler flavored-large-1-r0: 4 of 4", "small default-scheduler flavored-small-0-r0: 2 of 2")
		expectGroups(ctx, js, volcano, fieldsOf("minMember"), "flavored-large-1-r0: 4", "flavored-small-0-r0: 2")
		expectCondition(ctx, js, "GangScheduling", metav1.ConditionFalse, `ResourceFlavor "large" names Koordinator for them (tranche.dev/gang-provider), but the Jobs were made for Volcano`)
	}, SpecTimeout(patience))
})
