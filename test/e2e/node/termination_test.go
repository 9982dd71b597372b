package node_test

import (
	"context"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/test/controlplane"
	"github.com/tranche-dev/tranche/test/sample"
)

// lasting is how long containers go on after they were asked to end.
const lasting = 4 * time.Second

var _ = Describe("Quota is held until the last container has ended", func() {
	It("when a JobSet is preempted after notice: the one that has just saved its work", func(ctx SpecContext) {
		t := newTeam(ctx, "2")
		t.patchQueue(ctx, `{"metadata":{"annotations":{"`+apis.PreemptionNoticeAnnotation+`":"3s"}}}`)
		submit(ctx, t.jobSet("unsaved", role{name: "main", args: lingering(lasting)}), t.jobSet("saved", role{name: "main", args: lingering(lasting)}))
		t.expectRunning(ctx, 2)
		saved := t.jobSet("saved")
		t.patch(ctx, saved, "saved", `{"metadata":{"annotations":{"`+apis.CheckpointedAtAnnotation+`":"`+time.Now().UTC().Format(time.RFC3339)+`"}}}`)
		urgent := t.jobSet("urgent", role{name: "main"})
		urgent.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.PriorityClassName = "urgent"
		submit(ctx, urgent)
		t.expectCondition(ctx, "saved", apis.PreemptionPendingCondition, metav1.ConditionTrue)
		Expect(t.running(ctx, Default)).To(HaveLen(2), "a pod is deleted before its notice has ended")
		t.expectRunningOf(ctx, "urgent", "unsaved")
	}, SpecTimeout(specTimeout))

	It("when a JobSet is deactivated, suspended and resumed, or deleted while its containers end slowly", func(ctx SpecContext) {
		t := newTeam(ctx, "3")
		for _, name := range []string{"deactivated", "suspended", "deleted"} {
			submit(ctx, t.jobSet(name, role{name: "main", args: lingering(lasting)}))
		}
		before := t.expectRunning(ctx, 3)
		t.setActive(ctx, "deactivated", "false")
		t.patch(ctx, t.jobSet("x"), "suspended", `{"spec":{"suspend":true}}`)
		t.expectTerminating(ctx, slices.DeleteFunc(before, func(pod corev1.Pod) bool { return pod.Labels[jobset.JobSetNameKey] != "suspended" }))
		t.patch(ctx, t.jobSet("x"), "suspended", `{"spec":{"suspend":false}}`)
		deleted := t.jobSet("deleted")
		Expect(env.Admin.Delete(ctx, deleted, client.PropagationPolicy(metav1.DeletePropagationBackground))).To(Succeed())
		t.setActive(ctx, "deactivated", "true")
		submit(ctx, t.jobSet("next", role{name: "main", args: lingering(lasting)}))
		t.expectRunningOf(ctx, "deactivated", "next", "suspended")
	}, SpecTimeout(specTimeout))

	It("when its node is drained: the pods wait for a node, and their quota with them", func(ctx SpecContext) {
		t := newTeam(ctx, "2")
		submit(ctx, t.job(role{name: "queued", retries: 6, args: lingering(lasting)}), t.jobSet("staged", role{name: "main", retries: 6, args: lingering(lasting)}))
		before := t.expectRunning(ctx, 2)
		DeferCleanup(func(ctx SpecContext) { Expect(env.Kubectl(ctx, "uncordon", controlplane.RealNodeName)).To(Succeed()) }, NodeTimeout(patience))
		Expect(env.Kubectl(ctx, "drain", controlplane.RealNodeName, "--timeout=60s")).To(Succeed())
		Expect(containersOf(t.namespace)).To(BeEmpty())
		t.expectGone(ctx, before)
		Expect(chargedTo(ctx, t.namespace)).To(Equal(int64(2)), "the pods have not failed, so that both are still admitted")
		Expect(env.Kubectl(ctx, "uncordon", controlplane.RealNodeName)).To(Succeed())
		t.expectRunning(ctx, 2)
	}, SpecTimeout(specTimeout))
})

