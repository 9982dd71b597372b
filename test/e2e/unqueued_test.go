package e2e_test

import (
	"context"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	"sigs.k8s.io/jobset/pkg/constants"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstatus"
	"github.com/tranche-dev/tranche/test/controlplane"
	"github.com/tranche-dev/tranche/test/sample"
	"github.com/tranche-dev/tranche/test/testenv"
)

// unqueued makes a JobSet without a queue name: an initializer that has to succeed, a launcher that has to be ready, and a trainer.
func (t team) unqueued(name string) *jobsetapi.JobSet {
	js := inOrder(t.newJobSet(name, replicatedJob{name: "init", cpus: "1"}, replicatedJob{name: "launch", cpus: "1"}, replicatedJob{name: "train", pods: 2, cpus: "1"}),
		rule(jobsetapi.SucceededStatus, "init"), rule(jobsetapi.ReadyStatus, "launch"))
	js.Labels = nil
	return js
}

// unqueuedPair makes a JobSet without a queue name: an initializer that has to succeed, two that have to be ready, and a trainer.
func (t team) unqueuedPair(name string) *jobsetapi.JobSet {
	js := inOrder(t.newJobSet(name, replicatedJob{name: "init", cpus: "1"}, replicatedJob{name: "left", cpus: "1"}, replicatedJob{name: "right", cpus: "1"},
		replicatedJob{name: "train", cpus: "1"}), rule(jobsetapi.SucceededStatus, "init"), rule(jobsetapi.ReadyStatus, "left", "right"))
	js.Labels = nil
	return js
}

// expectRunning waits until the pods that run are those of these ReplicatedJobs, and that the others have none that do.
func (t team) expectRunning(ctx context.Context, jobSet string, pods ...string) {
	GinkgoHelper()
	Eventually(func(g Gomega) { g.Expect(t.running(ctx, g, jobSet)).To(ConsistOf(pods)) }).WithContext(ctx).
		Should(Succeed(), func() string { return t.describe(ctx) })
}

// running returns the ReplicatedJobs of the pods of a JobSet that run.
func (t team) running(ctx context.Context, g Gomega, jobSet string) []string {
	var names []string
	for _, pod := range t.pods(ctx, g, "") {
		if pod.Labels[jobset.JobSetNameKey] == jobSet && pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil {
			names = append(names, pod.Labels[jobset.ReplicatedJobNameKey])
		}
	}
	return names
}

// awaitHandledWithoutQueue does what awaitHandled does, for the manager of JobSets without a queue: a later one starts its first stage. The auditor judges only
// pods that need quota.
func awaitHandledWithoutQueue(ctx context.Context) {
	GinkgoHelper()
	t := newTeam(ctx, "0", "0")
	submit(ctx, t.unqueued("later"))
	t.expectRunning(ctx, "later", "init")
}

// expectPlaced waits until the pods of these ReplicatedJobs have nodes in an attempt.
func (t team) expectPlaced(ctx context.Context, js *jobsetapi.JobSet, attempt int32, replicatedJobs ...string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		var placed []string
		for _, pod := range t.pods(ctx, g, "") {
			if pod.Labels[constants.RestartsKey] == strconv.Itoa(int(attempt)) && pod.Labels[jobset.JobSetNameKey] == js.Name && pod.Spec.NodeName != "" {
				placed = append(placed, pod.Labels[jobset.ReplicatedJobNameKey])
			}
		}
		for _, name := range replicatedJobs {
			g.Expect(placed).To(ContainElement(name))
		}
	}).WithContext(ctx).Should(Succeed(), func() string { return t.describe(ctx) })
}

// expectHeld checks that the Job of a ReplicatedJob is held, once the JobSet controller has created it.
func (t team) expectHeld(ctx context.Context, replicatedJob string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		jobs := t.jobs(ctx, g, replicatedJob)
		g.Expect(jobs).To(HaveLen(1))
		g.Expect(jobs[0].Labels).To(HaveKeyWithValue(apis.HoldLabel, apis.HoldUnqueued))
		g.Expect(jobs[0].Spec.Suspend).To(HaveValue(BeTrue()))
	}).WithContext(ctx).Should(Succeed(), func() string { return t.describe(ctx) })
}

// expectInProgress waits until the condition StageInProgress has this message.
func (t team) expectInProgress(ctx context.Context, jobSet, message string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		c := apimeta.FindStatusCondition(t.get(ctx, g, jobSet).Status.Conditions, jobsetstatus.StageInProgress)
		g.Expect(c).NotTo(BeNil())
		g.Expect(c.Message).To(Equal(message))
	}).WithContext(ctx).Should(Succeed())
}

