package e2e_test

import (
	"context"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstatus"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
	"github.com/tranche-dev/tranche/test/controlplane"
	"github.com/tranche-dev/tranche/test/testenv"
)

// urgent is a WorkloadPriorityClass. A JobSet of it that waits takes the quota that an evicted one releases, so that the evicted one can be
// checked while it waits.
const urgent = "urgent"

var preemption = workloadstatus.Eviction{Reason: kueue.WorkloadEvictedByPreemption, Message: "Preempted by the test", Preempted: kueue.InClusterQueueReason}

var _ = Describe("An evicted JobSet", func() {
	It("releases its quota to the pending JobSet, and runs from its beginning later", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "15")
		submit(ctx, t.training("victim"))
		t.expectStages(ctx, "victim", "trainer=ready")
		before := t.jobs(ctx, Default, "trainer")
		t.submitUrgent(ctx, "15")
		t.evict(ctx, "victim", "trainer", preemption)
		t.expectStages(ctx, "victim", "trainer=waiting")
		t.expectStages(ctx, "urgent", "urgent=ready")

		w := t.workload(ctx, Default, "victim", "trainer")
		Expect(w.Status.Admission).To(BeNil())
		Expect(stateOf(w)).To(Equal(map[string]string{
			"QuotaReserved": "False", "Admitted": "False NoReservation", "Evicted": "True Preempted", "Preempted": "True InClusterQueue",
			"Requeued": "True Preempted", "PodsReady": "False WaitForStart",
		}))
		Expect(w.Status.SchedulingStats.Evictions).To(Equal([]kueue.WorkloadSchedulingStatsEviction{{Reason: "Preempted", Count: 1}}))
		for _, job := range t.jobs(ctx, Default, "trainer") {
			Expect(*job.Spec.Suspend).To(BeTrue(), "the Job is held")
			Expect(job.UID).To(Equal(before[0].UID), "a Job without progress need not be recreated")
			Expect(job.Spec.Template.Spec.NodeSelector).NotTo(HaveKey("accelerator"))
			Expect(job.Spec.Template.Spec.Tolerations).To(BeEmpty())
			Expect(job.Spec.Template.Labels).NotTo(Or(HaveKey(apis.PodSetLabel), HaveKey(apis.LocalQueueLabel), HaveKey(apis.ClusterQueueLabel)))
		}
		t.expectNoRestart(ctx, "victim")
		t.expectEvent(ctx, "victim", "StageRequeued")

		t.end(ctx, "urgent", "urgent", corev1.PodSucceeded)
		t.expectStages(ctx, "victim", "trainer=ready")
		w = t.workload(ctx, Default, "victim", "trainer")
		Expect(stateOf(w)).To(HaveKeyWithValue("Evicted", "False QuotaReserved"))
		Expect(stateOf(w)).To(HaveKeyWithValue("Preempted", "False QuotaReserved"))
		Expect(w.Status.SchedulingStats.Evictions[0].Count).To(Equal(int32(1)))
		for _, pod := range t.pods(ctx, Default, "trainer") {
			Expect(pod.Spec.NodeName).To(HavePrefix("a100"))
		}
		t.end(ctx, "victim", "trainer", corev1.PodSucceeded)
		t.expectOver(ctx, "victim", jobset.JobSetCompleted)
		t.expectNoRestart(ctx, "victim")
	}, SpecTimeout(specTimeout))

	It("does not run succeeded stages again", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "15")
		submit(ctx, t.fineTune("victim"))
		t.end(ctx, "victim", "initializer", corev1.PodSucceeded)
		t.expectStages(ctx, "victim", "initializer=Succeeded", "trainer-node=ready")
		initializer := t.jobs(ctx, Default, "initializer")[0].UID
		t.submitUrgent(ctx, "15")
		t.evict(ctx, "victim", "trainer-node", preemption)
		t.expectStages(ctx, "victim", "initializer=Succeeded", "trainer-node=waiting")
		t.expectStages(ctx, "urgent", "urgent=ready")
		t.end(ctx, "urgent", "urgent", corev1.PodSucceeded)
		t.expectStages(ctx, "victim", "initializer=Succeeded", "trainer-node=ready")
		t.end(ctx, "victim", "trainer-node", corev1.PodSucceeded)
		t.expectOver(ctx, "victim", jobset.JobSetCompleted)
		Expect(t.jobs(ctx, Default, "initializer")[0].UID).To(Equal(initializer))
		t.expectNoRestart(ctx, "victim")
	}, SpecTimeout(specTimeout))

	for _, evicted := range []string{"launcher", "trainer-node"} {
		It("is evicted as a whole, and follows its rules again, if its "+evicted+" is evicted", func(ctx SpecContext) {
			t := newTeam(ctx, "100", "20")
			submit(ctx, t.deepSpeed("victim"))
			t.end(ctx, "victim", "initializer", corev1.PodSucceeded)
			t.expectStages(ctx, "victim", "launcher=ready", "trainer-node=ready")
			t.submitUrgent(ctx, "20")
			t.evict(ctx, "victim", evicted, preemption)
			t.expectStages(ctx, "victim", "initializer=Succeeded", "launcher=waiting", "trainer-node=closed")
			t.expectStages(ctx, "urgent", "urgent=ready")
			for _, stage := range []string{"launcher", "trainer-node"} {
				w := t.workload(ctx, Default, "victim", stage)
				Expect(stateOf(w)).To(HaveKeyWithValue("Evicted", "True Preempted"), stage)
				Expect(stateOf(w)).To(HaveKeyWithValue("Preempted", "True InClusterQueue"), stage)
				Expect(w.Status.SchedulingStats.Evictions).To(HaveLen(1), stage)
			}
			t.end(ctx, "urgent", "urgent", corev1.PodSucceeded)
			t.expectStages(ctx, "victim", "launcher=ready", "trainer-node=ready")
			t.end(ctx, "victim", "trainer-node", corev1.PodSucceeded)
			t.end(ctx, "victim", "launcher", corev1.PodSucceeded)
			t.expectOver(ctx, "victim", jobset.JobSetCompleted)
			t.expectNoRestart(ctx, "victim")
		}, SpecTimeout(specTimeout))
	}

	for _, phase := range []corev1.PodPhase{corev1.PodSucceeded, corev1.PodFailed} {
		It(fmt.Sprintf("restarts all pods of a gang of which one pod has %s", phase), func(ctx SpecContext) {
			t := newTeam(ctx, "100", "15")
			js := t.training("victim")
			js.Spec.ReplicatedJobs[0].Template.Spec.BackoffLimit = new(int32(6))
			submit(ctx, js)
			t.expectStages(ctx, "victim", "trainer=ready")
			before := t.jobs(ctx, Default, "trainer")[0]
			one := t.pods(ctx, Default, "trainer")[0]
			one.Status.Phase = phase
			Expect(env.Admin.Status().Update(ctx, &one)).To(Succeed())
			Eventually(func(g Gomega) {
				status := t.job(ctx, g, "trainer").Status
				g.Expect(status.Succeeded + status.Failed).To(Equal(int32(1)))
			}).WithContext(ctx).Should(Succeed())
			t.evict(ctx, "victim", "trainer", preemption)
			Eventually(func(g Gomega) {
				jobs := t.jobs(ctx, g, "trainer")
				g.Expect(jobs).To(HaveLen(1))
				g.Expect(jobs[0].UID).NotTo(Equal(before.UID))
				g.Expect(ptr.Deref(jobs[0].Status.Ready, 0)).To(Equal(int32(3)))
				g.Expect(jobs[0].Status.Succeeded + jobs[0].Status.Failed).To(BeZero())
			}).WithContext(ctx).Should(Succeed(), func() string { return t.describe(ctx) })
			t.end(ctx, "victim", "trainer", corev1.PodSucceeded)
			t.expectOver(ctx, "victim", jobset.JobSetCompleted)
			t.expectNoRestart(ctx, "victim")
		}, SpecTimeout(specTimeout))
	}

	for phase, outcome := range map[corev1.PodPhase]jobset.JobSetConditionType{
		corev1.PodSucceeded: jobset.JobSetCompleted, corev1.PodFailed: jobset.JobSetFailed,
	} {
		It(fmt.Sprintf("finishes if all its pods have %s before the Job controller observes the eviction", phase), func(ctx SpecContext) {
			t := newTeam(ctx, "100", "15")
			submit(ctx, t.training("victim"))
			t.expectStages(ctx, "victim", "trainer=ready")
			Expect(env.Plane.StopComponent(controlplane.ControllerManager)).To(Succeed())
			DeferCleanup(func(ctx SpecContext) {
				Expect(env.Plane.StartComponent(ctx, controlplane.ControllerManager)).To(Succeed())
			})
			t.endJob(ctx, t.jobs(ctx, Default, "trainer")[0].Name, phase)
			t.evict(ctx, "victim", "trainer", preemption)
			// The JobSet controller tries to resume the held Job, and takes its start time. No Job can end without one.
			Eventually(func(g Gomega) {
				job := t.job(ctx, g, "trainer")
				g.Expect(*job.Spec.Suspend).To(BeTrue())
				g.Expect(job.Status.StartTime).To(BeNil())
			}).WithContext(ctx).Should(Succeed(), func() string { return t.describe(ctx) })
			Expect(env.Plane.StartComponent(ctx, controlplane.ControllerManager)).To(Succeed())
			t.expectOver(ctx, "victim", outcome)
			t.expectReserved(ctx, "0")
		}, SpecTimeout(specTimeout))
	}

	It("keeps its quota while its pods terminate, and reports that", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "15")
		submit(ctx, slowly(t.training("victim"), "3s"))
		t.expectStages(ctx, "victim", "trainer=ready")
		t.submitUrgent(ctx, "15")
		t.evict(ctx, "victim", "trainer", preemption)
		t.expectStopping(ctx, "victim")
		t.expectStages(ctx, "urgent", "urgent=ready")
		Expect(t.pods(ctx, Default, "trainer")).To(BeEmpty())
	}, SpecTimeout(specTimeout))

	It("stays suspended if its user suspends it meanwhile", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "20")
		js := submit(ctx, slowly(t.deepSpeed("victim"), "2s"))
		t.end(ctx, "victim", "initializer", corev1.PodSucceeded)
		t.expectStages(ctx, "victim", "launcher=ready", "trainer-node=ready")
		t.evict(ctx, "victim", "launcher", preemption)
		t.expectStopping(ctx, "victim")
		suspend(ctx, js, true)
		t.expectStages(ctx, "victim", "initializer=Succeeded", "launcher=closed", "trainer-node=closed")
		Eventually(func(g Gomega) { g.Expect(t.reserved(ctx, g)).To(Equal("0")) }).WithContext(ctx).Should(Succeed())
		t.expectStill(ctx, "victim", "initializer=Succeeded", "launcher=closed", "trainer-node=closed")
		Expect(t.get(ctx, Default, "victim").Spec.Suspend).To(HaveValue(BeTrue()))
		Expect(t.pods(ctx, Default, "launcher")).To(BeEmpty())
		suspend(ctx, js, false)
		t.expectStages(ctx, "victim", "launcher=ready", "trainer-node=ready")
		t.expectNoRestart(ctx, "victim")
	}, SpecTimeout(specTimeout))

	It("releases its quota although its annotations have no room for its times", func(ctx SpecContext) {
		const most = 256 << 10
		t := newTeam(ctx, "100", "15")
		submit(ctx, t.training("victim"))
		t.expectStages(ctx, "victim", "trainer=ready")
		js := t.get(ctx, Default, "victim")
		room := most - len("filler")
		for key, value := range js.Annotations {
			room -= len(key) + len(value)
		}
		full := fmt.Sprintf(`{"metadata":{"annotations":{"filler":%q}}}`, strings.Repeat("x", room))
		Expect(env.Admin.Patch(ctx, js, client.RawPatch(types.MergePatchType, []byte(full)))).To(Succeed())
		t.submitUrgent(ctx, "15")
		t.evict(ctx, "victim", "trainer", preemption)
		t.expectStages(ctx, "urgent", "urgent=ready")
		Expect(t.get(ctx, Default, "victim").Annotations).NotTo(HaveKey(apis.TimelineAnnotation))
	}, SpecTimeout(specTimeout))

	It("leaves no object behind when it is deleted meanwhile", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "20")
		js := submit(ctx, slowly(t.training("victim"), "2s"))
		t.expectStages(ctx, "victim", "trainer=ready")
		t.evict(ctx, "victim", "trainer", preemption)
		t.expectStopping(ctx, "victim")
		Expect(env.Admin.Delete(ctx, js, client.PropagationPolicy("Background"))).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(t.workloads(ctx, g)).To(BeEmpty())
			g.Expect(t.pods(ctx, g, "")).To(BeEmpty())
		}).WithContext(ctx).Should(Succeed(), func() string { return t.describe(ctx) })
	}, SpecTimeout(specTimeout))

	It("stays suspended while one of its stages is deactivated", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "20")
		submit(ctx, t.deepSpeed("victim"))
		t.end(ctx, "victim", "initializer", corev1.PodSucceeded)
		t.expectStages(ctx, "victim", "launcher=ready", "trainer-node=ready")
		t.setActive(ctx, "victim", "trainer-node", false)
		t.evict(ctx, "victim", "trainer-node", workloadstatus.Eviction{Reason: kueue.WorkloadDeactivated, Message: "Deactivated by the test"})
		t.expectStages(ctx, "victim", "initializer=Succeeded", "launcher=closed", "trainer-node=closed")
		w := t.workload(ctx, Default, "victim", "launcher")
		Expect(stateOf(w)).To(HaveKeyWithValue("Evicted", "True Deactivated"))
		Expect(stateOf(w)).NotTo(HaveKey("Preempted"))
		Eventually(func(g Gomega) {
			g.Expect(t.workload(ctx, g, "victim", "launcher").Annotations[apis.AdmissionGatedByAnnotation]).To(Equal("tranche.dev/deactivated"))
			g.Expect(t.reserved(ctx, g)).To(Equal("0"))
		}).WithContext(ctx).Should(Succeed())
		t.expectStill(ctx, "victim", "initializer=Succeeded", "launcher=closed", "trainer-node=closed")
		t.setActive(ctx, "victim", "trainer-node", true)
		t.expectStages(ctx, "victim", "launcher=ready", "trainer-node=ready")
	}, SpecTimeout(specTimeout))
})

