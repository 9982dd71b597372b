package e2e_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/test/controlplane"
	"github.com/tranche-dev/tranche/test/testenv"
)

// Timeouts of the manager for the specs about readiness. The specs wait for their effect, so they are short, but long enough that ready
// pods are in time on a busy machine.
const (
	startTimeout    = 8 * time.Second
	recoveryTimeout = 3 * time.Second
)

// Each of these was reported for a production system. The issue is named where it is known.
var _ = Describe("A bug reported against Kueue or JobSet:", func() {
	Describe("with readiness timeouts", Ordered, func() {
		BeforeAll(func(ctx SpecContext) {
			Expect(manager.Stop()).To(Succeed())
			var err error
			manager, err = env.StartManager(ctx, testenv.ManagerOptions{Settings: map[string]any{"waitForPodsReady": map[string]any{
				"enable": true, "timeout": startTimeout.String(), "recoveryTimeout": recoveryTimeout.String(),
				"requeuingStrategy": map[string]any{"backoffBaseSeconds": 1, "backoffMaxSeconds": 1},
			}}})
			Expect(err).NotTo(HaveOccurred())
		})

		AfterAll(func(ctx SpecContext) {
			Expect(manager.Stop()).To(Succeed())
			var err error
			manager, err = env.StartManager(ctx, testenv.ManagerOptions{})
			Expect(err).NotTo(HaveOccurred())
		})

		It("no queued Job holds quota whose pods find no node", func(ctx SpecContext) {
			t := newTeam(ctx, "100", "2")
			job := t.newJob("stuck", 1, "2")
			job.Spec.Template.Spec.NodeSelector = map[string]string{t.namespace: "nowhere"}
			Expect(env.Admin.Create(ctx, job)).To(Succeed())
			Eventually(func(g Gomega) {
				_, w := t.queued(ctx, g, "stuck")
				g.Expect(stateOfStage(w)).To(Equal("admitted"))
			}).WithContext(ctx).Should(Succeed())
			Expect(env.Admin.Create(ctx, t.newJob("rival", 1, "2"))).To(Succeed())
			t.expectJob(ctx, "rival", "ready")
			Eventually(func(g Gomega) {
				_, w := t.queued(ctx, g, "stuck")
				g.Expect(w.Status.SchedulingStats.Evictions).To(ContainElement(HaveField("Reason", kueue.WorkloadEvictedByPodsReadyTimeout)))
				g.Expect(t.podsOfJob(ctx, g, "stuck")).To(BeEmpty())
			}).WithContext(ctx).Should(Succeed(), func() string { return t.describe(ctx) })
			t.expectReserved(ctx, "2")
		}, SpecTimeout(specTimeout))

		It("no quota leaks of a restarted JobSet that is evicted because it does not recover (kueue #14811)", func(ctx SpecContext) {
			t := newTeam(ctx, "100", "15")
			node := t.labelNode(ctx, "a100-7")
			js := t.training("restarted")
			js.Spec.FailurePolicy = &jobset.FailurePolicy{MaxRestarts: 3, RestartStrategy: jobset.Recreate}
			js.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.NodeSelector = map[string]string{t.namespace: "here"}
			submit(ctx, js)
			t.expectStages(ctx, "restarted", "trainer=ready")
			submit(ctx, t.newJobSet("rival", replicatedJob{name: "main", cpus: "1", gpus: "15"}))
			t.expectStages(ctx, "rival", "main=waiting")

			t.unlabelNode(ctx, node)
			t.endOne(ctx, "restarted", "trainer", corev1.PodFailed)
			t.expectRestarts(ctx, "restarted", 1)
			t.expectStages(ctx, "rival", "main=ready")
			w := t.workload(ctx, Default, "restarted", "trainer")
			Expect(w.Status.Admission).To(BeNil())
			Expect(w.Status.SchedulingStats.Evictions).To(ConsistOf(HaveField("UnderlyingCause", BeEquivalentTo("WaitForRecovery"))))
			t.expectReserved(ctx, "15")
			t.expectRestarts(ctx, "restarted", 1)
			t.end(ctx, "rival", "main", corev1.PodSucceeded)
			t.labelNode(ctx, node)
			t.expectStages(ctx, "restarted", "trainer=ready")
			t.end(ctx, "restarted", "trainer", corev1.PodSucceeded)
			t.expectOver(ctx, "restarted", jobset.JobSetCompleted)
			t.expectReserved(ctx, "0")
		}, SpecTimeout(specTimeout))

		It("a gang that has finished in part starts whole again, without a loop of evictions (kueue #10487, jobset #1208)", func(ctx SpecContext) {
			t := newTeam(ctx, "100", "15")
			submit(ctx, t.training("gang"))
			t.expectStages(ctx, "gang", "trainer=ready")
			t.succeedOne(ctx, "gang", "trainer")
			t.setReady(ctx, "gang", "trainer", corev1.ConditionFalse)
			t.expectEvent(ctx, "gang", "StageRequeued")
			Eventually(func(g Gomega) {
				g.Expect(t.stage(ctx, g, "gang", "trainer")).To(Equal("ready"))
				for _, job := range t.jobs(ctx, g, "trainer") {
					g.Expect(ptr.Deref(job.Status.Ready, 0)).To(Equal(int32(3)))
					g.Expect(job.Status.Succeeded).To(BeZero())
				}
			}).WithContext(ctx).Should(Succeed(), func() string { return t.describe(ctx) })
			t.end(ctx, "gang", "trainer", corev1.PodSucceeded)
			t.expectOver(ctx, "gang", jobset.JobSetCompleted)
			Expect(t.evictions(ctx, "gang", "trainer")).To(Equal(1))
			t.expectNoRestart(ctx, "gang")
		}, SpecTimeout(specTimeout))

		It("stages that have not started do not count, so no healthy JobSet is evicted (kueue #6796)", func(ctx SpecContext) {
			t := newTeam(ctx, "100", "45")
			for _, name := range []string{"healthy", "restarted", "sick"} {
				js := t.fineTune(name)
				js.Spec.FailurePolicy = &jobset.FailurePolicy{MaxRestarts: 1}
				if name == "sick" {
					js.Spec.ReplicatedJobs[1].Template.Spec.Template.Annotations[controlplane.FakeReadyAfter] = "1h"
				}
				submit(ctx, js)
			}
			t.end(ctx, "restarted", "initializer", corev1.PodSucceeded)
			t.expectStages(ctx, "restarted", "trainer-node=ready")
			t.endOne(ctx, "restarted", "trainer-node", corev1.PodFailed)
			t.expectStages(ctx, "restarted", "initializer=ready", "trainer-node=admitted")
			t.expectStages(ctx, "healthy", "initializer=ready", "trainer-node=closed")
			t.expectStages(ctx, "sick", "initializer=ready", "trainer-node=closed")

			By("measuring a stage that does not become ready from its own release")
			t.end(ctx, "sick", "initializer", corev1.PodSucceeded)
			t.expectEvent(ctx, "sick", "StageRequeued")
			w := t.workload(ctx, Default, "sick", "trainer-node")
			Expect(w.Status.SchedulingStats.Evictions[0].UnderlyingCause).To(BeEquivalentTo("WaitForStart"))
			evicted := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadEvicted)
			opened := t.workload(ctx, Default, "sick", "initializer").Status.Conditions
			Expect(evicted.LastTransitionTime.Sub(apimeta.FindStatusCondition(opened, kueue.WorkloadFinished).LastTransitionTime.Time)).
				To(BeNumerically(">=", startTimeout-time.Second))
			Expect(t.stage(ctx, Default, "sick", "initializer")).To(Equal("Succeeded"), "what has succeeded is not run again")

			By("running the other initializers for longer than any timeout")
			again := t.workload(ctx, Default, "restarted", "initializer").CreationTimestamp.Time
			Eventually(func() time.Duration { return time.Since(again) }).WithContext(ctx).Should(BeNumerically(">", startTimeout+time.Second))
			for _, name := range []string{"healthy", "restarted"} {
				t.end(ctx, name, "initializer", corev1.PodSucceeded)
				t.expectStages(ctx, name, "trainer-node=ready")
				t.end(ctx, name, "trainer-node", corev1.PodSucceeded)
				t.expectOver(ctx, name, jobset.JobSetCompleted)
				Expect(t.evictions(ctx, name, "initializer")+t.evictions(ctx, name, "trainer-node")).To(BeZero(), name)
			}
		}, SpecTimeout(specTimeout))
	})

	It("a restarted JobSet is charged in full, so no other JobSet gets its quota (kueue #14609)", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "12")
		js := t.newJobSet("shards", replicatedJob{name: "shard", replicas: 3, cpus: "1", gpus: "4"})
		js.Spec.FailurePolicy = &jobset.FailurePolicy{MaxRestarts: 1}
		submit(ctx, js)
		t.expectStages(ctx, "shards", "shard=ready")
		submit(ctx, t.newJobSet("rival", replicatedJob{name: "main", cpus: "1", gpus: "4"}))
		t.expectStages(ctx, "rival", "main=waiting")

		By("giving the rival the quota of a succeeded shard")
		t.endJob(ctx, "shards-shard-0", corev1.PodSucceeded)
		t.expectStages(ctx, "rival", "main=ready")
		t.expectReserved(ctx, "12")

		By("restarting all shards: no quota fits them before the rival has finished")
		t.endJob(ctx, "shards-shard-1", corev1.PodFailed)
		t.expectRestarts(ctx, "shards", 1)
		t.expectStages(ctx, "shards", "shard=waiting")
		Expect(t.podsOf(ctx, Default, "shards", "shard")).To(BeEmpty())
		t.expectReserved(ctx, "4")
		t.end(ctx, "rival", "main", corev1.PodSucceeded)
		t.expectStages(ctx, "shards", "shard=ready")
		t.expectReserved(ctx, "12")
		t.drive(ctx, "shards")
		t.expectReserved(ctx, "0")
	}, SpecTimeout(specTimeout))

	It("two JobSets, each with a launcher, do not deadlock on quota for their workers", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "20")
		for _, name := range []string{"one", "two"} {
			submit(ctx, inOrder(t.newJobSet(name,
				replicatedJob{name: "launcher", cpus: "1", gpus: "5"},
				replicatedJob{name: "workers", pods: 3, cpus: "1", gpus: "5"},
			), rule(jobsetapi.ReadyStatus, "launcher")))
		}
		Eventually(func(g Gomega) {
			first, second := t.stage(ctx, g, "one", "workers"), t.stage(ctx, g, "two", "workers")
			g.Expect([]string{first, second}).To(ConsistOf("ready", "closed"))
		}).WithContext(ctx).Should(Succeed(), func() string { return t.describe(ctx) })
		t.expectReserved(ctx, "20")
		t.drive(ctx, "one", "two")
		t.expectReserved(ctx, "0")
		for _, name := range []string{"one", "two"} {
			Expect(t.evictions(ctx, name, "launcher")+t.evictions(ctx, name, "workers")).To(BeZero(), "nothing was evicted to get there")
		}
	}, SpecTimeout(specTimeout))
})

// evictions counts how often a stage was evicted.
func (t team) evictions(ctx context.Context, jobSet, stage string) int {
	count := 0
	if stats := t.workload(ctx, Default, jobSet, stage).Status.SchedulingStats; stats != nil {
		for _, eviction := range stats.Evictions {
			count += int(eviction.Count)
		}
	}
	return count
}

// labelNode allows pods that select the team's namespace to run on a node.
func (t team) labelNode(ctx context.Context, node string) string {
	GinkgoHelper()
	t.patchNode(ctx, node, func(labels map[string]string) { labels[t.namespace] = "here" })
	return node
}

// unlabelNode reverts labelNode.
func (t team) unlabelNode(ctx context.Context, node string) {
	GinkgoHelper()
	t.patchNode(ctx, node, func(labels map[string]string) { delete(labels, t.namespace) })
}

func (t team) patchNode(ctx context.Context, name string, change func(map[string]string)) {
	GinkgoHelper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	Expect(env.Admin.Get(ctx, client.ObjectKeyFromObject(node), node)).To(Succeed())
	before := node.DeepCopy()
	change(node.Labels)
	Expect(env.Admin.Patch(ctx, node, client.MergeFrom(before))).To(Succeed())
}