// newTeamOfKEP creates a team with the objects that the pods in KEP-672 need: their volumes, and a node for GPUs that takes pods without
// tolerations.
func newTeamOfKEP(ctx context.Context) team {
	GinkgoHelper()
	t := newTeam(ctx, "0", "0")
	for _, name := range []string{"dataset-initializer", "model-initializer"} {
		volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: t.namespace + "-" + name}, Spec: corev1.PersistentVolumeSpec{
			Capacity: sample.Amounts("storage", "1Gi"), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/mnt"}},
		}}
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: name}, Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: volume.Spec.AccessModes, Resources: corev1.VolumeResourceRequirements{Requests: volume.Spec.Capacity},
			VolumeName: volume.Name, StorageClassName: new(""),
		}}
		Expect(env.Admin.Create(ctx, volume)).To(Succeed())
		Expect(env.Admin.Create(ctx, claim)).To(Succeed())
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: t.namespace}}
	Expect(env.Admin.Create(ctx, node)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) { Expect(env.Admin.Delete(ctx, node)).To(Succeed()) }, NodeTimeout(patience))
	amounts := sample.Amounts("cpu", "64", "memory", "64Gi", "pods", "110", string(gpu), "64")
	before := node.DeepCopy()
	node.Status.Capacity, node.Status.Allocatable = amounts, amounts
	Expect(env.Admin.Status().Patch(ctx, node, client.MergeFrom(before))).To(Succeed())
	return t
}

// created returns when the first and the last pod of a ReplicatedJob were created.
func (t team) created(ctx context.Context, replicatedJob string) (first, last time.Time) {
	GinkgoHelper()
	pods := t.pods(ctx, Default, replicatedJob)
	Expect(pods).NotTo(BeEmpty(), replicatedJob)
	first = pods[0].CreationTimestamp.Time
	for _, pod := range pods {
		if at := pod.CreationTimestamp.Time; at.Before(first) {
			first = at
		} else if at.After(last) {
			last = at
		}
	}
	return first, last
}

// expectAfter checks that the pods of a ReplicatedJob were created after the Job of another one had completed.
func (t team) expectAfter(ctx context.Context, replicatedJob, completed string) {
	GinkgoHelper()
	first, _ := t.created(ctx, replicatedJob)
	Expect(first).NotTo(BeTemporally("<", t.jobs(ctx, Default, completed)[0].Status.CompletionTime.Time), "%s began before %s had succeeded", replicatedJob, completed)
}

