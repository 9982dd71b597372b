package podgroup_test

import (
	"context"
	"fmt"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
)

// The examples of Koordinator: a job has two roles, A and B, which are one GangGroup, or two.
var _ = Describe("Two roles of Koordinator", func() {
	const groups = apis.KoordinatorPrefix + "groups"

	It("in one GangGroup start together, across namespaces and queues, and quota that fits only one role is left to others", func(ctx SpecContext) {
		a, b := newTeam(ctx, "5", "0"), newTeam(ctx, "4", "0")
		together := fmt.Sprintf(`["%s/gang-a", "%s/gang-b"]`, a.name, b.name)
		groupA := a.podGroup(ctx, koordinator, "gang-a", map[string]any{"minMember": int64(5)}, map[string]string{groups: together})
		for i := range 5 {
			create(ctx, a.member(fmt.Sprintf("a-%d", i), 0).label(apis.KoordinatorLabel, "gang-a"))
		}
		stranger := fmt.Sprintf("peer gang %q of another namespace does not exist or lists other gangs", b.name+"/gang-b")
		expectNoted(ctx, groupA, stranger)
		groupB := b.podGroup(ctx, koordinator, "gang-b", map[string]any{"minMember": int64(4)}, map[string]string{groups: fmt.Sprintf("[%q]", b.name+"/gang-b")})
		annotate(ctx, groupB, groups, together)
		create(ctx, b.member("other", 0).koordinator("name", "other", "min-available", "1"))
		b.expectPods(ctx, "other", "other=running")
		for i := range 4 {
			create(ctx, b.member(fmt.Sprintf("b-%d", i), 0).label(apis.KoordinatorLabel, "gang-b"))
		}
		expectNoted(ctx, groupB, "3 of 4 free")
		a.expectPods(ctx, "a-", "a-0=gated", "a-1=gated", "a-2=gated", "a-3=gated", "a-4=gated")
		a.expectUsage(ctx, "cpu", 0)
		create(ctx, a.member("guest", 0).koordinator("name", "guest", "min-available", "1"))
		a.expectPods(ctx, "guest", "guest=running")

		By("fitting both")
		b.end(ctx, corev1.PodSucceeded, "other")
		b.expectUsage(ctx, "cpu", 0)
		a.end(ctx, corev1.PodSucceeded, "guest")
		a.expectPods(ctx, "a-", "a-0=running", "a-1=running", "a-2=running", "a-3=running", "a-4=running")
		b.expectPods(ctx, "b-", "b-0=running", "b-1=running", "b-2=running", "b-3=running")

		By("losing a member, when the rule does not apply")
		Expect(env.Admin.Delete(ctx, a.member("a-0", 0).Pod)).To(Succeed())
		a.expectPods(ctx, "a-", "a-1=running", "a-2=running", "a-3=running", "a-4=running")
		create(ctx, a.member("a-9", 0).label(apis.KoordinatorLabel, "gang-a"))
		a.expectPods(ctx, "a-", "a-1=running", "a-2=running", "a-3=running", "a-4=running", "a-9=running")
	}, SpecTimeout(specTimeout))

	It("are independent once they have started, and a recreated role starts while the other role runs", func(ctx SpecContext) {
		t := newTeam(ctx, "4", "0")
		together := fmt.Sprintf(`["%s/gang-a", "%s/gang-b"]`, t.name, t.name)
		role := func(name string) *appsv1.ReplicaSet {
			return t.replicas(name, 2, t.member("", 0).koordinator("name", name, "min-available", "2", "groups", together))
		}
		a, b := role("gang-a"), role("gang-b")
		t.submit(ctx, a)
		t.submit(ctx, b)
		t.expectCount(ctx, "gang-a", string(corev1.PodRunning), 2)
		t.expectCount(ctx, "gang-b", string(corev1.PodRunning), 2)
		ofGang := func(g Gomega, name string) []kueue.Workload {
			return slices.DeleteFunc(t.workloads(ctx, g), func(w kueue.Workload) bool { return w.Annotations[apis.PodGroupKey] != "lightweight."+name })
		}
		first := ofGang(Default, "gang-b")
		Expect(first).To(HaveLen(1))

		uids := func(role string) (all []types.UID) {
			for _, p := range t.pods(ctx, Default) {
				if p.Labels["made-by"] == role {
					all = append(all, p.UID)
				}
			}
			return all
		}
		before := uids("gang-a")

		By("evicting one of them, which is admitted again")
		activate := func(active bool) {
			patch := client.RawPatch(types.MergePatchType, []byte(fmt.Sprintf(`{"spec":{"active":%t}}`, active)))
			Expect(env.Admin.Patch(ctx, &first[0], patch)).To(Succeed())
		}
		activate(false)
		t.expectCount(ctx, "gang-b", "gated", 2)
		activate(true)
		t.expectCount(ctx, "gang-b", string(corev1.PodRunning), 2)
		Expect(uids("gang-a")).To(ConsistOf(before), "the pods of the other role run on")

		By("recreating the other role")
		withdraw(ctx, a)
		Eventually(func(g Gomega) { g.Expect(ofGang(g, "gang-a")).To(BeEmpty()) }).WithContext(ctx).Should(Succeed())
		t.submit(ctx, role("gang-a"))
		t.expectCount(ctx, "gang-a", string(corev1.PodRunning), 2)
	}, SpecTimeout(specTimeout))

	It("in two GangGroups start independently", func(ctx SpecContext) {
		t := newTeam(ctx, "5", "0")
		member := func(name, gang string) pod {
			return t.member(name, 0).koordinator("name", gang, "min-available", "2", "total-number", "2", "mode", "Strict", "groups", "", "waiting-time", "3600s")
		}
		create(ctx, member("a-0", "gang-a"), member("b-0", "gang-b"), member("a-1", "gang-a"))
		t.expectPods(ctx, "", "a-0=running", "a-1=running", "b-0=gated")
		create(ctx, member("b-1", "gang-b"))
		t.expectPods(ctx, "b-", "b-0=running", "b-1=running")
	}, SpecTimeout(specTimeout))
})

