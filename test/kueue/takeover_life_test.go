package kueue_test

import (
	"context"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/test/controlplane"
)

var _ = Describe("In a tree that was taken over", Ordered, ContinueOnFailure, func() {
	BeforeAll(func(ctx SpecContext) {
		Expect(env.Plane.RestartKueue(ctx, controlplane.KueueOptions{Settings: map[string]any{
			"integrations":     map[string]any{"frameworks": []string{"batch/job", "pod", "deployment", "statefulset"}},
			"waitForPodsReady": map[string]any{"timeout": "5s", "requeuingStrategy": map[string]any{"backoffBaseSeconds": 2, "backoffLimitCount": 1}},
		}})).To(Succeed())
		DeferCleanup(func(ctx SpecContext) {
			Expect(env.Plane.RestartKueue(ctx, controlplane.KueueOptions{})).To(Succeed())
		}, NodeTimeout(2*patience))
		startBeside(ctx)
		Expect(env.Admin.Create(ctx, &kueue.WorkloadPriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "taken-urgent"}, Value: 1000})).To(Succeed())
	}, NodeTimeout(2*patience))

	It("a Job is preempted and deactivated, and runs again", func(ctx SpecContext) {
		const queue = "taken-evictions"
		tenant(ctx, queue, 2, func(cq *kueue.ClusterQueue) {
			cq.Spec.Preemption = &kueue.ClusterQueuePreemption{WithinClusterQueue: kueue.PreemptionPolicyLowerPriority}
		})
		low := named(lasting(newJob(queue, 2), "600"), "low")
		Expect(env.Admin.Create(ctx, low)).To(Succeed())
		w := workloadOf(ctx, low)
		Eventually(read(ctx, w)).WithContext(ctx).Should(haveCondition(kueue.WorkloadPodsReady, metav1.ConditionTrue, ""))
		takeOver(ctx, queue)

		By("preempting it for a Job of a higher priority")
		urgent := named(newJob(queue, 2), "urgent")
		urgent.Labels[apis.PriorityClassLabel] = "taken-urgent"
		Expect(env.Admin.Create(ctx, urgent)).To(Succeed())
		Eventually(read(ctx, workloadOf(ctx, urgent))).WithContext(ctx).Should(haveCondition(kueue.WorkloadFinished, metav1.ConditionTrue, ""))
		awaitRunning(ctx, low, w, 2)
		Expect(w.Status.SchedulingStats.Evictions).To(ConsistOf(And(
			HaveField("Reason", kueue.WorkloadEvictedByPreemption), HaveField("Count", BeEquivalentTo(1)))))
		Expect(w).To(And(haveCondition(kueue.WorkloadEvicted, metav1.ConditionFalse, ""), haveCondition(kueue.WorkloadPreempted, metav1.ConditionFalse, "")))

		By("evicting it when it is deactivated, and not admitting it before it is active again")
		setActive(ctx, w, "false")
		Eventually(read(ctx, w)).WithContext(ctx).Should(haveCondition(kueue.WorkloadQuotaReserved, metav1.ConditionFalse, ""))
		Expect(w).To(haveCondition(kueue.WorkloadEvicted, metav1.ConditionTrue, kueue.WorkloadDeactivated))
		next := named(newJob(queue, 2), "next")
		Expect(env.Admin.Create(ctx, next)).To(Succeed())
		Eventually(read(ctx, workloadOf(ctx, next))).WithContext(ctx).Should(haveCondition(kueue.WorkloadFinished, metav1.ConditionTrue, ""))
		Expect(read(ctx, w)(NewGomega(Fail))).To(haveCondition(kueue.WorkloadQuotaReserved, metav1.ConditionFalse, ""))
		setActive(ctx, w, "true")
		awaitRunning(ctx, low, w, 2)
		handBack(ctx, queue)
		Expect(read(ctx, low)(NewGomega(Fail)).Status.Active).To(BeEquivalentTo(2))
	}, NodeTimeout(3*patience))

	It("a Job whose pods are not ready in time backs off, and then is deactivated", func(ctx SpecContext) {
		const queue = "taken-timeouts"
		tenant(ctx, queue, 1)
		takeOver(ctx, queue)
		slow := newJob(queue, 1)
		slow.Spec.Template.Annotations = map[string]string{controlplane.FakeReadyAfter: "600"}
		Expect(env.Admin.Create(ctx, slow)).To(Succeed())
		w := workloadOf(ctx, slow)
		Eventually(read(ctx, w)).WithContext(ctx).Should(And(
			haveCondition(kueue.WorkloadEvicted, metav1.ConditionTrue, kueue.WorkloadEvictedByPodsReadyTimeout), HaveField("Status.RequeueState.RequeueAt", Not(BeNil()))))
		requeueAt := *w.Status.RequeueState.RequeueAt
		Eventually(read(ctx, w)).WithContext(ctx).Should(haveCondition(kueue.WorkloadEvicted, metav1.ConditionFalse, ""))
		for _, c := range w.Status.Conditions {
			if c.Type == kueue.WorkloadQuotaReserved {
				Expect(c.LastTransitionTime.Before(&requeueAt)).To(BeFalse(), "it is admitted again after its back-off")
			}
		}
		Eventually(read(ctx, w)).WithContext(ctx).Should(And(HaveField("Spec.Active", HaveValue(BeFalse())), haveCondition(kueue.WorkloadQuotaReserved, metav1.ConditionFalse, "")))
		next := named(newJob(queue, 1), "next")
		Expect(env.Admin.Create(ctx, next)).To(Succeed())
		Eventually(read(ctx, workloadOf(ctx, next))).WithContext(ctx).Should(haveCondition(kueue.WorkloadFinished, metav1.ConditionTrue, ""))
		handBack(ctx, queue)
	}, NodeTimeout(3*patience))

	It("a Deployment and a StatefulSet run, and an elastic Job does not grow and says why", func(ctx SpecContext) {
		const queue = "taken-kinds"
		tenant(ctx, queue, 5)
		elastic := named(lasting(newJob(queue, 1), "600"), "elastic")
		elastic.Annotations, elastic.Spec.Completions = map[string]string{apis.ElasticJobAnnotation: "true"}, new(int32(2))
		Expect(env.Admin.Create(ctx, elastic)).To(Succeed())
		slice := workloadOf(ctx, elastic)
		awaitRunning(ctx, elastic, slice, 1)
		takeOver(ctx, queue)
		deployment, statefulSet := newDeployment(queue, 2), newStatefulSet(queue, 2)
		for _, object := range []client.Object{deployment, statefulSet} {
			Expect(env.Admin.Create(ctx, object)).To(Succeed())
		}
		Eventually(read(ctx, deployment)).WithContext(ctx).Should(HaveField("Status.ReadyReplicas", BeEquivalentTo(2)))
		Eventually(read(ctx, statefulSet)).WithContext(ctx).Should(HaveField("Status.ReadyReplicas", BeEquivalentTo(2)))
		pods := func() map[string]types.UID {
			GinkgoHelper()
			var list corev1.PodList
			Expect(env.Admin.List(ctx, &list, client.InNamespace(queue))).To(Succeed())
			all := map[string]types.UID{}
			for i := range list.Items {
				all[list.Items[i].Name] = list.Items[i].UID
			}
			return all
		}
		running := pods()
		Expect(running).To(HaveLen(5))

		By("letting a pod of the Deployment wait for the quota that another one releases")
		Expect(env.Admin.Patch(ctx, deployment, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":3}}`)))).To(Succeed())
		waits := &kueue.Workload{}
		Eventually(func(g Gomega) {
			var list kueue.WorkloadList
			g.Expect(env.Admin.List(ctx, &list, client.InNamespace(queue))).To(Succeed())
			g.Expect(list.Items).To(HaveLen(5), "one for each pod of the Deployment, one for the StatefulSet, and one for the elastic Job")
			isWaiting := func(w kueue.Workload) bool { return w.Status.Admission == nil }
			g.Expect(slices.ContainsFunc(list.Items, isWaiting)).To(BeTrue())
			waits = list.Items[slices.IndexFunc(list.Items, isWaiting)].DeepCopy()
			g.Expect(waits).To(haveCondition(apis.WaitingCondition, metav1.ConditionTrue, kueue.WorkloadQuotaReservedReasonWaitingForQuota))
		}).WithContext(ctx).Should(Succeed())
		Expect(env.Admin.Patch(ctx, deployment, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":2}}`)))).To(Succeed())
		Eventually(func(g Gomega) { g.Expect(pods()).To(Equal(running), "the pod that waits is removed first") }).WithContext(ctx).Should(Succeed())

		By("reporting that an elastic Job does not grow")
		Expect(env.Admin.Patch(ctx, elastic, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"parallelism":2}}`)))).To(Succeed())
		larger := awaitLargerSlice(ctx, slice)
		Eventually(read(ctx, larger)).WithContext(ctx).Should(haveCondition(apis.WaitingCondition, metav1.ConditionTrue, kueue.WorkloadQuotaReservedReasonMisconfigured))
		Expect(runTranche(ctx, "takeover", queue, "--dry-run")).To(And(
			ContainSubstring("- Workload "+queue+"/"+slice.Name+" of Job elastic, which has quota: "),
			ContainSubstring("- Workload "+queue+"/"+larger.Name+" of Job elastic, which waits: ")))

		By("handing them back as they run")
		handBack(ctx, queue)
		for name, uid := range running {
			Expect(pods()).To(HaveKeyWithValue(name, uid), "nothing that runs is touched")
		}
		for _, object := range []client.Object{deployment, statefulSet} {
			Expect(env.Admin.Delete(ctx, object, client.PropagationPolicy(metav1.DeletePropagationBackground))).To(Succeed())
		}
		awaitRunning(ctx, elastic, larger, 2)
		removePods(ctx, queue)
	}, NodeTimeout(3*patience))

	It("commands report why a Job waits, and where", func(ctx SpecContext) {
		const queue = "taken-explained"
		tenant(ctx, queue, 2)
		takeOver(ctx, queue)
		holder := named(lasting(newJob(queue, 1), "600"), "holder")
		Expect(env.Admin.Create(ctx, holder)).To(Succeed())
		awaitRunning(ctx, holder, workloadOf(ctx, holder), 1)
		waits := named(newJob(queue, 2), "waits")
		Expect(env.Admin.Create(ctx, waits)).To(Succeed())
		w := workloadOf(ctx, waits)
		Eventually(read(ctx, w)).WithContext(ctx).Should(haveCondition(apis.WaitingCondition, metav1.ConditionTrue, kueue.WorkloadQuotaReservedReasonWaitingForQuota))
		why := "waits for quota in ClusterQueue " + queue + ": needs 2 nvidia.com/gpu of flavor " + flavor + ": 1 of 2 free"
		Expect(w.Status.Conditions).To(ContainElement(And(HaveField("Type", apis.WaitingCondition), HaveField("Message", why))))
		Eventually(func() string { return oneLine(runTranche(ctx, "explain", "-n", queue, "waits")) }).WithContext(ctx).Should(And(
			ContainSubstring(why), ContainSubstring("held by Workload "+queue+"/"+workloadOf(ctx, holder).Name)))
		Expect(runTranche(ctx, "pending", "-n", queue, "-o", "wide")).To(MatchRegexp(w.Name + ` .*` + why))
		handBack(ctx, queue)
	}, NodeTimeout(3*patience))
})

// newDeployment returns a Deployment in the queue of a tenant, with 1 GPU per pod.
func newDeployment(namespace string, replicas int32) *appsv1.Deployment {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "serve", Labels: map[string]string{apis.QueueLabel: "queue"}}}
	d.Spec.Replicas, d.Spec.Selector, d.Spec.Template = &replicas, &metav1.LabelSelector{MatchLabels: map[string]string{"app": "serve"}}, servingTemplate("serve")
	return d
}

// newStatefulSet returns a StatefulSet in the queue of a tenant, with 1 GPU per pod.
func newStatefulSet(namespace string, replicas int32) *appsv1.StatefulSet {
	s := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "store", Labels: map[string]string{apis.QueueLabel: "queue"}}}
	s.Spec.Replicas, s.Spec.Selector, s.Spec.Template = &replicas, &metav1.LabelSelector{MatchLabels: map[string]string{"app": "store"}}, servingTemplate("store")
	s.Spec.PodManagementPolicy = appsv1.ParallelPodManagement
	return s
}

// servingTemplate returns a pod template whose pods run until they are deleted.
func servingTemplate(app string) corev1.PodTemplateSpec {
	template := newJob("", 1).Spec.Template
	template.Labels, template.Annotations = map[string]string{"app": app}, map[string]string{controlplane.FakeExit: controlplane.FakeExitNever}
	template.Spec.RestartPolicy = corev1.RestartPolicyAlways
	return template
}

// setActive activates or deactivates a quota Workload.
func setActive(ctx context.Context, w *kueue.Workload, value string) {
	GinkgoHelper()
	Expect(env.Admin.Patch(ctx, w, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"active":`+value+`}}`)))).To(Succeed())
}

// awaitLargerSlice waits for the quota Workload that Kueue makes to replace that of an elastic Job.
func awaitLargerSlice(ctx context.Context, slice *kueue.Workload) *kueue.Workload {
	GinkgoHelper()
	var found *kueue.Workload
	Eventually(func(g Gomega) {
		var list kueue.WorkloadList
		g.Expect(env.Admin.List(ctx, &list, client.InNamespace(slice.Namespace))).To(Succeed())
		for i := range list.Items {
			if list.Items[i].Annotations[apis.SliceReplacementAnnotation] == slice.Namespace+"/"+slice.Name {
				found = &list.Items[i]
			}
		}
		g.Expect(found).NotTo(BeNil())
	}).WithContext(ctx).Should(Succeed())
	return found
}

// awaitRunning waits until a Job runs so many pods on admitted quota.
func awaitRunning(ctx context.Context, job *batchv1.Job, w *kueue.Workload, pods int32) {
	GinkgoHelper()
	Eventually(read(ctx, job)).WithContext(ctx).Should(HaveField("Status.Ready", HaveValue(Equal(pods))))
	Eventually(read(ctx, w)).WithContext(ctx).Should(haveCondition(kueue.WorkloadAdmitted, metav1.ConditionTrue, ""))
}

// runTranche runs a verb for an administrator, and returns what it prints.
func runTranche(ctx context.Context, args ...string) string {
	GinkgoHelper()
	out, err := exec.CommandContext(ctx, filepath.Join(env.Root, "bin", "tranche"), append(args, "--kubeconfig", env.AdminKubeconfig)...).CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(out))
	return string(out)
}

// oneLine joins the lines of a text, which sentences are broken into.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
