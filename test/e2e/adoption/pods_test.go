package adoption_test

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/podgroup"
	"github.com/tranche-dev/tranche/lifecycle/workloadname"
	"github.com/tranche-dev/tranche/test/controlplane"
)

const groupOfKueue, singleOfKueue = "group", "single"

// newPod returns a pod of the queue that is in the group, unless that is empty. It runs until the test ends it.
func newPod(name, group string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, Labels: map[string]string{apis.QueueLabel: "queue"},
		Annotations: map[string]string{controlplane.FakeGangExit: controlplane.FakeExitNever},
	}, Spec: newJob(name, 1).Spec.Template.Spec}
	if group != "" {
		pod.Labels[apis.PodGroupNameLabel], pod.Annotations[apis.PodGroupTotalCountAnnotation] = group, "2"
	}
	return pod
}

// leavePods creates a group of two pods that run and a single pod that waits, and their Workloads, as Kueue leaves them. It returns the pods that run.
func leavePods(ctx context.Context) []types.UID {
	GinkgoHelper()
	create := func(pod *corev1.Pod) *corev1.Pod {
		pod.Labels[apis.KueueManagedKey], pod.Finalizers = "true", []string{apis.KueueManagedKey}
		Expect(env.Admin.Create(ctx, pod)).To(Succeed())
		return pod
	}
	var group []*corev1.Pod
	for i := range 2 {
		pod := newPod(fmt.Sprintf("%s-%d", groupOfKueue, i), groupOfKueue)
		pod.Labels[apis.PodSetLabel], pod.Spec.NodeSelector = "role", map[string]string{"pool": "spot"}
		group = append(group, create(pod))
	}
	single := newPod(singleOfKueue, "")
	single.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: apis.PodAdmissionGate}}
	create(single)
	leave := func(name string, podSet kueue.PodSetReference, pods ...*corev1.Pod) *kueue.Workload {
		w := &kueue.Workload{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Finalizers: []string{kueue.ResourceInUseFinalizerName}},
			Spec: kueue.WorkloadSpec{QueueName: "queue", Active: new(true), Priority: new(int32(0)), PodSets: []kueue.PodSet{{
				Name: podSet, Count: int32(len(pods)), Template: corev1.PodTemplateSpec{Spec: *pods[0].Spec.DeepCopy()},
			}}},
		}
		w.Spec.PodSets[0].Template.Spec.NodeSelector = nil
		for _, pod := range pods {
			w.OwnerReferences = append(w.OwnerReferences, podgroup.AsOwner(pod))
		}
		Expect(env.Admin.Create(ctx, w)).To(Succeed())
		return w
	}
	admitAsKueue(ctx, leave(groupOfKueue, "role", group...))
	leave(workloadname.Of(workloadname.Owner{Kind: "Pod", Name: single.Name, UID: single.UID}, ""), kueue.DefaultPodSetName, single)
	var uids []types.UID
	Eventually(func(g Gomega) {
		uids = runningPods(ctx, g, apis.PodGroupNameLabel, groupOfKueue)
		g.Expect(uids).To(HaveLen(2))
	}).WithContext(ctx).Should(Succeed())
	return uids
}

func podOf(ctx context.Context, g Gomega, name string) *corev1.Pod {
	var pod corev1.Pod
	g.Expect(env.Admin.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &pod)).To(Succeed())
	return &pod
}

