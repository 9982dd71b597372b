package integration_test

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
)

var _ = Describe("The guards of a namespace with a LocalQueue named default", func() {
	var namespace string
	var tenant client.Client
	unlabelled := func() *jobsetapi.JobSet {
		js := newQueued(namespace, "free", "a", "b")
		js.Labels = nil
		return js
	}

	BeforeEach(func(ctx SpecContext) {
		namespace = newTenant(ctx)
		awaitGuards(ctx, namespace)
		tenant = env.clientAs(alice)
	}, NodeTimeout(patience))

	It("queue and hold a JobSet that names no queue, in the same request, in whatever order they are evaluated", func(ctx SpecContext) {
		Expect(tenant.Create(ctx, unlabelled(), client.DryRunAll)).To(Succeed(), "before there is a LocalQueue")
		Expect(env.adminClient.Create(ctx, &kueue.LocalQueue{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "default"}, Spec: kueue.LocalQueueSpec{ClusterQueue: "any"},
		})).To(Succeed())
		Eventually(func(g Gomega) {
			js := unlabelled()
			g.Expect(tenant.Create(ctx, js, client.DryRunAll)).To(Succeed())
			g.Expect(js.Labels).To(HaveKeyWithValue(apis.QueueLabel, "default"))
		}).WithContext(ctx).Should(Succeed())
		// The API server puts its policies into another order, about once a second, when one of them has changed.
		Consistently(func(g Gomega) {
			touch(ctx, g)
			for _, labels := range []map[string]string{nil, {"team": "ml"}} {
				js := unlabelled()
				js.Labels = labels
				js.Annotations = map[string]string{apis.GangAnnotation: "Gang"}
				g.Expect(tenant.Create(ctx, js, client.DryRunAll)).To(Succeed())
				expectHeld(g, js)
				g.Expect(js.Spec.ReplicatedJobs[0].Template.Annotations).To(HaveKeyWithValue(apis.GangGroupAnnotation, "all"))
			}
		}).WithContext(ctx).WithTimeout(6 * time.Second).WithPolling(300 * time.Millisecond).Should(Succeed())
		js := unlabelled()
		Expect(tenant.Create(ctx, js)).To(Succeed())
		expectHeld(NewWithT(GinkgoT()), js)

		By("not changing JobSets that name another queue or another controller")
		named := newQueued(namespace, "named", "a")
		Expect(tenant.Create(ctx, named, client.DryRunAll)).To(Succeed())
		Expect(named.Labels).To(HaveKeyWithValue(apis.QueueLabel, "main"))
		foreign := unlabelled()
		foreign.Name = "foreign"
		foreign.Spec.ManagedBy = new("example.com/controller")
		Expect(tenant.Create(ctx, foreign, client.DryRunAll)).To(Succeed())
		Expect(foreign.Labels).NotTo(HaveKey(apis.QueueLabel))
		Expect(ptr.Deref(foreign.Spec.Suspend, false)).To(BeFalse())
	}, SpecTimeout(patience))

	It("queue and gate a pod that names no queue, in the same request, in whatever order they are evaluated", func(ctx SpecContext) {
		Expect(env.adminClient.Create(ctx, &kueue.LocalQueue{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "default"}, Spec: kueue.LocalQueueSpec{ClusterQueue: "any"},
		})).To(Succeed())
		member := func(change func(*corev1.Pod)) *corev1.Pod {
			pod := newPod(namespace, "member")
			delete(pod.Labels, apis.QueueLabel)
			change(pod)
			return pod
		}
		Eventually(func(g Gomega) {
			pod := member(label(apis.PodGroupNameLabel, "g"))
			g.Expect(tenant.Create(ctx, pod, client.DryRunAll)).To(Succeed())
			g.Expect(pod.Labels).To(HaveKeyWithValue(apis.QueueLabel, "default"))
		}).WithContext(ctx).Should(Succeed())
		Consistently(func(g Gomega) {
			touch(ctx, g)
			for _, change := range []func(*corev1.Pod){
				label(apis.PodGroupNameLabel, "g"), label(apis.CoschedulingLabel, "g"), label(apis.KoordinatorLabel, "g"), label(apis.KoordinatorOldPrefix+"name", "g"),
				annotation(apis.PodGroupNameLabel, "g"), annotation(apis.KoordinatorPrefix+"name", "g"), annotation(apis.GroupNameAnnotation, "g"),
				func(pod *corev1.Pod) { pod.Labels = nil; annotation(apis.GroupNameAnnotation, "g")(pod) },
				func(*corev1.Pod) {}, func(pod *corev1.Pod) { pod.Labels, pod.Annotations = nil, nil }, label(apis.PodSetLabel, "main"),
				func(pod *corev1.Pod) { pod.Name, pod.GenerateName = "", "web-" },
				func(pod *corev1.Pod) {
					pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "agent", UID: "x", Controller: new(true)}}
				},
				func(pod *corev1.Pod) {
					label(apis.PodGroupNameLabel, "g")(pod)
					pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/mine"}}
				},
			} {
				pod := member(change)
				g.Expect(tenant.Create(ctx, pod, client.DryRunAll)).To(Succeed())
				g.Expect(pod.Labels).To(And(HaveKeyWithValue(apis.QueueLabel, "default"), HaveKeyWithValue(apis.PodGroupMemberLabel, apis.PodGroupMemberValue)))
				g.Expect(gatesOf(pod)).To(ContainElement(apis.PodAdmissionGate))
			}
		}).WithContext(ctx).WithTimeout(3 * time.Second).WithPolling(300 * time.Millisecond).Should(Succeed())
		pod := member(label(apis.PodGroupNameLabel, "g"))
		Expect(tenant.Create(ctx, pod)).To(Succeed())
		expectAnswer(tenant.Patch(ctx, pod.DeepCopy(), jsonPatch(`[{"op":"remove","path":"/spec/schedulingGates"}]`)),
			"spec.schedulingGates: only Tranche's manager removes kueue.x-k8s.io/admission")

		By("not changing pods that name another queue, and those of a Job or another controller, which can wait itself")
		named := member(label(apis.PodGroupNameLabel, "g"))
		label(apis.QueueLabel, "main")(named)
		named.Name = "named"
		Expect(tenant.Create(ctx, named, client.DryRunAll)).To(Succeed())
		Expect(named.Labels).To(HaveKeyWithValue(apis.QueueLabel, "main"))
		Expect(gatesOf(named)).To(ConsistOf(apis.PodAdmissionGate))
		foreign := []metav1.OwnerReference{{APIVersion: "ray.io/v1", Kind: "RayCluster", Name: "ray", UID: "x", Controller: new(true)}}
		ofRay := member(func(pod *corev1.Pod) { pod.Name, pod.OwnerReferences = "of-ray", foreign })
		Expect(tenant.Create(ctx, ofRay, client.DryRunAll)).To(Succeed())
		Expect(ofRay.Labels).NotTo(HaveKey(apis.QueueLabel))
		inGroup := member(func(pod *corev1.Pod) { pod.Name, pod.OwnerReferences = "in-group", foreign })
		label(apis.PodGroupNameLabel, "g")(inGroup)
		Expect(tenant.Create(ctx, inGroup, client.DryRunAll)).To(Succeed())
		Expect(inGroup.Labels).To(HaveKeyWithValue(apis.QueueLabel, "default"))
		ofJob := member(label(batchv1.ControllerUidLabel, "x"))
		ofJob.Name = "of-job"
		Expect(env.adminClient.Create(ctx, ofJob, client.DryRunAll)).To(Succeed())
		Expect(ofJob.Labels).NotTo(HaveKey(apis.QueueLabel))
		Expect(ofJob.Spec.SchedulingGates).To(BeEmpty())
	}, SpecTimeout(patience))

	It("do not change a JobSet or a pod of a group without a LocalQueue of that name", func(ctx SpecContext) {
		Expect(env.adminClient.Create(ctx, &kueue.LocalQueue{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "main"}, Spec: kueue.LocalQueueSpec{ClusterQueue: "any"},
		})).To(Succeed())
		js := unlabelled()
		Expect(tenant.Create(ctx, js, client.DryRunAll)).To(Succeed())
		Expect(js.Labels).To(BeEmpty())
		pod := newPod(namespace, "member")
		pod.Labels = map[string]string{apis.PodGroupNameLabel: "g"}
		Expect(tenant.Create(ctx, pod, client.DryRunAll)).To(Succeed())
		Expect(pod.Labels).NotTo(HaveKey(apis.QueueLabel))
		Expect(pod.Spec.SchedulingGates).To(BeEmpty())
		Expect(ptr.Deref(js.Spec.Suspend, false)).To(BeFalse())
		Expect(js.Spec.ReplicatedJobs[0].Template.Labels).NotTo(HaveKey(apis.HoldLabel))
	}, SpecTimeout(patience))
})

// expectHeld checks that a JobSet was created as a queued one.
func expectHeld(g Gomega, js *jobsetapi.JobSet) {
	g.Expect(js.Labels).To(HaveKeyWithValue(apis.QueueLabel, "default"))
	g.Expect(ptr.Deref(js.Spec.Suspend, false)).To(BeTrue())
	for _, r := range js.Spec.ReplicatedJobs {
		g.Expect(r.Template.Labels).To(HaveKeyWithValue(apis.HoldLabel, apis.HoldValue), r.Name)
	}
}

// touch changes a policy without changing its effect.
func touch(ctx context.Context, g Gomega) {
	policy := &admissionv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "tranche-hold-jobs"}}
	change := fmt.Appendf(nil, `{"metadata":{"annotations":{"touched":%q}}}`, rand.String(8))
	g.Expect(env.adminClient.Patch(ctx, policy, client.RawPatch(types.MergePatchType, change))).To(Succeed())
}