var _ = Describe("A released Job", func() {
	It("gets the pod set updates of AdmissionChecks, and loses them when it is evicted", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "15")
		t.submitUrgentFirst(ctx, "15")
		submit(ctx, t.training("checked"))
		t.expectStages(ctx, "checked", "trainer=waiting")
		t.setChecks(ctx, "checked", "trainer",
			kueue.AdmissionCheckState{Name: "provision", State: kueue.CheckStateReady, PodSetUpdates: []kueue.PodSetUpdate{{
				Name: "trainer", Labels: map[string]string{"batch": "7"}, Annotations: map[string]string{"consume": "request-1"},
				NodeSelector: map[string]string{"accelerator": "a100"}, Tolerations: []corev1.Toleration{{Key: "new", Operator: corev1.TolerationOpExists}},
			}}},
			kueue.AdmissionCheckState{Name: "other", State: kueue.CheckStatePending, PodSetUpdates: []kueue.PodSetUpdate{{
				Name: "trainer", Labels: map[string]string{"batch": "8"},
			}}})
		t.end(ctx, "urgent", "urgent", corev1.PodSucceeded)
		t.expectStages(ctx, "checked", "trainer=ready")
		for _, pod := range t.pods(ctx, Default, "trainer") {
			Expect(pod.Labels).To(HaveKeyWithValue("batch", "7"))
			Expect(pod.Annotations).To(HaveKeyWithValue("consume", "request-1"))
			Expect(pod.Spec.Tolerations).To(ContainElement(HaveField("Key", "new")))
		}
		t.setActive(ctx, "checked", "trainer", false)
		t.evict(ctx, "checked", "trainer", preemption)
		t.expectStages(ctx, "checked", "trainer=waiting")
		for _, job := range t.jobs(ctx, Default, "trainer") {
			Expect(job.Spec.Template.Labels).NotTo(HaveKey("batch"))
			Expect(job.Spec.Template.Annotations).NotTo(HaveKey("consume"))
			Expect(job.Spec.Template.Spec.NodeSelector).To(BeEmpty())
			Expect(job.Spec.Template.Spec.Tolerations).To(BeEmpty())
		}
	}, SpecTimeout(specTimeout))

	It("stays held if an AdmissionCheck contradicts it, and the JobSet reports why", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "15")
		t.submitUrgentFirst(ctx, "15")
		submit(ctx, t.training("contradicted"))
		t.expectStages(ctx, "contradicted", "trainer=waiting")
		t.setChecks(ctx, "contradicted", "trainer", kueue.AdmissionCheckState{Name: "provision", State: kueue.CheckStateReady, PodSetUpdates: []kueue.PodSetUpdate{{
			Name: "trainer", NodeSelector: map[string]string{"accelerator": "h100"},
		}}})
		t.end(ctx, "urgent", "urgent", corev1.PodSucceeded)
		t.expectStages(ctx, "contradicted", "trainer=admitted")
		t.expectEvent(ctx, "contradicted", "JobRefused")
		t.expectStill(ctx, "contradicted", "trainer=admitted")
		Expect(t.job(ctx, Default, "trainer").Spec.Suspend).To(HaveValue(BeTrue()))
		Expect(t.pods(ctx, Default, "trainer")).To(BeEmpty())
	}, SpecTimeout(specTimeout))
})