// expectPodsOfKueueGuarded checks that no user takes pods of Kueue from their quota before the manager has adopted them.
func expectPodsOfKueueGuarded(ctx context.Context) {
	GinkgoHelper()
	// Two policies refuse a pod that joins a group.
	const labels, joins = "decide which quota the pod uses", "decide which quota the pod uses|a pod can join the group of a queue only when it is created"
	for _, attempt := range []struct{ pod, patch, want string }{
		{singleOfKueue, `[{"op":"remove","path":"/spec/schedulingGates"}]`, "spec.schedulingGates: only Tranche's manager"},
		{singleOfKueue, `[{"op":"replace","path":"/spec/schedulingGates/0/name","value":"example.com/mine"}]`, "spec.schedulingGates"},
		{singleOfKueue, `[{"op":"remove","path":"/metadata/labels/kueue.x-k8s.io~1queue-name"},{"op":"remove","path":"/spec/schedulingGates"}]`, labels},
		{singleOfKueue, `[{"op":"remove","path":"/metadata/labels"},{"op":"remove","path":"/spec/schedulingGates"}]`, labels},
		{singleOfKueue, `[{"op":"add","path":"/metadata/labels/kueue.x-k8s.io~1pod-group-name","value":"group"}]`, joins},
		{singleOfKueue, `[{"op":"add","path":"/metadata/annotations/kueue.x-k8s.io~1pod-group-name","value":"group"}]`, joins},
		{"group-0", `[{"op":"remove","path":"/metadata/labels/kueue.x-k8s.io~1queue-name"}]`, labels},
		{"group-0", `[{"op":"remove","path":"/metadata/labels/kueue.x-k8s.io~1managed"}]`, labels},
		{"group-0", `[{"op":"replace","path":"/metadata/labels/kueue.x-k8s.io~1pod-group-name","value":"other"}]`, labels},
		{"group-0", `[{"op":"replace","path":"/metadata/annotations/kueue.x-k8s.io~1pod-group-total-count","value":"9"}]`, "metadata.annotations: "},
		{"group-0", `[{"op":"add","path":"/metadata/labels/tranche.dev~1pod-group-member","value":"true"}]`, "only Tranche's manager"},
	} {
		err := env.Admin.Patch(ctx, podOf(ctx, Default, attempt.pod), client.RawPatch(types.JSONPatchType, []byte(attempt.patch)), client.DryRunAll)
		Expect(err).To(MatchError(MatchRegexp(attempt.want)), "%s: %s", attempt.pod, attempt.patch)
	}
	Expect(env.Admin.Patch(ctx, podOf(ctx, Default, "group-0"), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"team":"ml"}}}`)))).To(Succeed())
}

// expectPodsAdopted waits until the pods that run are a gang, and the one that waits is queued.
func expectPodsAdopted(ctx context.Context, want []types.UID) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		for _, name := range []string{"group-0", "group-1", singleOfKueue} {
			pod := podOf(ctx, g, name)
			g.Expect(pod.Labels).To(And(HaveKeyWithValue(apis.PodGroupMemberLabel, apis.PodGroupMemberValue), Not(HaveKey(apis.KueueManagedKey))), name)
			g.Expect(pod.Finalizers).To(BeEmpty(), name)
		}
		var w kueue.Workload
		g.Expect(env.Admin.Get(ctx, client.ObjectKey{Namespace: namespace, Name: groupOfKueue}, &w)).To(Succeed())
		g.Expect(w.Annotations).To(And(HaveKeyWithValue(apis.PodGroupKey, "kueue.group"), HaveKey(apis.AdoptedAnnotation)))
		g.Expect(quotaworkload.IsTrue(&w, kueue.WorkloadAdmitted)).To(BeTrue())
		var list kueue.WorkloadList
		g.Expect(env.Admin.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabels{apis.PodGroupKey: "pod.single"})).To(Succeed())
		g.Expect(list.Items).To(HaveLen(1))
		g.Expect(quotaworkload.HoldsQuota(&list.Items[0])).To(BeFalse())
	}).WithContext(ctx).Should(Succeed())
	Expect(runningPods(ctx, Default, apis.PodGroupNameLabel, groupOfKueue)).To(Equal(want), "pods of the group were replaced")
}

// expectGroupEvicts evicts the group, whose pods wait when they are recreated.
func expectGroupEvicts(ctx context.Context) {
	GinkgoHelper()
	By("evicting a group of pods that Kueue has started")
	setActive := func(active bool) {
		w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: groupOfKueue}}
		Expect(env.Admin.Patch(ctx, w, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"active":%t}}`, active)))).To(Succeed())
	}
	setActive(false)
	Eventually(func(g Gomega) {
		var list corev1.PodList
		g.Expect(env.Admin.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabels{apis.PodGroupNameLabel: groupOfKueue})).To(Succeed())
		g.Expect(list.Items).To(BeEmpty())
		g.Expect(reserved(ctx, g)).To(Equal("17"))
	}).WithContext(ctx).Should(Succeed())
	for _, name := range []string{"group-2", "group-3"} {
		Expect(env.Admin.Create(ctx, newPod(name, groupOfKueue))).To(Succeed())
	}
	Eventually(func(g Gomega) {
		var w kueue.Workload
		g.Expect(env.Admin.Get(ctx, client.ObjectKey{Namespace: namespace, Name: groupOfKueue}, &w)).To(Succeed())
		g.Expect(quotaworkload.HoldsQuota(&w)).To(BeFalse())
		g.Expect(w.Annotations).NotTo(HaveKey(apis.AdoptedAnnotation))
		g.Expect(w.Spec.PodSets).To(ConsistOf(HaveField("Count", int32(2))))
	}).WithContext(ctx).Should(Succeed())
	for _, name := range []string{"group-2", "group-3", singleOfKueue} {
		pod := podOf(ctx, Default, name)
		Expect(pod.Spec.SchedulingGates).NotTo(BeEmpty(), name)
		Expect(env.Admin.Delete(ctx, pod)).To(Succeed())
	}
}
