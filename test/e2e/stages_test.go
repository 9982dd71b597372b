package e2e_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/test/controlplane"
	"github.com/tranche-dev/tranche/test/sample"
	"github.com/tranche-dev/tranche/test/testenv"
)

const specTimeout = 3 * time.Minute

// fineTune is story 1 of KEP-672: a CPU initializer, then 3 trainers with 5 GPUs each.
func (t team) fineTune(name string) *jobsetapi.JobSet {
	return inOrder(t.newJobSet(name,
		replicatedJob{name: "initializer", cpus: "1"},
		replicatedJob{name: "trainer-node", pods: 3, cpus: "1", gpus: "5"},
	), rule(jobsetapi.SucceededStatus, "initializer"))
}

// deepSpeed is story 2 of KEP-672: an initializer that must succeed, a launcher that must be ready, then the trainers.
func (t team) deepSpeed(name string) *jobsetapi.JobSet {
	return inOrder(t.newJobSet(name,
		replicatedJob{name: "initializer", cpus: "1"},
		replicatedJob{name: "launcher", cpus: "1", gpus: "5"},
		replicatedJob{name: "trainer-node", pods: 3, cpus: "1", gpus: "5"},
	), rule(jobsetapi.SucceededStatus, "initializer"), rule(jobsetapi.ReadyStatus, "launcher"))
}