var _ = Describe("A stage with some succeeded Jobs", func() {
	It("reports their pods as reclaimable, and queues for all pods after a restart", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "15")
		js := t.newJobSet("shards", replicatedJob{name: "shard", replicas: 3, pods: 2, cpus: "1", gpus: "2"})
		js.Spec.FailurePolicy = &jobset.FailurePolicy{MaxRestarts: 1}
		submit(ctx, js)
		t.expectStages(ctx, "shards", "shard=ready")
		before := t.workload(ctx, Default, "shards", "shard")
		t.endJob(ctx, "shards-shard-0", corev1.PodSucceeded)
		Eventually(func(g Gomega) {
			g.Expect(t.workload(ctx, g, "shards", "shard").Status.ReclaimablePods).To(Equal([]kueue.ReclaimablePod{{Name: "shard", Count: 2}}))
		}).WithContext(ctx).Should(Succeed(), func() string { return t.describe(ctx) })
		t.endJob(ctx, "shards-shard-1", corev1.PodFailed)
		Eventually(func(g Gomega) {
			w := t.workload(ctx, g, "shards", "shard")
			g.Expect(w.UID).NotTo(Equal(before.UID), "the restarted stage has a new quota Workload")
			g.Expect(w.Status.ReclaimablePods).To(BeEmpty())
			g.Expect(t.stage(ctx, g, "shards", "shard")).To(Equal("ready"))
		}).WithContext(ctx).Should(Succeed(), func() string { return t.describe(ctx) })
		t.end(ctx, "shards", "shard", corev1.PodSucceeded)
		t.expectOver(ctx, "shards", jobset.JobSetCompleted)
	}, SpecTimeout(specTimeout))
})

