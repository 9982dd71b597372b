package gang_test

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	schedulingv1alpha2 "k8s.io/api/scheduling/v1alpha2"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
)

// newOwn returns a JobSet whose pods name a PodGroup of its user.
func newOwn(name, group string, pods int32) *jobsetapi.JobSet {
	js := asGang(newJobSet(name, role{name: "workers", replicas: 1, pods: pods}))
	js.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &group}
	return js
}

// makeGroup creates a PodGroup of a user, and deletes it at the end of the spec.
func makeGroup(ctx context.Context, name string, pods int32) {
	GinkgoHelper()
	group := &schedulingv1alpha2.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	group.Spec.SchedulingPolicy.Gang = &schedulingv1alpha2.GangSchedulingPolicy{MinCount: pods}
	Expect(env.Admin.Create(ctx, group)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) { Expect(client.IgnoreNotFound(env.Admin.Delete(ctx, group))).To(Succeed()) }, NodeTimeout(patience))
}

// suspend sets spec.suspend as the user.
func suspend(ctx context.Context, js *jobsetapi.JobSet, wish bool) {
	GinkgoHelper()
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"suspend":`+map[bool]string{true: "true", false: "false"}[wish]+`}}`))
	Expect(env.Admin.Patch(ctx, js, patch)).To(Succeed())
}

// resize gives each Job of the only ReplicatedJob so many pods.
func resize(ctx context.Context, js *jobsetapi.JobSet, pods int32) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if err := env.Admin.Get(ctx, client.ObjectKeyFromObject(js), js); err != nil {
			return err
		}
		spec := &js.Spec.ReplicatedJobs[0].Template.Spec
		spec.Parallelism, spec.Completions = &pods, &pods
		return env.Admin.Update(ctx, js)
	})
}

// succeed makes a JobSet succeed.
func succeed(ctx context.Context, js *jobsetapi.JobSet) {
	GinkgoHelper()
	end(ctx, js)
	Eventually(func(g Gomega) {
		g.Expect(env.Admin.Get(ctx, client.ObjectKeyFromObject(js), js)).To(Succeed())
		g.Expect(js.Status.TerminalState).To(Equal(string(jobset.JobSetCompleted)))
	}).WithContext(ctx).Should(Succeed())
}

// end makes all pods of a JobSet succeed.
func end(ctx context.Context, js *jobsetapi.JobSet) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		for _, pod := range podsOf(ctx, g, js) {
			if pod.Status.Phase == corev1.PodSucceeded {
				continue
			}
			g.Expect(pod.Status.Phase).To(Equal(corev1.PodRunning))
			pod.Status.Phase = corev1.PodSucceeded
			g.Expect(env.Admin.Status().Update(ctx, &pod)).To(Succeed())
		}
	}).WithContext(ctx).Should(Succeed())
}

var _ = Describe("The owner of a waiting gang reads", func() {
	It("that the user-created PodGroup does not exist", func(ctx SpecContext) {
		js := newOwn("absent", "absent", 4)
		submit(ctx, js)
		expectCondition(ctx, js, "GangScheduling", metav1.ConditionFalse, `the pods of gang "absent" wait for a PodGroup of this name, which does not exist`)
		makeGroup(ctx, "absent", 4)
		Eventually(func(g Gomega) {
			for _, pod := range podsOf(ctx, g, js) {
				g.Expect(pod.Spec.NodeName).NotTo(BeEmpty())
			}
		}).WithContext(ctx).Should(Succeed())
		expectCondition(ctx, js, "GangScheduling", metav1.ConditionTrue, `is in the user-created gang "absent"`)
	}, SpecTimeout(patience))

	It("that the gang has fewer pods than its PodGroup requires", func(ctx SpecContext) {
		makeGroup(ctx, "five", 5)
		js := newOwn("four", "five", 4)
		submit(ctx, js)
		expectCondition(ctx, js, "GangScheduling", metav1.ConditionFalse, `only 4 of the 5 pods exist that PodGroup "five" requires`)
	}, SpecTimeout(patience))

	It("that no nodes fit the gang, until nodes are added", func(ctx SpecContext) {
		first := asGang(newJobSet("first", role{name: "workers", replicas: 2, pods: 4}))
		submit(ctx, first)
		expectBound(ctx, first, "first-all-r0: 8 of 8")
		js := asGang(newJobSet("second", role{name: "workers", replicas: 2, pods: 4}))
		submit(ctx, js)
		expectCondition(ctx, js, "GangScheduling", metav1.ConditionFalse, `8 of 8 pods of gang "second-all-r0-`)
		expectCondition(ctx, js, "GangScheduling", metav1.ConditionFalse, "pod group is unschedulable")
		expectCondition(ctx, js, "GangScheduling", metav1.ConditionFalse, "add nodes that all of them fit on at once, or suspend the JobSet")
		expectCondition(ctx, js, "StageAdmitted", metav1.ConditionTrue, `; but 8 of 8 pods of gang "second-all-r0-`)
		expectTold(ctx, js, "GangBlocked", "pod group is unschedulable")

		By("finishing both, one after the other")
		succeed(ctx, first)
		expectBound(ctx, js, "second-all-r0: 8 of 8")
		expectCondition(ctx, js, "GangScheduling", metav1.ConditionTrue, "1 gang")
		succeed(ctx, js)
	}, SpecTimeout(patience))

	It("that the scheduler reports nothing", func(ctx SpecContext) {
		js := in("koordinator", asGang(newJobSet("silent", role{name: "workers", replicas: 1, pods: 2})))
		submit(ctx, js)
		expectCondition(ctx, js, "GangScheduling", metav1.ConditionFalse, `the scheduler "koord-scheduler" reports nothing about its PodGroup`)
	}, SpecTimeout(patience))

	It("that a PodGroup of another owner has its name", func(ctx SpecContext) {
		js := in("held", asGang(newJobSet("taken", role{name: "workers", replicas: 1, pods: 4})))
		submit(ctx, js)
		group := "taken-all-r0-" + string(js.UID[:8]) + string(js.UID[9:13])
		makeGroup(ctx, group, 2)
		Eventually(func(g Gomega) {
			g.Expect(env.Admin.Get(ctx, client.ObjectKeyFromObject(js), js)).To(Succeed())
			js.Labels[apis.QueueLabel] = "ml"
			g.Expect(env.Admin.Update(ctx, js)).To(Succeed())
		}).WithContext(ctx).Should(Succeed())
		expectBound(ctx, js, "taken-all-r0: 4 of 4")
		expectCondition(ctx, js, "GangScheduling", metav1.ConditionTrue, `PodGroup "`+group+`" was not created by Tranche, and stays unchanged`)
		var kept schedulingv1alpha2.PodGroup
		Expect(env.Admin.Get(ctx, client.ObjectKey{Namespace: namespace, Name: group}, &kept)).To(Succeed())
		Expect(kept.Spec.SchedulingPolicy.Gang.MinCount).To(BeEquivalentTo(2))
		Expect(kept.OwnerReferences).To(BeEmpty())
	}, SpecTimeout(patience))
})

