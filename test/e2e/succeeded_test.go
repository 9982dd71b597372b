package e2e_test

import (
	"context"
	"math"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/lifecycle/childjob"
	"github.com/tranche-dev/tranche/test/controlplane"
)

var _ = Describe("A succeeded Job that is deleted", func() {
	It("does not run again when its time to live has expired, and evicts nothing", func(ctx SpecContext) {
		t := newTeam(ctx, "3", "15") // no quota for the initializer in addition to its trainers
		js := t.fineTune("ttl")
		js.Spec.ReplicatedJobs[0].Template.Spec.TTLSecondsAfterFinished = new(int32(0))
		submit(ctx, js)
		first := t.awaitRunning(ctx, "ttl", "initializer")
		t.succeedOne(ctx, "ttl", "initializer")
		t.expectStages(ctx, "ttl", "initializer=Succeeded", "trainer-node=ready")
		before := t.podUIDs(ctx, Default, "ttl")
		t.expectRecreated(ctx, "ttl-initializer-0", first)

		t.drive(ctx, "ttl")
		t.expectNoRestart(ctx, "ttl")
		Expect(t.evictions(ctx, "ttl", "trainer-node")).To(BeZero())
		Expect(t.podUIDs(ctx, Default, "ttl")).To(Equal(before), "no pod was made after the trainers")
		t.expectReserved(ctx, "0")
	}, SpecTimeout(specTimeout))

	It("does not run again when a user deletes it, with dependsOn and with its quota Workload", func(ctx SpecContext) {
		t := newTeam(ctx, "3", "15")
		submit(ctx, t.newJobSet("byhand",
			replicatedJob{name: "data", cpus: "1"},
			replicatedJob{name: "train", pods: 3, cpus: "1", gpus: "5", after: []jobset.DependsOn{{Name: "data", Status: jobset.DependencyComplete}}},
		))
		first := t.awaitRunning(ctx, "byhand", "data")
		t.end(ctx, "byhand", "data", corev1.PodSucceeded)
		t.expectStages(ctx, "byhand", "data=Succeeded", "train=ready")
		before := t.podUIDs(ctx, Default, "byhand")
		for range 2 {
			t.deleteJob(ctx, "byhand-data-0")
			t.expectRecreated(ctx, "byhand-data-0", first)
			first = t.jobUIDs(ctx, Default)["byhand-data-0"]
		}
		t.replaceWorkload(ctx, "byhand", "data", "Succeeded")

		t.drive(ctx, "byhand")
		Expect(t.evictions(ctx, "byhand", "train")).To(BeZero())
		Expect(before).To(ContainElements(t.podUIDs(ctx, Default, "byhand")), "no pod was made after the trainers")
		t.expectEvent(ctx, "byhand", "JobSkipped")
	}, SpecTimeout(specTimeout))

	It("does not stop the other Jobs of its stage", func(ctx SpecContext) {
		t := newTeam(ctx, "2", "10")
		submit(ctx, t.newJobSet("workers", replicatedJob{name: "worker", replicas: 2, cpus: "1", gpus: "5"}))
		t.expectStages(ctx, "workers", "worker=ready")
		before := t.podUIDs(ctx, Default, "workers")
		first := t.jobUIDs(ctx, Default)["workers-worker-0"]
		t.endJob(ctx, "workers-worker-0", corev1.PodSucceeded)
		t.expectReserved(ctx, "5")
		t.deleteJob(ctx, "workers-worker-0")
		t.expectRecreated(ctx, "workers-worker-0", first)

		t.drive(ctx, "workers")
		Expect(t.evictions(ctx, "workers", "worker")).To(BeZero())
		Expect(before).To(ContainElements(t.podUIDs(ctx, Default, "workers")))
	}, SpecTimeout(specTimeout))

	It("still counts for the JobSet controller, which otherwise would not create the Jobs of later stages", func(ctx SpecContext) {
		t := newTeam(ctx, "3", "15")
		js := t.newJobSet("early",
			replicatedJob{name: "data", cpus: "1"},
			replicatedJob{name: "train", pods: 3, cpus: "1", gpus: "5", after: []jobset.DependsOn{{Name: "data", Status: jobset.DependencyComplete}}},
		)
		submit(ctx, js)
		first := t.awaitRunning(ctx, "early", "data")
		Expect(env.Plane.KillComponent(controlplane.JobSet)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(env.Plane.StartComponent(ctx, controlplane.JobSet)).To(Succeed()) })
		t.end(ctx, "early", "data", corev1.PodSucceeded)
		t.expectStages(ctx, "early", "data=Succeeded", "train=admitted")
		t.deleteJob(ctx, "early-data-0")
		Expect(env.Plane.StartComponent(ctx, controlplane.JobSet)).To(Succeed())
		Eventually(func(g Gomega) {
			for _, job := range t.jobs(ctx, g, "data") {
				g.Expect(job.UID).NotTo(Equal(first))
				g.Expect(childjob.IsFinished(&job, batchv1.JobComplete)).To(BeTrue())
				g.Expect(job.Status.Succeeded).To(BeZero(), "it has run no pod")
			}
			g.Expect(t.stage(ctx, g, "early", "train")).To(Equal("ready"))
		}).WithContext(ctx).Should(Succeed(), func() string { return t.describe(ctx) })
		t.drive(ctx, "early")
	}, SpecTimeout(specTimeout))
})

