package e2e_test

import (
	"math"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
)

var _ = Describe("A JobSet that its failure policy restarts", func() {
	It("keeps the quota of its stages, and requeues its finished stages (Recreate, BlockingRecreate)", func(ctx SpecContext) {
		teams := map[jobset.JobSetRestartStrategy]team{jobset.Recreate: newTeam(ctx, "5", "20"), jobset.BlockingRecreate: newTeam(ctx, "5", "20")}
		before := map[team]map[string]types.UID{}
		for strategy, t := range teams {
			js := slowly(t.deepSpeed("again"), "1s")
			js.Spec.FailurePolicy = &jobset.FailurePolicy{MaxRestarts: 1, RestartStrategy: strategy}
			submit(ctx, js)
		}
		for _, t := range teams {
			t.end(ctx, "again", "initializer", corev1.PodSucceeded)
			t.expectStages(ctx, "again", "initializer=Succeeded", "launcher=ready", "trainer-node=ready")
			submit(ctx, t.newJobSet("rival", replicatedJob{name: "main", cpus: "1", gpus: "5"}))
			t.expectStages(ctx, "rival", "main=waiting")
			before[t] = t.uids(ctx, "again", "initializer", "launcher", "trainer-node")
			t.endOne(ctx, "again", "trainer-node", corev1.PodFailed)
		}
		for _, t := range teams {
			t.expectRestarts(ctx, "again", 1)
			t.expectStages(ctx, "again", "initializer=ready", "launcher=admitted", "trainer-node=admitted")
			after := t.uids(ctx, "again", "initializer", "launcher", "trainer-node")
			Expect(after).To(HaveKeyWithValue("launcher", before[t]["launcher"]))
			Expect(after).To(HaveKeyWithValue("trainer-node", before[t]["trainer-node"]))
			Expect(after["initializer"]).NotTo(Equal(before[t]["initializer"]), "the finished stage is requeued")
			Eventually(func(g Gomega) {
				g.Expect(t.podsOf(ctx, g, "again", "launcher")).To(BeEmpty())
				g.Expect(t.podsOf(ctx, g, "again", "trainer-node")).To(BeEmpty())
			}).WithContext(ctx).Should(Succeed())
			t.expectReserved(ctx, "20")
			t.expectStages(ctx, "rival", "main=waiting")
			t.end(ctx, "again", "initializer", corev1.PodSucceeded)
		}
		for _, t := range teams {
			t.expectStages(ctx, "again", "initializer=Succeeded", "launcher=ready", "trainer-node=ready")
			t.drive(ctx, "again", "rival")
			t.expectReserved(ctx, "0")
			Eventually(func(g Gomega) {
				told := t.told(ctx, g, "again", "StageFinished")
				g.Expect(told).To(HaveKeyWithValue(ContainSubstring(`"initializer"`), 2), "%v", told)
			}).WithContext(ctx).Should(Succeed())
		}
	}, SpecTimeout(specTimeout))

	It("keeps running while one Job is restarted alone (RestartJob)", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "15")
		js := inOrder(t.newJobSet("single",
			replicatedJob{name: "server", cpus: "1", gpus: "5"},
			replicatedJob{name: "worker", replicas: 2, cpus: "1", gpus: "5"},
		), rule(jobsetapi.ReadyStatus, "server"))
		js.Spec.FailurePolicy = &jobset.FailurePolicy{MaxRestarts: 3, Rules: []jobset.FailurePolicyRule{{Name: "alone", Action: jobset.RestartJob}}}
		submit(ctx, js)
		t.expectStages(ctx, "single", "server=ready", "worker=ready")
		submit(ctx, t.newJobSet("rival", replicatedJob{name: "main", cpus: "1", gpus: "5"}))
		Eventually(func(g Gomega) { g.Expect(t.jobUIDs(ctx, g)).To(HaveKey("rival-main-0")) }).WithContext(ctx).Should(Succeed())
		before := t.uids(ctx, "single", "server", "worker")
		for _, failed := range []string{"single-worker-1", "single-server-0"} {
			jobs := t.jobUIDs(ctx, Default)
			t.endJob(ctx, failed, corev1.PodFailed)
			Eventually(func(g Gomega) {
				now := t.jobUIDs(ctx, g)
				g.Expect(now).To(HaveLen(len(jobs)))
				for name, uid := range jobs {
					g.Expect(now[name] == uid).To(Equal(name != failed), name)
				}
				for _, stage := range []string{"server", "worker"} {
					g.Expect(t.stage(ctx, g, "single", stage)).To(Equal("ready"), stage)
				}
			}).WithContext(ctx).Should(Succeed(), func() string { return t.describe(ctx) })
		}
		Expect(t.uids(ctx, "single", "server", "worker")).To(Equal(before))
		Expect(t.get(ctx, Default, "single").Status.Restarts).To(BeZero())
		t.expectStages(ctx, "rival", "main=waiting")
		t.end(ctx, "single", "worker", corev1.PodSucceeded)
		t.end(ctx, "single", "server", corev1.PodSucceeded)
		t.expectOver(ctx, "single", jobset.JobSetCompleted)
		t.end(ctx, "rival", "main", corev1.PodSucceeded)
		t.expectReserved(ctx, "0")
	}, SpecTimeout(specTimeout))

	It("keeps its quota while its containers restart in place, and an eviction does not count as a restart (InPlaceRestart)", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "15")
		js := t.training("inplace")
		js.Spec.FailurePolicy = &jobset.FailurePolicy{MaxRestarts: 2, RestartStrategy: jobset.InPlaceRestart}
		spec := &js.Spec.ReplicatedJobs[0].Template.Spec
		spec.BackoffLimit, spec.PodReplacementPolicy = new(int32(math.MaxInt32)), ptr.To(batchv1.Failed)
		submit(ctx, js)
		t.expectStages(ctx, "inplace", "trainer=ready")
		uid := t.workload(ctx, Default, "inplace", "trainer").UID
		t.reachAttempt(ctx, "inplace", 0)
		submit(ctx, t.newJobSet("rival", replicatedJob{name: "main", cpus: "1", gpus: "5"}))

		By("restarting the containers of all pods, one of which failed")
		t.setReady(ctx, "inplace", "trainer", corev1.ConditionFalse)
		t.expectStages(ctx, "inplace", "trainer=admitted")
		t.reachAttempt(ctx, "inplace", 1)
		t.setReady(ctx, "inplace", "trainer", corev1.ConditionTrue)
		t.expectStages(ctx, "inplace", "trainer=ready")
		Expect(t.workload(ctx, Default, "inplace", "trainer").UID).To(Equal(uid))
		t.expectStages(ctx, "rival", "main=waiting")
		t.expectReserved(ctx, "15")

		By("losing one pod, which its Job replaces")
		t.endOne(ctx, "inplace", "trainer", corev1.PodFailed)
		Eventually(func(g Gomega) {
			ready := int32(0)
			for _, job := range t.jobs(ctx, g, "trainer") {
				ready += ptr.Deref(job.Status.Ready, 0)
				g.Expect(job.Status.Failed).To(Equal(int32(1)))
			}
			g.Expect(ready).To(Equal(int32(3)))
		}).WithContext(ctx).Should(Succeed(), func() string { return t.describe(ctx) })
		t.reachAttempt(ctx, "inplace", 2)
		t.expectStages(ctx, "inplace", "trainer=ready")

		By("evicting it")
		t.evict(ctx, "inplace", "trainer", preemption)
		t.expectEvent(ctx, "inplace", "StageRequeued")
		t.expectStages(ctx, "inplace", "trainer=ready")
		t.reachAttempt(ctx, "inplace", 2)
		t.expectNoRestart(ctx, "inplace")
		t.end(ctx, "inplace", "trainer", corev1.PodSucceeded)
		t.expectOver(ctx, "inplace", jobset.JobSetCompleted)
		t.end(ctx, "rival", "main", corev1.PodSucceeded)
		t.expectReserved(ctx, "0")
	}, SpecTimeout(specTimeout))

	It("does not deadlock on quota for its first stage with JobSets that wait for quota it holds", func(ctx SpecContext) {
		t := newTeam(ctx, "6", "20")
		for _, name := range []string{"holder", "taker"} {
			js := t.deepSpeed(name)
			js.Spec.FailurePolicy = &jobset.FailurePolicy{MaxRestarts: 1}
			js.Annotations = map[string]string{apis.StageAdmissionAnnotation: "Safe"}
			if name == "taker" {
				js = inOrder(t.newJobSet(name,
					replicatedJob{name: "launcher", cpus: "2"},
					replicatedJob{name: "trainer-node", pods: 3, cpus: "1", gpus: "5"},
				), rule(jobsetapi.ReadyStatus, "launcher"))
				js.Spec.FailurePolicy = &jobset.FailurePolicy{MaxRestarts: 1}
			}
			submit(ctx, js)
			if name == "holder" {
				t.end(ctx, "holder", "initializer", corev1.PodSucceeded)
				t.expectStages(ctx, "holder", "launcher=ready", "trainer-node=ready")
			}
		}
		By("the holder holds 4 of 6 cpu and all GPUs; the taker's launcher has the other 2 cpu")
		t.expectStages(ctx, "taker", "launcher=ready", "trainer-node=waiting")
		t.endOne(ctx, "holder", "trainer-node", corev1.PodFailed)
		t.expectRestarts(ctx, "holder", 1)
		t.drive(ctx, "holder", "taker")
	}, SpecTimeout(specTimeout))
})