var _ = Describe("A staged JobSet", func() {
	It("holds no GPUs while its initializer runs (KEP-672 story 1)", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "15")
		submit(ctx, t.fineTune("one"))
		t.expectStages(ctx, "one", "initializer=ready", "trainer-node=closed")
		body, err := testenv.ReadMetrics(ctx, manager.Metrics)
		Expect(err).NotTo(HaveOccurred())
		Expect(body).To(MatchRegexp(`kueue_workload_creation_latency_seconds_count\{job_kind="JobSet",replica_role="standalone"\} [1-9]`))
		Expect(t.reserved(ctx, Default)).To(Equal("0"))
		By("running another JobSet on all GPUs meanwhile")
		submit(ctx, t.newJobSet("other", replicatedJob{name: "other", cpus: "1", gpus: "15"}))
		t.expectStages(ctx, "other", "other=ready")
		t.expectNow(ctx, "one", "initializer=ready", "trainer-node=closed")
		Expect(t.pods(ctx, Default, "trainer-node")).To(BeEmpty())
		t.end(ctx, "other", "other", corev1.PodSucceeded)
		t.expectOver(ctx, "other", jobset.JobSetCompleted)

		t.end(ctx, "one", "initializer", corev1.PodSucceeded)
		t.expectStages(ctx, "one", "initializer=Succeeded", "trainer-node=ready")
		Eventually(func(g Gomega) { g.Expect(t.reserved(ctx, g)).To(Equal("15")) }).WithContext(ctx).Should(Succeed())
		for _, pod := range t.pods(ctx, Default, "trainer-node") {
			Expect(pod.Spec.NodeSelector).To(HaveKeyWithValue("accelerator", "a100"))
			Expect(pod.Spec.NodeName).To(HavePrefix("a100"))
			Expect(pod.Labels).To(And(HaveKeyWithValue(apis.PodSetLabel, "trainer-node"), HaveKeyWithValue(apis.LocalQueueLabel, "queue"),
				HaveKeyWithValue(apis.ClusterQueueLabel, t.namespace)))
		}

		By("running the initializer of a second JobSet while the first trains")
		submit(ctx, t.fineTune("two"))
		t.expectStages(ctx, "two", "initializer=ready", "trainer-node=closed")
		t.end(ctx, "two", "initializer", corev1.PodSucceeded)
		t.expectStages(ctx, "two", "initializer=Succeeded", "trainer-node=waiting")
		Eventually(func(g Gomega) {
			var js jobsetapi.JobSet
			g.Expect(env.Admin.Get(ctx, client.ObjectKey{Namespace: t.namespace, Name: "two"}, &js)).To(Succeed())
			c := apimeta.FindStatusCondition(js.Status.Conditions, "StageAdmitted")
			g.Expect(c).NotTo(BeNil())
			g.Expect(c.Message).To(And(ContainSubstring("trainer-node"), ContainSubstring("nvidia.com/gpu"), ContainSubstring("a100"), ContainSubstring("15")))
		}).WithContext(ctx).Should(Succeed())

		t.end(ctx, "one", "trainer-node", corev1.PodSucceeded)
		t.expectOver(ctx, "one", jobset.JobSetCompleted)
		t.expectStages(ctx, "two", "trainer-node=ready")
		t.end(ctx, "two", "trainer-node", corev1.PodSucceeded)
		t.expectOver(ctx, "two", jobset.JobSetCompleted)
		Eventually(func(g Gomega) { g.Expect(t.reserved(ctx, g)).To(Equal("0")) }).WithContext(ctx).Should(Succeed())
	}, SpecTimeout(specTimeout))

	It("keeps a launcher's quota while its trainers run (KEP-672 story 2)", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "20")
		submit(ctx, t.deepSpeed("mpi"))
		t.expectStages(ctx, "mpi", "initializer=ready", "launcher=closed", "trainer-node=closed")
		t.end(ctx, "mpi", "initializer", corev1.PodSucceeded)
		t.expectStages(ctx, "mpi", "initializer=Succeeded", "launcher=ready", "trainer-node=ready")
		Eventually(func(g Gomega) { g.Expect(t.reserved(ctx, g)).To(Equal("20")) }).WithContext(ctx).Should(Succeed())
		Eventually(func(g Gomega) {
			var js jobsetapi.JobSet
			g.Expect(env.Admin.Get(ctx, client.ObjectKey{Namespace: t.namespace, Name: "mpi"}, &js)).To(Succeed())
			g.Expect(apimeta.IsStatusConditionTrue(js.Status.Conditions, string(jobset.JobSetStartupPolicyCompleted))).To(BeTrue())
			g.Expect(apimeta.IsStatusConditionTrue(js.Status.Conditions, string(jobset.JobSetStartupPolicyInProgress))).To(BeFalse())
		}).WithContext(ctx).Should(Succeed())
		t.end(ctx, "mpi", "trainer-node", corev1.PodSucceeded)
		t.end(ctx, "mpi", "launcher", corev1.PodSucceeded)
		t.expectOver(ctx, "mpi", jobset.JobSetCompleted)
	}, SpecTimeout(specTimeout))

	It("does not let two launchers wait for each other's GPUs", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "20")
		submit(ctx, t.deepSpeed("first"))
		submit(ctx, t.deepSpeed("second"))
		t.end(ctx, "first", "initializer", corev1.PodSucceeded)
		t.end(ctx, "second", "initializer", corev1.PodSucceeded)
		t.expectStages(ctx, "first", "launcher=ready", "trainer-node=ready")
		t.expectStages(ctx, "second", "launcher=waiting", "trainer-node=closed")
		t.end(ctx, "first", "trainer-node", corev1.PodSucceeded)
		t.end(ctx, "first", "launcher", corev1.PodSucceeded)
		t.expectStages(ctx, "second", "launcher=ready", "trainer-node=ready")
	}, SpecTimeout(specTimeout))

	It("waits for Ready between ReplicatedJobs that are InOrder without rules, again after a suspension", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "15")
		js := inOrder(t.newJobSet("ordered", replicatedJob{name: "driver", cpus: "1"}, replicatedJob{name: "workers", pods: 2, cpus: "1"}))
		js.Spec.ReplicatedJobs[0].Template.Spec.Template.Annotations[controlplane.FakeReadyAfter] = "1h"
		submit(ctx, js)
		startsInOrder := func() {
			t.expectStages(ctx, "ordered", "driver=admitted", "workers=closed")
			Eventually(func(g Gomega) { g.Expect(t.job(ctx, g, "driver").Status.Active).To(Equal(int32(1))) }).WithContext(ctx).Should(Succeed())
			t.expectStill(ctx, "ordered", "driver=admitted", "workers=closed")
			Expect(t.pods(ctx, Default, "workers")).To(BeEmpty())
			makeReady(ctx, t, "driver")
			t.expectStages(ctx, "ordered", "driver=ready", "workers=ready")
		}
		startsInOrder()
		suspend(ctx, js, true)
		t.expectStages(ctx, "ordered", "driver=closed", "workers=closed")
		suspend(ctx, js, false)
		startsInOrder()
	}, SpecTimeout(specTimeout))

	It("follows dependsOn with Ready and Complete", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "15")
		submit(ctx, t.newJobSet("graph",
			replicatedJob{name: "data", cpus: "1"},
			replicatedJob{name: "server", cpus: "1", after: []jobset.DependsOn{{Name: "data", Status: jobset.DependencyComplete}}},
			replicatedJob{name: "client", cpus: "1", after: []jobset.DependsOn{{Name: "server", Status: jobset.DependencyReady}}},
		))
		t.expectStages(ctx, "graph", "data=ready", "server=closed", "client=closed")
		t.expectStill(ctx, "graph", "data=ready", "server=closed", "client=closed")
		t.end(ctx, "graph", "data", corev1.PodSucceeded)
		t.expectStages(ctx, "graph", "data=Succeeded", "server=ready", "client=ready")
	}, SpecTimeout(specTimeout))

	It("is admitted as one Workload with AnyOrder, as in Kueue", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "15")
		js := submit(ctx, t.newJobSet("any", replicatedJob{name: "a", cpus: "1"}, replicatedJob{name: "b", replicas: 2, cpus: "1", gpus: "5"}))
		t.expectStages(ctx, "any", "a.b=ready")
		workloads := t.workloads(ctx, Default)
		Expect(workloads).To(HaveLen(1))
		Expect(workloads[0].Name).To(HavePrefix("jobset-any-"))
		Expect(workloads[0].Labels).To(HaveKeyWithValue(apis.JobUIDLabel, string(js.UID)))
		Expect(workloads[0].Spec.QueueName).To(Equal(kueue.LocalQueueName("queue")))
		Expect(workloads[0].Spec.PodSets).To(HaveLen(2))
		Expect(workloads[0].Spec.PodSets[1].Count).To(Equal(int32(2)))
	}, SpecTimeout(specTimeout))

	It("is charged for LimitRange defaults and RuntimeClass overhead of its pods", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "15")
		Expect(env.Admin.Create(ctx, &corev1.LimitRange{
			ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: "defaults"},
			Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
				Type: corev1.LimitTypeContainer, DefaultRequest: sample.Amounts("cpu", "3"), Default: sample.Amounts("cpu", "4"),
			}}},
		})).To(Succeed())
		overhead := &nodev1.RuntimeClass{
			ObjectMeta: metav1.ObjectMeta{Name: "sandboxed"}, Handler: "sandbox", Overhead: &nodev1.Overhead{PodFixed: sample.Amounts("cpu", "2")},
		}
		Expect(env.Admin.Create(ctx, overhead)).To(Succeed())
		js := t.newJobSet("defaulted", replicatedJob{name: "main"})
		js.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.RuntimeClassName = &overhead.Name
		submit(ctx, js)
		t.expectStages(ctx, "defaulted", "main=ready")
		charged := t.workloads(ctx, Default)[0].Status.Admission.PodSetAssignments[0].ResourceUsage[corev1.ResourceCPU]
		Expect(charged.String()).To(Equal("5"))
	}, SpecTimeout(specTimeout))

	It("is not changed if it has no queue name", func(ctx SpecContext) {
		t := newTeam(ctx, "0", "0")
		js := t.newJobSet("free", replicatedJob{name: "main", cpus: "1"})
		js.Labels = nil
		submit(ctx, js)
		Eventually(func(g Gomega) { g.Expect(t.pods(ctx, g, "main")).To(HaveLen(1)) }).WithContext(ctx).Should(Succeed())
		awaitHandledWithoutQueue(ctx)
		Expect(t.workloads(ctx, Default)).To(BeEmpty())
		Expect(t.jobs(ctx, Default, "main")[0].Labels).NotTo(HaveKey(apis.HoldLabel))
	}, SpecTimeout(specTimeout))

	It("never runs the stages after a failed stage, and releases its quota", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "15")
		submit(ctx, t.fineTune("bad"))
		t.expectStages(ctx, "bad", "initializer=ready")
		t.end(ctx, "bad", "initializer", corev1.PodFailed)
		t.expectOver(ctx, "bad", jobset.JobSetFailed)
		t.expectStages(ctx, "bad", "initializer=Failed", "trainer-node=Failed")
		Expect(t.pods(ctx, Default, "trainer-node")).To(BeEmpty())
		var queue kueue.ClusterQueue
		Eventually(func(g Gomega) {
			g.Expect(env.Admin.Get(ctx, client.ObjectKey{Name: t.namespace}, &queue)).To(Succeed())
			g.Expect(queue.Status.ReservingWorkloads).To(BeZero())
			g.Expect(queue.Status.PendingWorkloads).To(BeZero())
		}).WithContext(ctx).Should(Succeed())
	}, SpecTimeout(specTimeout))

	It("runs its stages from the first when the failure policy restarts it", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "15")
		js := t.fineTune("again")
		js.Spec.FailurePolicy = &jobset.FailurePolicy{MaxRestarts: 1}
		submit(ctx, js)
		t.end(ctx, "again", "initializer", corev1.PodSucceeded)
		t.expectStages(ctx, "again", "trainer-node=ready")
		t.end(ctx, "again", "trainer-node", corev1.PodFailed)
		t.expectStages(ctx, "again", "initializer=ready", "trainer-node=admitted")
		Expect(t.pods(ctx, Default, "trainer-node")).To(BeEmpty())
		t.end(ctx, "again", "initializer", corev1.PodSucceeded)
		t.expectStages(ctx, "again", "initializer=Succeeded", "trainer-node=ready")
		t.end(ctx, "again", "trainer-node", corev1.PodSucceeded)
		t.expectOver(ctx, "again", jobset.JobSetCompleted)
	}, SpecTimeout(specTimeout))

	It("releases all quota when its user suspends it, and requeues when it is resumed", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "15")
		js := submit(ctx, t.fineTune("pause"))
		t.end(ctx, "pause", "initializer", corev1.PodSucceeded)
		t.expectStages(ctx, "pause", "initializer=Succeeded", "trainer-node=ready")
		suspend(ctx, js, true)
		t.expectStages(ctx, "pause", "initializer=Succeeded", "trainer-node=closed")
		Eventually(func(g Gomega) {
			g.Expect(t.reserved(ctx, g)).To(Equal("0"))
			g.Expect(t.pods(ctx, g, "trainer-node")).To(BeEmpty())
		}).WithContext(ctx).Should(Succeed())
		suspend(ctx, js, false)
		t.expectStages(ctx, "pause", "trainer-node=ready")
		t.end(ctx, "pause", "trainer-node", corev1.PodSucceeded)
		t.expectOver(ctx, "pause", jobset.JobSetCompleted)
	}, SpecTimeout(specTimeout))

	It("leaves no object behind when it is deleted while it runs", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "15")
		js := submit(ctx, t.fineTune("short-lived"))
		t.expectStages(ctx, "short-lived", "initializer=ready")
		Expect(env.Admin.Delete(ctx, js, client.PropagationPolicy("Background"))).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(t.workloads(ctx, g)).To(BeEmpty())
			g.Expect(t.pods(ctx, g, "")).To(BeEmpty())
		}).WithContext(ctx).Should(Succeed(), func() string { return t.describe(ctx) })
	}, SpecTimeout(specTimeout))

	It("keeps its priority class while it holds quota", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "15")
		submit(ctx, t.fineTune("unranked"))
		t.expectStages(ctx, "unranked", "initializer=ready")
		class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: t.namespace}, Value: 7, GlobalDefault: true}
		Expect(env.Admin.Create(ctx, class)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(env.Admin.Delete(ctx, class)).To(Succeed()) })
		Eventually(func(g Gomega) {
			g.Expect(t.workload(ctx, g, "unranked", "trainer-node").Spec.Priority).To(HaveValue(BeEquivalentTo(7)), "a stage without quota gets the class")
		}).WithContext(ctx).Should(Succeed())
		Expect(t.workload(ctx, Default, "unranked", "initializer").Spec.PriorityClassRef).To(BeNil())
		t.end(ctx, "unranked", "initializer", corev1.PodSucceeded)
		t.expectStages(ctx, "unranked", "initializer=Succeeded", "trainer-node=ready")
	}, SpecTimeout(specTimeout))

	It("reports that gangs have no effect unless a provider is configured", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "15")
		js := t.newJobSet("gang", replicatedJob{name: "main", cpus: "1"})
		js.Spec.GangConfig = &jobsetapi.GangConfig{GangMode: jobsetapi.GangModeGang}
		submit(ctx, js)
		Eventually(func(g Gomega) {
			g.Expect(env.Admin.Get(ctx, client.ObjectKeyFromObject(js), js)).To(Succeed())
			for condition, want := range map[string][]string{
				"GangScheduling": {"NotConfigured", "spec.gangConfig: gangs are not placed whole: neither gang.provider"},
			} {
				c := apimeta.FindStatusCondition(js.Status.Conditions, condition)
				g.Expect(c).NotTo(BeNil(), condition)
				g.Expect(c.Status).To(Equal(metav1.ConditionFalse))
				g.Expect(c.Reason).To(Equal(want[0]))
				g.Expect(c.Message).To(ContainSubstring(want[1]))
			}
		}).WithContext(ctx).Should(Succeed())
	}, SpecTimeout(specTimeout))
})

func suspend(ctx SpecContext, js *jobsetapi.JobSet, suspended bool) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(env.Admin.Get(ctx, client.ObjectKeyFromObject(js), js)).To(Succeed())
		js.Spec.Suspend = &suspended
		g.Expect(env.Admin.Update(ctx, js)).To(Succeed())
	}).WithContext(ctx).Should(Succeed())
}

// makeReady makes the running pods of a ReplicatedJob ready.
func makeReady(ctx SpecContext, t team, replicatedJob string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		pods := t.pods(ctx, g, replicatedJob)
		g.Expect(pods).NotTo(BeEmpty())
		for i := range pods {
			pods[i].Status.Phase = corev1.PodRunning
			pods[i].Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
			g.Expect(env.Admin.Status().Update(ctx, &pods[i])).To(Succeed())
		}
	}).WithContext(ctx).Should(Succeed())
}