var _ = Describe("A JobSet that is about to finish or restart", func() {
	// The JobSet controller is down, so that the manager has enough time to make the mistake.
	JustBeforeEach(func() {
		DeferCleanup(func(ctx SpecContext) { Expect(env.Plane.StartComponent(ctx, controlplane.JobSet)).To(Succeed()) })
	})

	for name, policy := range map[string]*jobset.SuccessPolicy{
		"any Job":                  {Operator: jobset.OperatorAny},
		"all Jobs of the targets":  {Operator: jobset.OperatorAll, TargetReplicatedJobs: []string{"initializer"}},
		"any of targets that wait": {Operator: jobset.OperatorAny, TargetReplicatedJobs: []string{"initializer", "trainer-node"}},
	} {
		It("opens no stage once its success policy is satisfied: "+name, func(ctx SpecContext) {
			t := newTeam(ctx, "100", "15")
			js := t.fineTune("any")
			js.Spec.SuccessPolicy = policy
			submit(ctx, js)
			t.expectStages(ctx, "any", "initializer=ready")
			Expect(env.Plane.KillComponent(controlplane.JobSet)).To(Succeed())
			t.end(ctx, "any", "initializer", corev1.PodSucceeded)
			// A stage finishes after the next one was opened.
			t.expectStages(ctx, "any", "initializer=Succeeded", "trainer-node=closed")
			Expect(env.Plane.StartComponent(ctx, controlplane.JobSet)).To(Succeed())
			t.expectOver(ctx, "any", jobset.JobSetCompleted)
			t.expectStages(ctx, "any", "trainer-node=Succeeded")
			w := t.workload(ctx, Default, "any", "trainer-node")
			Expect(quotaworkload.Gates(w)).To(ContainElement(apis.StageGate), "it was never opened")
			Expect(w.Status.Admission).To(BeNil())
		}, SpecTimeout(specTimeout))
	}

	It("opens and admits no stage once a Job has failed", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "15")
		js := t.newJobSet("failing",
			replicatedJob{name: "data", cpus: "1"},
			replicatedJob{name: "index", cpus: "1"},
			replicatedJob{name: "train", cpus: "1", after: []jobset.DependsOn{{Name: "data", Status: jobset.DependencyComplete}}},
			replicatedJob{name: "serve", cpus: "1", gpus: "15", after: []jobset.DependsOn{{Name: "index", Status: jobset.DependencyReady}}},
		)
		js.Spec.FailurePolicy = &jobset.FailurePolicy{MaxRestarts: 1}
		submit(ctx, t.newJobSet("hog", replicatedJob{name: "main", cpus: "1", gpus: "15"}))
		t.expectStages(ctx, "hog", "main=ready")
		submit(ctx, js)
		t.expectStages(ctx, "failing", "data.index=ready", "train=closed", "serve=waiting")

		Expect(env.Plane.KillComponent(controlplane.JobSet)).To(Succeed())
		t.endJob(ctx, "failing-index-0", corev1.PodFailed)
		t.expectStages(ctx, "failing", "serve=closed")
		t.end(ctx, "failing", "data", corev1.PodSucceeded)
		t.end(ctx, "hog", "main", corev1.PodSucceeded)
		t.expectStages(ctx, "hog", "main=Succeeded")
		t.expectStages(ctx, "failing", "data.index=admitted", "train=closed", "serve=closed")
		// A later Job shows that the manager has handled all that: the JobSet controller is down.
		Expect(env.Admin.Create(ctx, t.newJob("later", 1, ""))).To(Succeed())
		t.expectJob(ctx, "later", "ready")
		t.expectNow(ctx, "failing", "data.index=admitted", "train=closed", "serve=closed")

		Expect(env.Plane.StartComponent(ctx, controlplane.JobSet)).To(Succeed())
		t.expectRestarts(ctx, "failing", 1)
		t.drive(ctx, "failing")
	}, SpecTimeout(specTimeout))
})