var _ = Describe("A container that runs out of memory", func() {
	It("is killed: its JobSet restarts with the quota that it has, then fails and releases it", func(ctx SpecContext) {
		t := newTeam(ctx, "1")
		js := t.jobSet("hungry", role{name: "main", args: []string{"-allocate=512"}})
		js.Spec.FailurePolicy = &jobset.FailurePolicy{MaxRestarts: 1}
		js.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.Containers[0].Resources.Limits = sample.Amounts("memory", "64Mi", string(gpu), "1")
		killed := killedPods(ctx, t)
		submit(ctx, js)
		t.expectCondition(ctx, "hungry", string(jobset.JobSetFailed), metav1.ConditionTrue)
		Eventually(killed).WithContext(ctx).Should(Receive(Equal("OOMKilled")))
		Eventually(killed).WithContext(ctx).Should(Receive(Equal("OOMKilled")))
		Eventually(ctx, func(ctx context.Context) (int64, error) { return chargedTo(ctx, t.namespace) }).Should(BeZero())
	}, SpecTimeout(specTimeout))
})

// killedPods returns the reasons for which the containers of a team have ended, as they are reported.
func killedPods(ctx context.Context, t *team) <-chan string {
	GinkgoHelper()
	watcher, err := env.Admin.Watch(ctx, &corev1.PodList{}, client.InNamespace(t.namespace))
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(watcher.Stop)
	reasons, told := make(chan string, 10), map[string]bool{}
	go func() {
		for event := range watcher.ResultChan() {
			pod, ok := event.Object.(*corev1.Pod)
			if !ok || len(pod.Status.ContainerStatuses) == 0 || pod.Status.ContainerStatuses[0].State.Terminated == nil || told[pod.Name] {
				continue
			}
			told[pod.Name] = true
			reasons <- pod.Status.ContainerStatuses[0].State.Terminated.Reason
		}
	}()
	return reasons
}

// expectRunningOf waits until each of these JobSets has a container that runs, and no other has one.
func (t *team) expectRunningOf(ctx context.Context, jobSets ...string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		var running []string
		for _, pod := range t.running(ctx, g) {
			running = append(running, pod.Labels[jobset.JobSetNameKey])
		}
		g.Expect(running).To(ConsistOf(jobSets))
		g.Expect(containersOf(t.namespace)).To(HaveLen(len(jobSets)))
	}).WithContext(ctx).Should(Succeed(), func() string { return t.describe(ctx) })
}

// expectTerminating waits until these pods are being deleted.
func (t *team) expectTerminating(ctx context.Context, before []corev1.Pod) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		for _, pod := range t.pods(ctx, g) {
			if slices.ContainsFunc(before, func(b corev1.Pod) bool { return b.UID == pod.UID }) {
				g.Expect(pod.DeletionTimestamp).NotTo(BeNil(), pod.Name)
			}
		}
	}).WithContext(ctx).Should(Succeed(), func() string { return t.describe(ctx) })
}

// expectGone waits until none of these pods is left.
func (t *team) expectGone(ctx context.Context, before []corev1.Pod) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		for _, pod := range t.pods(ctx, g) {
			for i := range before {
				g.Expect(pod.UID).NotTo(Equal(before[i].UID))
			}
		}
	}).WithContext(ctx).Should(Succeed(), func() string { return t.describe(ctx) })
}

func (t *team) patchQueue(ctx context.Context, change string) {
	GinkgoHelper()
	Expect(env.Admin.Patch(ctx, &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: t.namespace}}, client.RawPatch("application/merge-patch+json", []byte(change)))).To(Succeed())
}

// setActive deactivates the quota Workload of a JobSet, or activates it when its containers have ended.
func (t *team) setActive(ctx context.Context, jobSet, active string) {
	GinkgoHelper()
	var workloads kueue.WorkloadList
	Eventually(func(g Gomega) {
		g.Expect(env.Admin.List(ctx, &workloads, client.InNamespace(t.namespace), client.MatchingLabels{apis.JobSetLabel: jobSet})).To(Succeed())
		g.Expect(workloads.Items).To(HaveLen(1))
		if active == "true" {
			g.Expect(apimeta.IsStatusConditionTrue(workloads.Items[0].Status.Conditions, kueue.WorkloadQuotaReserved)).To(BeFalse())
		}
	}).WithContext(ctx).Should(Succeed(), func() string { return t.describe(ctx) })
	t.patch(ctx, &workloads.Items[0], workloads.Items[0].Name, `{"spec":{"active":`+active+`}}`)
}