// refuseGroups makes the API server refuse the PodGroups of a ReplicatedJob, as the webhook of a scheduler may. The caller has to lift it.
func refuseGroups(ctx context.Context, js, replicatedJob, why string) (lift func(context.Context)) {
	GinkgoHelper()
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "refuses-groups-of-" + js}}
	policy.Spec = admissionv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
			Operations: []admissionv1.OperationType{admissionv1.Create},
			Rule:       admissionv1.Rule{APIGroups: []string{"scheduling.k8s.io"}, APIVersions: []string{"*"}, Resources: []string{"podgroups"}},
		}}}},
		Validations: []admissionv1.Validation{{Expression: fmt.Sprintf("!object.metadata.name.startsWith(%q)", js+"-"+replicatedJob), Message: why}},
	}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: policy.Name}}
	binding.Spec = admissionv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: policy.Name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
	}
	objects := []client.Object{binding, policy}
	lift = func(ctx context.Context) {
		for _, object := range objects {
			Expect(client.IgnoreNotFound(env.Admin.Delete(ctx, object))).To(Succeed())
		}
	}
	DeferCleanup(func(ctx SpecContext) { lift(ctx) }, NodeTimeout(patience))
	for _, object := range objects {
		Expect(env.Admin.Create(ctx, object)).To(Succeed())
	}
	Eventually(func() error {
		group := &schedulingv1alpha2.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: js + "-" + replicatedJob}}
		group.Spec.SchedulingPolicy.Gang = &schedulingv1alpha2.GangSchedulingPolicy{MinCount: 1}
		return env.Admin.Create(ctx, group, client.DryRunAll)
	}).WithContext(ctx).Should(MatchError(ContainSubstring(why)))
	return lift
}

