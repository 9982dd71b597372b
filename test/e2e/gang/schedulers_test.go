package gang_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

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

// placed counts the pods of a JobSet that have a node, as "of how many".
func placed(ctx context.Context, g Gomega, js *jobsetapi.JobSet) string {
	pods := podsOf(ctx, g, js)
	n := 0
	for _, pod := range pods {
		if pod.Spec.NodeName != "" {
			n++
		}
	}
	return fmt.Sprintf("%d of %d", n, len(pods))
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
		expectPods(ctx, js, gang, "driver volcano volcano-all-r0 driver: 1 of 1", "workers volcano volcano-all-r0 workers: 8 of 8")
		expectCondition(ctx, js, "GangScheduling", metav1.ConditionTrue, "1 gang, each with a PodGroup of scheduling.volcano.sh/v1beta1")

		Eventually(func(g Gomega) {
			g.Expect(groupsOf(ctx, g, js, volcano)[0].Object["status"]).To(And(HaveKeyWithValue("phase", "Running"), HaveKeyWithValue("running", BeEquivalentTo(9))))
		}).WithContext(ctx).Should(Succeed())
		group := groupsOf(ctx, Default, js, volcano)[0]
		Expect(env.Admin.Patch(ctx, &group, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"minMember":1}}`)))).To(Succeed())
		expectGroups(ctx, js, volcano, show, "volcano-all-r0: "+spec)
		after := groupsOf(ctx, Default, js, volcano)[0]
		Expect(after.GetUID()).To(Equal(group.GetUID()), "it is changed while pods go by it")
		Expect(after.Object["status"]).To(HaveKeyWithValue("phase", "Running"))

		fail(ctx, js, "driver")
		expectPods(ctx, js, gang, "driver volcano volcano-all-r1 driver: 1 of 1", "workers volcano volcano-all-r1 workers: 8 of 8")
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
		}, "other default-scheduler  : 1 of 1", "workers scheduler-plugins-scheduler kept cosched-workers-0x0-r0: 4 of 4", "workers scheduler-plugins-scheduler kept cosched-workers-0x1-r0: 4 of 4")
	}, SpecTimeout(patience))

	DescribeTable("is placed whole or not at all", func(ctx SpecContext, queue, cause string) {
		By("leaving it 4 GPUs of 12")
		others := newJobSet("others-"+queue, role{name: "workers", replicas: 1, pods: 8})
		submit(ctx, others)
		expectBound(ctx, others, "none: 8 of 8")
		js := in(queue, asGang(newJobSet("whole-"+queue, role{name: "driver", replicas: 1, pods: 1}, role{name: "workers", replicas: 1, pods: 4})))
		submit(ctx, js)
		expectCondition(ctx, js, "GangScheduling", metav1.ConditionFalse, cause)
		Consistently(func(g Gomega) { g.Expect(placed(ctx, g, js)).To(Equal("0 of 5")) }).WithContext(ctx).WithTimeout(2 * time.Second).Should(Succeed())
		By("giving it the rest")
		remove(ctx, others)
		// Coscheduling tries a gang again when a pod is created, not when one is deleted.
		submit(ctx, newJobSet("next-"+queue, role{name: "workers", replicas: 1, pods: 1}))
		Eventually(func(g Gomega) { g.Expect(placed(ctx, g, js)).To(Equal("5 of 5")) }).WithContext(ctx).Should(Succeed())
		expectCondition(ctx, js, "GangScheduling", metav1.ConditionTrue, "1 gang")
	},
		Entry("by Coscheduling", "coscheduling", "nodes are available", SpecTimeout(2*patience)),
		Entry("by Volcano", "volcano", "3 Insufficient nvidia.com/gpu", SpecTimeout(2*patience)),
	)

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
		expectPods(ctx, js, gang, "large volcano flavored-large-1-r0: 4 of 4", "small volcano flavored-small-0-r0: 2 of 2")
		expectGroups(ctx, js, volcano, fieldsOf("minMember"), "flavored-large-1-r0: 4", "flavored-small-0-r0: 2")
		expectCondition(ctx, js, "GangScheduling", metav1.ConditionFalse, `ResourceFlavor "large" names Koordinator for them (tranche.dev/gang-provider), but the Jobs were made for Volcano`)
	}, SpecTimeout(patience))
})