var _ = Describe("Pods that name a queue and no gang", func() {
	It("wait as gangs of one, and those of a StatefulSet get their quota again when they are recreated", func(ctx SpecContext) {
		t := newTeam(ctx, "2", "0")
		create(ctx, t.member("alone", 0))
		t.expectPods(ctx, "", "alone=running")
		t.expectUsage(ctx, "cpu", 1)
		single := t.workloads(ctx, Default)
		Expect(single).To(HaveLen(1))
		Expect(single[0].Name).To(HavePrefix("pod-alone-"))
		Expect(single[0].Spec.PodSets).To(ConsistOf(HaveField("Count", int32(1))))
		template := t.member("", 0)
		template.Labels["app"], template.Spec.RestartPolicy = "web", corev1.RestartPolicyAlways
		set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: t.name, Name: "web"}, Spec: appsv1.StatefulSetSpec{
			Replicas: new(int32(2)), PodManagementPolicy: appsv1.ParallelPodManagement, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: template.Labels}, Spec: template.Spec},
		}}
		Expect(env.Admin.Create(ctx, set)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) {
			Expect(client.IgnoreNotFound(env.Admin.Delete(ctx, set, client.PropagationPolicy("Background")))).To(Succeed())
		}, NodeTimeout(patience))
		t.expectUsage(ctx, "cpu", 2)
		t.end(ctx, corev1.PodSucceeded, "alone")
		t.expectFinished(ctx, single[0].Name)
		t.expectPods(ctx, "web-", "web-0=running", "web-1=running")
		t.expectUsage(ctx, "cpu", 2)
		before := t.pods(ctx, Default)
		Expect(env.Admin.Delete(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: t.name, Name: "web-0"}})).To(Succeed())
		Eventually(func(g Gomega) {
			for _, pod := range t.pods(ctx, g) {
				g.Expect(pod.Name == "web-0" && slices.ContainsFunc(before, func(old corev1.Pod) bool { return old.UID == pod.UID })).To(BeFalse())
			}
		}).WithContext(ctx).Should(Succeed())
		t.expectPods(ctx, "web-", "web-0=running", "web-1=running")
		t.expectUsage(ctx, "cpu", 2)
		By("giving a pod that is recreated with other requests the quota of the one before it")
		Expect(env.Admin.Patch(ctx, set, client.RawPatch(types.JSONPatchType, []byte(`[{"op":"replace","path":"/spec/replicas","value":1},
			{"op":"replace","path":"/spec/template/spec/containers/0/resources","value":{"requests":{"cpu":"2"}}}]`)))).To(Succeed())
		t.expectPods(ctx, "web-", "web-0=running")
		t.expectUsage(ctx, "cpu", 2)
		Expect(env.Admin.Delete(ctx, set, client.PropagationPolicy("Background"))).To(Succeed())
		t.expectUsage(ctx, "cpu", 0)
	}, SpecTimeout(specTimeout))

	It("are in no group that has the name of the pod", func(ctx SpecContext) {
		t := newTeam(ctx, "2", "0")
		create(ctx, t.member("same", 0))
		t.expectPods(ctx, "", "same=running")
		create(ctx, t.member("other", 0).label(apis.PodGroupNameLabel, "same").annotate(apis.PodGroupTotalCountAnnotation, "1"))
		t.expectPods(ctx, "", "other=running", "same=running")
		t.expectUsage(ctx, "cpu", 2)
		create(ctx, t.member("later", 0))
		t.expectPods(ctx, "later", "later=gated")

		By("evicting the group")
		group := t.workload(ctx, Default, "same")
		Expect(env.Admin.Patch(ctx, group, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"active":false}}`)))).To(Succeed())
		t.expectPods(ctx, "", "later=running", "same=running")
	}, SpecTimeout(specTimeout))
})

// Koordinator does not prevent this deadlock: gangs that get their pods one by one, and wait for each other forever.
var _ = Describe("Gangs that reserve their quota in parts", func() {
	gang := func(ctx context.Context, t team, name string, pods int, settings ...string) {
		for i := range pods {
			member := t.member(fmt.Sprintf("%s-%d", name, i), 0).koordinator("name", name, "min-available", fmt.Sprint(pods), "mode", "NonStrict")
			create(ctx, member.koordinator(settings...))
		}
	}
	all := func(name, how string, pods int) []string {
		var want []string
		for i := range pods {
			want = append(want, fmt.Sprintf("%s-%d=%s", name, i, how))
		}
		return want
	}

	It("all finish: three gangs of five pods each on quota for ten", func(ctx SpecContext) {
		t := newTeam(ctx, "10", "0")
		gang(ctx, t, "x", 5)
		t.expectPods(ctx, "x-", all("x", "running", 5)...)
		gang(ctx, t, "y", 5)
		gang(ctx, t, "z", 5)
		for len(t.standing(ctx, Default, "")) > 0 {
			for _, name := range []string{"x", "y", "z"} {
				if standing := t.standing(ctx, Default, name); len(standing) == 0 || standing[0] != name+"-0=running" {
					continue
				}
				t.expectPods(ctx, name, all(name, "running", 5)...)
				for i := range 5 {
					t.end(ctx, corev1.PodSucceeded, fmt.Sprintf("%s-%d", name, i))
				}
				for i := range 5 {
					Expect(env.Admin.Delete(ctx, t.member(fmt.Sprintf("%s-%d", name, i), 0).Pod)).To(Succeed())
				}
			}
		}
		t.expectUsage(ctx, "cpu", 0)
	}, SpecTimeout(specTimeout))

	It("keep the quota that they have reserved, and release it after their waiting time", func(ctx SpecContext) {
		t := newTeam(ctx, "4", "0")
		create(ctx, t.member("first-0", 0).koordinator("name", "first", "min-available", "1"), t.member("first-1", 0).koordinator("name", "second", "min-available", "1"))
		t.expectPods(ctx, "first-", "first-0=running", "first-1=running")
		gang(ctx, t, "x", 4, "waiting-time", "3s")
		t.expectUsage(ctx, "cpu", 4)
		t.expectTold(ctx, "Pod", "x-0", "The gang released its quota: it did not start within")
		t.expectPods(ctx, "x-", all("x", "gated", 4)...)
		Expect(t.timedOut(ctx, Default)).To(ConsistOf("x-0", "x-1", "x-2", "x-3"))
		By("being tried again")
		t.end(ctx, corev1.PodSucceeded, "first-0", "first-1")
		t.expectPods(ctx, "x-", all("x", "running", 4)...)
		Expect(t.timedOut(ctx, Default)).To(BeEmpty(), "Koordinator places no pod that has timed out")
		t.expectUsage(ctx, "cpu", 4)
	}, SpecTimeout(specTimeout))
})