var _ = Describe("A manager that is killed after each write while it evicts", func() {
	It("reaches the same final state", func(ctx SpecContext) {
		Expect(manager.Stop()).To(Succeed())
		proxy, err := env.StartProxy()
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { proxy.Stop() })
		t := newTeam(ctx, "100", "20")
		DeferCleanup(func(ctx SpecContext) {
			var err error
			manager, err = env.StartManager(ctx, testenv.ManagerOptions{})
			Expect(err).NotTo(HaveOccurred())
		})
		managers, err := env.StartShortLived(proxy, testenv.ManagerOptions{})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() error { _, err := managers.Stop(); return err })
		const name = "killed"
		submit(ctx, t.serving(name))
		t.expectStages(ctx, name, "server=ready", "client=ready")
		t.succeedOne(ctx, name, "client")
		t.evict(ctx, name, "server", preemption)
		Eventually(func(g Gomega) {
			for _, stage := range []string{"server", "client"} {
				g.Expect(t.stage(ctx, g, name, stage)).To(Equal("ready"), stage)
				w := t.workload(ctx, g, name, stage)
				g.Expect(stateOf(w)).To(HaveKeyWithValue("Evicted", "False QuotaReserved"), stage)
				g.Expect(w.Status.SchedulingStats.Evictions).To(Equal([]kueue.WorkloadSchedulingStatsEviction{{Reason: "Preempted", Count: 1}}), stage)
			}
			for _, job := range t.jobs(ctx, g, "client") {
				g.Expect(job.Status.Succeeded).To(BeZero())
			}
		}).WithContext(ctx).Should(Succeed(), func() string { return t.describe(ctx) })
		t.expectNoRestart(ctx, name)
		killed, err := managers.Stop()
		Expect(err).NotTo(HaveOccurred())
		AddReportEntry("killed managers", killed)
		Expect(killed).To(BeNumerically(">", 10), strings.Join(proxy.Writes(), "\n"))
	}, SpecTimeout(2*specTimeout))
})