var _ = Describe("A stage of several ReplicatedJobs in a JobSet with InOrder", func() {
	// Its pods become ready only when all of them exist, as those of a rendezvous.
	pair := func(t team) *jobsetapi.JobSet {
		js := inOrder(t.newJobSet("pair",
			replicatedJob{name: "init", cpus: "1"},
			replicatedJob{name: "left", cpus: "1", gpus: "5"},
			replicatedJob{name: "right", cpus: "1", gpus: "5"},
			replicatedJob{name: "eval", cpus: "1"},
		), rule(jobsetapi.SucceededStatus, "init"), rule(jobsetapi.ReadyStatus, "left", "right"))
		for i := 1; i <= 2; i++ {
			js.Spec.ReplicatedJobs[i].Template.Spec.Template.Annotations[controlplane.FakeReadyAfter] = "1h"
		}
		js.Spec.FailurePolicy = &jobset.FailurePolicy{MaxRestarts: 1}
		return js
	}
	meet := func(ctx SpecContext, t team, before []types.UID) {
		GinkgoHelper()
		Eventually(func(g Gomega) {
			for _, name := range []string{"left", "right"} {
				pods := t.podsOf(ctx, g, "pair", name)
				g.Expect(pods).To(HaveLen(1), name)
				g.Expect(before).NotTo(ContainElement(pods[0].UID), name)
				g.Expect(pods[0].Spec.NodeName).NotTo(BeEmpty())
			}
		}).WithContext(ctx).Should(Succeed(), func() string { return t.describe(ctx) })
		makeReady(ctx, t, "left")
		makeReady(ctx, t, "right")
		t.expectStages(ctx, "pair", "left.right=ready", "eval=ready")
	}

	It("starts together: initially, after a restart, and after an eviction that recreates Jobs", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "10")
		js := submit(ctx, pair(t))
		t.end(ctx, "pair", "init", corev1.PodSucceeded)
		meet(ctx, t, nil)

		By("restarting it")
		before := t.podUIDs(ctx, Default, "pair")
		t.endJob(ctx, "pair-eval-0", corev1.PodFailed)
		t.expectRestarts(ctx, "pair", 1)
		t.expectStages(ctx, "pair", "init=ready")
		t.end(ctx, "pair", "init", corev1.PodSucceeded)
		meet(ctx, t, before)

		By("deleting its Jobs while it is evicted")
		before, jobs := t.podUIDs(ctx, Default, "pair"), t.jobUIDs(ctx, Default)
		t.submitUrgent(ctx, "10")
		t.evict(ctx, "pair", "left.right", preemption)
		t.expectStages(ctx, "urgent", "urgent=ready")
		t.deleteJob(ctx, "pair-right-0")
		t.deleteJob(ctx, "pair-left-0")
		t.expectRecreated(ctx, "pair-left-0", jobs["pair-left-0"])
		t.end(ctx, "urgent", "urgent", corev1.PodSucceeded)
		meet(ctx, t, before)
		Expect(*t.get(ctx, Default, js.Name).Spec.Suspend).To(BeFalse())
		t.drive(ctx, "pair")
		t.expectRestarts(ctx, "pair", 1)
		t.expectReserved(ctx, "0")
	}, SpecTimeout(specTimeout))
})