var _ = Describe("A gang of a stage", func() {
	It("whose PodGroup is rejected blocks its stage, and no other stage", func(ctx SpecContext) {
		const why = "the queue is closed"
		lift := refuseGroups(ctx, "closed", "workers", why)
		js := newJobSet("closed", role{name: "driver", replicas: 1, pods: 2, gang: jobsetapi.GangModeGang}, role{name: "workers", replicas: 2, pods: 4, gang: jobsetapi.GangModeGang})
		js.Spec.StartupPolicy = &jobsetapi.StartupPolicy{StartupPolicyOrder: jobset.InOrder}
		submit(ctx, js)
		expectCondition(ctx, js, "GangScheduling", metav1.ConditionFalse, `stage "workers" starts no Jobs until the objects of its gangs exist, which the API server rejects`)
		expectCondition(ctx, js, "GangScheduling", metav1.ConditionFalse, why)
		Expect(bound(ctx, Default, js)).To(ConsistOf("closed-driver-0-r0: 2 of 2"))

		By("terminating the pods of the first stage")
		end(ctx, js)
		Eventually(func(g Gomega) {
			var stages kueue.WorkloadList
			g.Expect(env.Admin.List(ctx, &stages, client.InNamespace(namespace), client.MatchingLabels{apis.JobSetLabel: js.Name, apis.StageLabel: "driver"})).To(Succeed())
			g.Expect(stages.Items).To(HaveLen(1))
			g.Expect(apimeta.IsStatusConditionTrue(stages.Items[0].Status.Conditions, kueue.WorkloadFinished)).To(BeTrue(), "it gives back what it holds")
		}).WithContext(ctx).Should(Succeed())
		awaitHandled(ctx)
		Expect(bound(ctx, Default, js)).To(ConsistOf("closed-driver-0-r0: 2 of 2"), "no pod of the workers has been created")

		By("resuming the queue")
		lift(ctx)
		Eventually(func(g Gomega) {
			g.Expect(bound(ctx, g, js)).To(ContainElement("closed-workers-1-r0: 8 of 8"))
		}).WithContext(ctx).WithTimeout(2 * patience).Should(Succeed())
		expectCondition(ctx, js, "GangScheduling", metav1.ConditionTrue, "2 gangs")
	}, SpecTimeout(3*patience))

	It("whose API is removed while the manager runs restarts the manager, and reports that it is not placed as a whole", func(ctx SpecContext) {
		By("knowing the API, as a manager that has just started does not")
		served := in("coscheduling", asGang(newJobSet("served", role{name: "workers", replicas: 1, pods: 2})))
		submit(ctx, served)
		expectGroups(ctx, served, coscheduling, fieldsOf("minMember"), "served-all-r0: 2")
		By("losing it")
		crd := &unstructured.Unstructured{}
		crd.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
		crd.SetName("podgroups.scheduling.x-k8s.io")
		Expect(env.Admin.Delete(ctx, crd)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) {
			Expect(env.InstallPodGroups("scheduling.x-k8s.io")).To(Succeed())
			startAnew(ctx)
		}, NodeTimeout(patience))
		Eventually(func() error { return env.Admin.Get(ctx, client.ObjectKeyFromObject(crd), crd) }).WithContext(ctx).ShouldNot(Succeed())
		js := in("coscheduling", asGang(newJobSet("unserved", role{name: "workers", replicas: 1, pods: 2})))
		submit(ctx, js)
		expectCondition(ctx, js, "GangScheduling", metav1.ConditionFalse, "ask your administrator to")
		startAnew(ctx)
		expectCondition(ctx, js, "GangScheduling", metav1.ConditionFalse, "the API server has no PodGroups of scheduling.x-k8s.io/v1alpha1; ask your administrator to install")
		Eventually(func(g Gomega) { g.Expect(podsOf(ctx, g, js)).To(HaveLen(2)) }).WithContext(ctx).Should(Succeed())
	}, SpecTimeout(3*patience))

	It("is placed when the stage that it depends on has succeeded", func(ctx SpecContext) {
		js := newJobSet("depends", role{name: "load", replicas: 1, pods: 2, gang: jobsetapi.GangModeGang}, role{name: "train", replicas: 2, pods: 4, gang: jobsetapi.GangModeGang})
		js.Spec.ReplicatedJobs[1].DependsOn = []jobset.DependsOn{{Name: "load", Status: jobset.DependencyComplete}}
		submit(ctx, js)
		expectBound(ctx, js, "depends-load-0-r0: 2 of 2")
		Expect(podGroups(ctx, Default, js)).To(HaveLen(1), "that of the next stage is made when it is admitted")
		end(ctx, js)
		Eventually(func(g Gomega) {
			g.Expect(bound(ctx, g, js)).To(ContainElement("depends-train-1-r0: 8 of 8"))
		}).WithContext(ctx).Should(Succeed())
	}, SpecTimeout(patience))

	It("can be resized while its JobSet is suspended", func(ctx SpecContext) {
		js := asGang(newJobSet("resized", role{name: "workers", replicas: 2, pods: 2}))
		submit(ctx, js)
		expectBound(ctx, js, "resized-all-r0: 4 of 4")
		before := podGroups(ctx, Default, js)[0]
		Expect(resize(ctx, js, 1)).To(MatchError(ContainSubstring("if the scheduler of Kubernetes places it")))

		By("suspending it, and resizing it before its pods have terminated")
		hold(ctx, js, "workers", "example.com/slow")
		DeferCleanup(func(ctx SpecContext) { hold(ctx, js, "workers") }, NodeTimeout(patience))
		suspend(ctx, js, true)
		Expect(resize(ctx, js, 5)).To(Succeed())
		hold(ctx, js, "workers")
		Eventually(func(g Gomega) { g.Expect(podGroups(ctx, g, js)).To(BeEmpty()) }).WithContext(ctx).Should(Succeed())
		suspend(ctx, js, false)
		expectBound(ctx, js, "resized-all-r0: 10 of 10")
		after := podGroups(ctx, Default, js)
		Expect(after).To(HaveLen(1))
		Expect(after[0].UID).NotTo(Equal(before.UID))
		Expect(after[0].Spec.SchedulingPolicy.Gang.MinCount).To(BeEquivalentTo(10))
		expectCondition(ctx, js, "GangScheduling", metav1.ConditionTrue, "1 gang")
	}, SpecTimeout(patience))
})

// expectTold waits until an Event is recorded on a JobSet.
func expectTold(ctx context.Context, js *jobsetapi.JobSet, reason, text string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		var list eventsv1.EventList
		g.Expect(env.Admin.List(ctx, &list, client.InNamespace(js.Namespace))).To(Succeed())
		var notes []string
		for _, e := range list.Items {
			if e.Regarding.UID == js.UID && e.Reason == reason {
				notes = append(notes, e.Note)
			}
		}
		g.Expect(notes).To(ContainElement(ContainSubstring(text)))
	}).WithContext(ctx).Should(Succeed())
}