// training is one stage: a Job of 3 pods with 5 GPUs each, of a JobSet that may not restart.
func (t team) training(name string) *jobsetapi.JobSet {
	return t.newJobSet(name, replicatedJob{name: "trainer", pods: 3, cpus: "1", gpus: "5"})
}

// serving is a server and, once that is ready, a client.
func (t team) serving(name string) *jobsetapi.JobSet {
	return inOrder(t.newJobSet(name,
		replicatedJob{name: "server", cpus: "1", gpus: "5"},
		replicatedJob{name: "client", pods: 2, cpus: "1", gpus: "5"},
	), rule(jobsetapi.ReadyStatus, "server"))
}

// slowly makes the pods of a JobSet run for some time after their deletion.
func slowly(js *jobsetapi.JobSet, after string) *jobsetapi.JobSet {
	for i := range js.Spec.ReplicatedJobs {
		endSlowly(&js.Spec.ReplicatedJobs[i].Template.Spec.Template, after)
	}
	return js
}

func endSlowly(template *corev1.PodTemplateSpec, after string) {
	template.Annotations[controlplane.FakeStopAfter] = after
	template.Spec.TerminationGracePeriodSeconds = new(int64(60))
}

// submitUrgent submits a JobSet with precedence over all others that asks for these GPUs and has to wait for them.
func (t team) submitUrgent(ctx context.Context, gpus string) {
	GinkgoHelper()
	t.createUrgent(ctx, gpus)
	t.expectStages(ctx, "urgent", "urgent=waiting")
}