var _ = Describe("A JobSet with InPlaceRestart", func() {
	It("is refused if it is queued and has several stages", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "15")
		inPlace := func(change func(*jobsetapi.JobSet)) error {
			js := t.newJobSet("in-place", replicatedJob{name: "a", cpus: "1"}, replicatedJob{name: "b", cpus: "1"})
			js.Spec.FailurePolicy = &jobset.FailurePolicy{RestartStrategy: jobset.InPlaceRestart}
			for i := range js.Spec.ReplicatedJobs {
				spec := &js.Spec.ReplicatedJobs[i].Template.Spec
				spec.BackoffLimit, spec.PodReplacementPolicy = new(int32(math.MaxInt32)), ptr.To(batchv1.Failed)
			}
			change(js)
			return env.Admin.Create(ctx, js, client.DryRunAll)
		}
		Expect(inPlace(func(*jobsetapi.JobSet) {})).To(Succeed())
		Expect(inPlace(func(js *jobsetapi.JobSet) { inOrder(js) })).To(MatchError(
			And(ContainSubstring("restartStrategy"), ContainSubstring("InOrder"), ContainSubstring("Recreate"))))
		Expect(inPlace(func(js *jobsetapi.JobSet) {
			inOrder(js)
			js.Spec.ReplicatedJobs = js.Spec.ReplicatedJobs[:1]
		})).To(Succeed(), "one stage")
		Expect(inPlace(func(js *jobsetapi.JobSet) {
			js.Spec.ReplicatedJobs[1].DependsOn = []jobset.DependsOn{{Name: "a", Status: jobset.DependencyReady}}
		})).To(MatchError(And(ContainSubstring("restartStrategy"), ContainSubstring("dependsOn"))))
		Expect(inPlace(func(js *jobsetapi.JobSet) {
			js.Labels = nil
			inOrder(js)
		})).To(Succeed(), "no queue")
	}, SpecTimeout(specTimeout))
})

// awaitRunning waits until the first Job of a ReplicatedJob has ready pods, and returns its UID.
func (t team) awaitRunning(ctx context.Context, jobSet, replicatedJob string) types.UID {
	GinkgoHelper()
	t.expectStages(ctx, jobSet, replicatedJob+"=ready")
	return t.jobs(ctx, Default, replicatedJob)[0].UID
}

// expectRecreated waits until the JobSet controller has recreated a deleted Job, and checks that it is held.
func (t team) expectRecreated(ctx context.Context, name string, before types.UID) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(t.jobUIDs(ctx, g)).To(HaveKeyWithValue(name, Not(Equal(before))))
		for _, job := range t.jobs(ctx, g, "") {
			if job.Name == name {
				g.Expect(childjob.IsHeld(&job)).To(BeTrue(), "%s is held", name)
				g.Expect(childjob.IsFinished(&job, batchv1.JobSuspended)).To(BeTrue(), "the Job controller knows")
			}
		}
	}).WithContext(ctx).Should(Succeed(), func() string { return t.describe(ctx) })
}