var _ = Describe("A JobSet without a queue", func() {
	DescribeTable("runs the examples of KEP-672 as printed in the order of their rules", func(ctx SpecContext, name string, check func(ctx context.Context, t team)) {
		t := newTeamOfKEP(ctx)
		Expect(env.Kubectl(ctx, "create", "--namespace", t.namespace, "--filename", "testdata/kep672/"+name+".yaml")).To(Succeed())
		t.expectOver(ctx, name, jobset.JobSetCompleted)
		check(ctx, t)
		Expect(t.workloads(ctx, Default)).To(BeEmpty())
		js := t.get(ctx, Default, name)
		Expect(apimeta.FindStatusCondition(js.Status.Conditions, jobsetstatus.StageAdmitted)).To(BeNil(), "no quota, no admission")
	},
		Entry("story 1", SpecTimeout(specTimeout), "fine-tune-llm", func(ctx context.Context, t team) { t.expectAfter(ctx, "trainer-node", "initializer") }),
		Entry("story 2", SpecTimeout(specTimeout), "deepspeed-mpi", func(ctx context.Context, t team) {
			t.expectAfter(ctx, "launcher", "initializer")
			launched, _ := t.created(ctx, "launcher")
			trained, _ := t.created(ctx, "trainer-node")
			Expect(trained).NotTo(BeTemporally("<", launched))
		}),
		Entry("the default targets", SpecTimeout(specTimeout), "startup-policy", func(ctx context.Context, t team) {
			first, _ := t.created(ctx, "job-1")
			_, second := t.created(ctx, "job-2")
			third, _ := t.created(ctx, "job-3")
			Expect(third).NotTo(BeTemporally("<", first))
			Expect(third).NotTo(BeTemporally("<", second))
		}),
	)

	It("is suspended only by its user, and resumes at the first stage that has not succeeded", func(ctx SpecContext) {
		t := newTeam(ctx, "0", "0")
		js := t.unqueued("own")
		js.Spec.Suspend = new(true)
		submit(ctx, js)
		t.expectHeld(ctx, "init")
		awaitHandledWithoutQueue(ctx)
		Expect(t.pods(ctx, Default, "")).To(BeEmpty())
		suspend(ctx, js, false)
		t.expectRunning(ctx, "own", "init")
		t.expectInProgress(ctx, "own", "1/3 init")
		t.expectHeld(ctx, "launch")
		suspend(ctx, js, true)
		t.expectRunning(ctx, "own")
		suspend(ctx, js, false)
		t.expectRunning(ctx, "own", "init")
		t.end(ctx, "own", "init", corev1.PodSucceeded)
		t.expectRunning(ctx, "own", "launch", "train", "train")
		t.expectEvent(ctx, "own", "StageFinished")
		suspend(ctx, js, true)
		t.expectRunning(ctx, "own")
		awaitHandledWithoutQueue(ctx)
		Expect(t.get(ctx, Default, "own").Spec.Suspend).To(HaveValue(BeTrue()))
		Expect(t.running(ctx, Default, "own")).To(BeEmpty())
		suspend(ctx, js, false)
		t.expectRunning(ctx, "own", "launch", "train", "train")
		t.end(ctx, "own", "launch", corev1.PodSucceeded)
		t.end(ctx, "own", "train", corev1.PodSucceeded)
		t.expectOver(ctx, "own", jobset.JobSetCompleted)
	}, SpecTimeout(specTimeout))

	It("runs its stages from the first again after a restart", func(ctx SpecContext) {
		t := newTeam(ctx, "0", "0")
		js := t.unqueued("again")
		js.Spec.FailurePolicy = &jobset.FailurePolicy{MaxRestarts: 1}
		submit(ctx, js)
		t.expectRunning(ctx, "again", "init")
		t.end(ctx, "again", "init", corev1.PodSucceeded)
		t.expectRunning(ctx, "again", "launch", "train", "train")
		t.endOne(ctx, "again", "train", corev1.PodFailed)
		t.expectRunning(ctx, "again", "init")
		t.expectInProgress(ctx, "again", "1/3 init")
		t.expectHeld(ctx, "launch")
		t.end(ctx, "again", "init", corev1.PodSucceeded)
		t.expectRunning(ctx, "again", "launch", "train", "train")
	}, SpecTimeout(specTimeout))

	It("starts the target ReplicatedJobs of a rule together, initially and after a restart", func(ctx SpecContext) {
		t := newTeam(ctx, "0", "0")
		js := t.unqueuedPair("pair")
		for i := 1; i <= 2; i++ {
			js.Spec.ReplicatedJobs[i].Template.Spec.Template.Annotations[controlplane.FakeReadyAfter] = "1h"
		}
		js.Spec.FailurePolicy = &jobset.FailurePolicy{MaxRestarts: 1}
		submit(ctx, js)
		for restarts := range int32(2) {
			t.expectRestarts(ctx, "pair", restarts)
			t.expectRunning(ctx, "pair", "init")
			t.end(ctx, "pair", "init", corev1.PodSucceeded)
			t.expectPlaced(ctx, js, restarts, "left", "right") // neither is ready, and each may wait for the other
			makeReady(ctx, t, "left")
			t.expectHeld(ctx, "train")
			Eventually(func(g Gomega) { g.Expect(t.job(ctx, g, "left").Status.Ready).To(HaveValue(Equal(int32(1)))) }).WithContext(ctx).Should(Succeed())
			awaitHandledWithoutQueue(ctx)
			Expect(t.job(ctx, Default, "train").Spec.Suspend).To(HaveValue(BeTrue()), "one of the two is not ready")
			makeReady(ctx, t, "right")
			t.expectRunning(ctx, "pair", "left", "right", "train")
			now := t.get(ctx, Default, "pair")
			Expect(now.Annotations).NotTo(HaveKey(apis.PausedAnnotation))
			Expect(now.Spec.Suspend).To(HaveValue(BeFalse()))
			if restarts == 0 {
				t.endOne(ctx, "pair", "train", corev1.PodFailed)
			}
		}
		t.expectEvent(ctx, "pair", "JobSetPaused")
	}, SpecTimeout(specTimeout))

	It("never starts the stages after a failed stage", func(ctx SpecContext) {
		t := newTeam(ctx, "0", "0")
		submit(ctx, t.unqueued("failing"))
		t.expectRunning(ctx, "failing", "init")
		t.end(ctx, "failing", "init", corev1.PodFailed)
		t.expectOver(ctx, "failing", jobset.JobSetFailed)
		awaitHandledWithoutQueue(ctx)
		Expect(t.pods(ctx, Default, "launch")).To(BeEmpty())
		Expect(t.pods(ctx, Default, "train")).To(BeEmpty())
	}, SpecTimeout(specTimeout))

	It("cannot get a queue later, and accepts all other changes that Kubernetes allows", func(ctx SpecContext) {
		t := newTeam(ctx, "0", "0")
		js := submit(ctx, t.unqueued("tenant"))
		t.expectRunning(ctx, "tenant", "init")
		t.expectHeld(ctx, "launch")
		queued := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"kueue.x-k8s.io/queue-name":"queue"}}}`))
		Expect(env.Admin.Patch(ctx, js.DeepCopy(), queued)).To(MatchError(ContainSubstring("delete it and submit it again with the label")))
		launch := t.jobs(ctx, Default, "launch")[0]
		Expect(env.Admin.Patch(ctx, &launch, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"suspend":false}}`)))).To(Succeed())
		Expect(launch.Spec.Suspend).To(HaveValue(BeTrue()), "the write has no effect")
		t.expectHeld(ctx, "launch")
		stripped := client.RawPatch(types.JSONPatchType, []byte(`[{"op":"remove","path":"/spec/replicatedJobs/1/template/metadata/labels/tranche.dev~1hold"}]`))
		Expect(env.Admin.Patch(ctx, js, stripped)).To(Succeed())
		Expect(js.Spec.ReplicatedJobs[1].Template.Labels).To(HaveKeyWithValue(apis.HoldLabel, apis.HoldUnqueued))
		Expect(env.Admin.Delete(ctx, &t.jobs(ctx, Default, "init")[0], client.PropagationPolicy(metav1.DeletePropagationOrphan))).To(Succeed())
		Expect(env.Admin.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(t.namespace))).To(Succeed())
	}, SpecTimeout(specTimeout))

	It("grows without quota", func(ctx SpecContext) {
		t := newTeam(ctx, "0", "0")
		js := t.newJobSet("elastic", replicatedJob{name: "train", pods: 2, cpus: "1"})
		js.Labels, js.Annotations = nil, map[string]string{apis.GroupStartAnnotation: "60"}
		js.Spec.ReplicatedJobs[0].Template.Spec.CompletionMode = new(batchv1.IndexedCompletion)
		submit(ctx, js)
		t.expectRunning(ctx, "elastic", "train", "train")
		larger := `[{"op":"replace","path":"/spec/replicatedJobs/0/template/spec/parallelism","value":3},{"op":"replace","path":"/spec/replicatedJobs/0/template/spec/completions","value":3}]`
		Expect(env.Admin.Patch(ctx, js, client.RawPatch(types.JSONPatchType, []byte(larger)))).To(Succeed())
		t.expectRunning(ctx, "elastic", "train", "train", "train")
		Expect(t.workloads(ctx, Default)).To(BeEmpty())
	}, SpecTimeout(specTimeout))

	It("is not changed if it has no order, gang or group", func(ctx SpecContext) {
		t := newTeam(ctx, "0", "0")
		js := t.newJobSet("plain", replicatedJob{name: "main", cpus: "1"})
		js.Labels, js.Spec.GangConfig = nil, &jobsetapi.GangConfig{GangMode: jobsetapi.GangModeOff}
		submit(ctx, js)
		Expect(js.Spec.ReplicatedJobs[0].Template.Labels).NotTo(HaveKey(apis.HoldLabel))
		t.expectRunning(ctx, "plain", "main")
		awaitHandledWithoutQueue(ctx)
		now := t.get(ctx, Default, "plain")
		Expect(now.Generation).To(Equal(js.Generation))
		Expect(now.Annotations).To(Equal(js.Annotations))
	}, SpecTimeout(specTimeout))
})