// submitUrgentFirst does the same where no stage holds the GPUs yet.
func (t team) submitUrgentFirst(ctx context.Context, gpus string) {
	GinkgoHelper()
	t.createUrgent(ctx, gpus)
	t.expectStages(ctx, "urgent", "urgent=ready")
}

func (t team) createUrgent(ctx context.Context, gpus string) {
	GinkgoHelper()
	class := &kueue.WorkloadPriorityClass{ObjectMeta: metav1.ObjectMeta{Name: urgent}, Value: 1000}
	Expect(client.IgnoreAlreadyExists(env.Admin.Create(ctx, class))).To(Succeed())
	js := t.newJobSet("urgent", replicatedJob{name: "urgent", cpus: "1", gpus: gpus})
	js.Labels[apis.PriorityClassLabel] = urgent
	submit(ctx, js)
}

// endJob ends the running pods of one Job.
func (t team) endJob(ctx context.Context, job string, phase corev1.PodPhase) {
	GinkgoHelper()
	ended := 0
	for _, pod := range t.pods(ctx, Default, "") {
		if pod.Labels[batchv1.JobNameLabel] == job && pod.Status.Phase == corev1.PodRunning {
			pod.Status.Phase = phase
			Expect(env.Admin.Status().Update(ctx, &pod)).To(Succeed())
			ended++
		}
	}
	Expect(ended).To(BeNumerically(">", 0))
}

// expectStopping waits until the pods of an evicted JobSet stop, and checks that its stages keep their quota.
func (t team) expectStopping(ctx context.Context, jobSet string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		stopping := 0
		for _, pod := range t.pods(ctx, g, "") {
			if pod.DeletionTimestamp != nil && pod.Labels[jobset.JobSetNameKey] == jobSet {
				stopping++
			}
		}
		var js jobsetapi.JobSet
		g.Expect(env.Admin.Get(ctx, client.ObjectKey{Namespace: t.namespace, Name: jobSet}, &js)).To(Succeed())
		c := apimeta.FindStatusCondition(js.Status.Conditions, jobsetstatus.StageAdmitted)
		g.Expect(c.Status).To(Equal(metav1.ConditionFalse))
		g.Expect(c.Reason).To(Equal("EvictedDueToPreempted"))
		g.Expect(c.Message).To(ContainSubstring(preemption.Message))
		g.Expect(stopping).To(BeNumerically(">", 0))
		for _, w := range t.workloads(ctx, g) {
			if w.Labels[apis.JobSetLabel] == jobSet && !quotaworkload.IsTrue(&w, kueue.WorkloadFinished) {
				g.Expect(quotaworkload.IsTrue(&w, kueue.WorkloadQuotaReserved)).To(BeTrue(), w.Name)
			}
		}
	}).WithContext(ctx).Should(Succeed(), func() string { return t.describe(ctx) })
}

// succeedOne makes one pod of a ReplicatedJob succeed, and waits until its Job counts it.
func (t team) succeedOne(ctx context.Context, jobSet, replicatedJob string) {
	GinkgoHelper()
	ended := types.UID("")
	Eventually(func(g Gomega) {
		for _, pod := range t.pods(ctx, g, replicatedJob) {
			if ended == "" && pod.Labels[jobset.JobSetNameKey] == jobSet && pod.Status.Phase == corev1.PodRunning {
				pod.Status.Phase = corev1.PodSucceeded
				g.Expect(env.Admin.Status().Update(ctx, &pod)).To(Succeed())
				ended = pod.UID
			}
		}
		counted := func(job batchv1.Job) bool {
			return job.Labels[jobset.JobSetNameKey] == jobSet && job.Status.Succeeded == 1
		}
		g.Expect(t.jobs(ctx, g, replicatedJob)).To(ContainElement(Satisfy(counted)))
	}).WithContext(ctx).Should(Succeed())
}
