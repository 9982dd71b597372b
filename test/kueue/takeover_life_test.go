package kueue_test

import (
	"context"
	"os/exec"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/test/controlplane"
)

var _ = Describe("In a tree that was taken over", Ordered, ContinueOnFailure, func() {
	BeforeAll(func(ctx SpecContext) {
		Expect(env.Plane.RestartKueue(ctx, controlplane.KueueOptions{Settings: map[string]any{"waitForPodsReady": map[string]any{
			"timeout": "5s", "requeuingStrategy": map[string]any{"backoffBaseSeconds": 2, "backoffLimitCount": 1},
		}}})).To(Succeed())
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
		Eventually(func() string { return runTranche(ctx, "explain", "-n", queue, "waits") }).WithContext(ctx).Should(And(
			ContainSubstring(why), ContainSubstring("held by Workload "+queue+"/"+workloadOf(ctx, holder).Name)))
		Expect(runTranche(ctx, "pending", "-n", queue, "-o", "wide")).To(MatchRegexp(w.Name + ` .*` + why))
		handBack(ctx, queue)
	}, NodeTimeout(3*patience))
})

// setActive activates or deactivates a quota Workload.
func setActive(ctx context.Context, w *kueue.Workload, value string) {
	GinkgoHelper()
	Expect(env.Admin.Patch(ctx, w, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"active":`+value+`}}`)))).To(Succeed())
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