var _ = Describe("A manager that is killed after each write while it runs a JobSet without a queue", func() {
	It("reaches the same final state", func(ctx SpecContext) {
		Expect(manager.Stop()).To(Succeed())
		t := newTeam(ctx, "0", "0")
		DeferCleanup(func(ctx SpecContext) {
			var err error
			manager, err = env.StartManager(ctx, testenv.ManagerOptions{})
			Expect(err).NotTo(HaveOccurred())
		}, NodeTimeout(patience))
		proxy, err := env.StartProxy()
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { proxy.Stop() })
		managers, err := env.StartShortLived(proxy, testenv.ManagerOptions{})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() error { _, err := managers.Stop(); return err })
		const name = "killed"
		submit(ctx, t.unqueuedPair(name))
		t.expectRunning(ctx, name, "init")
		t.end(ctx, name, "init", corev1.PodSucceeded)
		t.expectRunning(ctx, name, "left", "right", "train")
		for _, replicatedJob := range []string{"left", "right", "train"} {
			t.end(ctx, name, replicatedJob, corev1.PodSucceeded)
		}
		t.expectOver(ctx, name, jobset.JobSetCompleted)
		t.expectInProgress(ctx, name, "")
		killed, err := managers.Stop()
		Expect(err).NotTo(HaveOccurred())
		AddReportEntry("killed managers", killed)
		Expect(killed).To(BeNumerically(">", 5), strings.Join(proxy.Writes(), "\n"))
	}, SpecTimeout(2*specTimeout))
})
