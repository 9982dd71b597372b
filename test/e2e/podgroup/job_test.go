package podgroup_test

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/test/controlplane"
)

// job creates a Job that fails at the first failed pod, except for preempted ones. Its pods run until they are deleted.
func (t team) job(name string, pods int32, member pod) *batchv1.Job {
	member.label("made-by", name).annotate(controlplane.FakeGangExit, controlplane.FakeExitNever).annotate(controlplane.FakeGangStopAfter, "3600") // killDeleted ends them
	return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: t.name, Name: name}, Spec: batchv1.JobSpec{
		Parallelism: &pods, Completions: &pods, BackoffLimit: new(int32(0)),
		PodFailurePolicy: &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{
			Action:          batchv1.PodFailurePolicyActionIgnore,
			OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}},
		}}},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: member.Labels, Annotations: member.Annotations}, Spec: member.Spec},
	}}
}

// killDeleted acts as a kubelet does with deleted pods: they terminate, and as a rule they fail.
func (t team) killDeleted(ctx context.Context, g Gomega) {
	for _, p := range t.pods(ctx, g) {
		if p.DeletionTimestamp != nil && p.Status.Phase == corev1.PodRunning {
			p.Status.Phase = corev1.PodFailed
			g.Expect(client.IgnoreNotFound(env.Admin.Status().Update(ctx, &p))).To(Succeed())
		}
	}
}

// submitJob creates a Job, and deletes it after the spec.
func submitJob(ctx context.Context, job *batchv1.Job) {
	GinkgoHelper()
	Expect(env.Admin.Create(ctx, job)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) {
		Expect(env.Admin.Delete(ctx, job, client.PropagationPolicy(metav1.DeletePropagationBackground))).To(Succeed())
	}, NodeTimeout(patience))
}

// preempt creates a gang of two pods, high-0 and high-1, of higher priority.
func (t team) preempt(ctx context.Context) {
	GinkgoHelper()
	By("a gang of higher priority")
	class := &kueue.WorkloadPriorityClass{ObjectMeta: metav1.ObjectMeta{Name: t.name + "-urgent"}, Value: 100}
	Expect(env.Admin.Create(ctx, class)).To(Succeed())
	urgent := func(name string) pod {
		return t.member(name, 0).koordinator("name", "high", "min-available", "2").label(apis.PriorityClassLabel, class.Name)
	}
	create(ctx, urgent("high-0"), urgent("high-1"))
}

var _ = Describe("A gang of pods created by a Job", func() {
	It("does not count as failed when it is preempted", func(ctx SpecContext) {
		t := newTeam(ctx, "4", "0")
		job := t.job("low", 3, t.member("", 0).koordinator("name", "low", "min-available", "3"))
		submitJob(ctx, job)
		t.expectCount(ctx, "low", string(corev1.PodRunning), 3)
		t.preempt(ctx)
		Eventually(func(g Gomega) {
			t.killDeleted(ctx, g)
			g.Expect(t.standing(ctx, g, "high-")).To(Equal([]string{"high-0=running", "high-1=running"}))
			g.Expect(t.count(ctx, g, "low")).To(HaveKeyWithValue("gated", 3))
			g.Expect(env.Admin.Get(ctx, client.ObjectKeyFromObject(job), job)).To(Succeed())
			g.Expect(job.Status.Failed).To(BeZero(), fmt.Sprint(job.Status.Conditions))
		}).WithContext(ctx).Should(Succeed())

		By("finishing the JobSet")
		t.end(ctx, corev1.PodSucceeded, "high-0", "high-1")
		t.expectCount(ctx, "low", string(corev1.PodRunning), 3)
		Eventually(func(g Gomega) {
			g.Expect(t.pods(ctx, g)).To(HaveEach(HaveField("DeletionTimestamp", BeNil())), "the Job controller has counted the pods that were preempted")
			g.Expect(env.Admin.Get(ctx, client.ObjectKeyFromObject(job), job)).To(Succeed())
			uncounted := job.Status.UncountedTerminatedPods
			g.Expect(uncounted == nil || len(uncounted.Failed) == 0).To(BeTrue())
		}).WithContext(ctx).Should(Succeed())
		Expect(job.Status.Failed).To(BeZero(), fmt.Sprint(job.Status.Conditions))
	}, SpecTimeout(specTimeout))

	It("starts again without a pod that has succeeded while it was preempted", func(ctx SpecContext) {
		t := newTeam(ctx, "3", "0")
		job := t.job("low", 3, t.member("", 0).label(apis.PodGroupNameLabel, "low").annotate(apis.PodGroupTotalCountAnnotation, "3"))
		submitJob(ctx, job)
		t.expectCount(ctx, "low", string(corev1.PodRunning), 3)
		t.preempt(ctx)
		hasSucceeded := false
		Eventually(func(g Gomega) {
			for _, p := range t.pods(ctx, g) {
				if !hasSucceeded && p.DeletionTimestamp != nil && p.Status.Phase == corev1.PodRunning {
					p.Status.Phase = corev1.PodSucceeded
					g.Expect(env.Admin.Status().Update(ctx, &p)).To(Succeed())
					hasSucceeded = true
				}
			}
			g.Expect(hasSucceeded).To(BeTrue()) // before another pod disappears
			t.killDeleted(ctx, g)
			g.Expect(t.standing(ctx, g, "high-")).To(Equal([]string{"high-0=running", "high-1=running"}))
			g.Expect(t.count(ctx, g, "low")).To(Equal(map[string]int{"gated": 2}))
			g.Expect(env.Admin.Get(ctx, client.ObjectKeyFromObject(job), job)).To(Succeed())
			g.Expect(job.Status.Succeeded).To(Equal(int32(1)))
		}).WithContext(ctx).Should(Succeed())
		t.end(ctx, corev1.PodSucceeded, "high-0", "high-1")
		t.expectCount(ctx, "low", string(corev1.PodRunning), 2)
		t.expectUsage(ctx, "cpu", 2)
	}, SpecTimeout(specTimeout))

	It("starts again without the pods of another Job, which have succeeded, if it was admitted in parts", func(ctx SpecContext) {
		t := newTeam(ctx, "2", "0")
		for _, name := range []string{"first", "second"} {
			submitJob(ctx, t.job(name, 1, t.member("", 0).koordinator("name", "low", "min-available", "2", "mode", "NonStrict")))
		}
		t.expectCount(ctx, "first", string(corev1.PodRunning), 1)
		t.expectCount(ctx, "second", string(corev1.PodRunning), 1)
		finish := func(job string) {
			for _, p := range t.pods(ctx, Default) {
				if p.Labels["made-by"] == job && p.Status.Phase == corev1.PodRunning {
					t.end(ctx, corev1.PodSucceeded, p.Name)
				}
			}
		}
		finish("second")
		t.preempt(ctx)
		Eventually(func(g Gomega) {
			t.killDeleted(ctx, g)
			g.Expect(t.standing(ctx, g, "high-")).To(Equal([]string{"high-0=running", "high-1=running"}))
			g.Expect(t.count(ctx, g, "first")).To(HaveKeyWithValue("gated", 1))
		}).WithContext(ctx).Should(Succeed())
		t.end(ctx, corev1.PodSucceeded, "high-0", "high-1")
		t.expectCount(ctx, "first", string(corev1.PodRunning), 1)
		t.expectUsage(ctx, "cpu", 1)
		finish("first")
		t.expectUsage(ctx, "cpu", 0)
		for _, w := range t.workloads(ctx, Default) {
			t.expectFinished(ctx, w.Name)
		}
	}, SpecTimeout(specTimeout))
})

var _ = Describe("A gang of pods of a Job that terminate slowly", func() {
	It("does not use its quota twice when a pod is deleted, or its Job is suspended and resumed", func(ctx SpecContext) {
		t := newTeam(ctx, "3", "0")
		job := t.job("low", 3, t.member("", 0).label(apis.PodGroupNameLabel, "low").annotate(apis.PodGroupTotalCountAnnotation, "3"))
		job.Spec.PodFailurePolicy, job.Spec.BackoffLimit = nil, new(int32(9)) // it replaces pods that still terminate
		submitJob(ctx, job)
		t.expectCount(ctx, "low", string(corev1.PodRunning), 3)
		expectGated := func(running, gated int) {
			GinkgoHelper()
			Eventually(func(g Gomega) {
				counts := map[string]int{}
				for _, p := range t.pods(ctx, g) {
					switch {
					case len(p.Spec.SchedulingGates) > 0:
						counts["gated"]++
					case p.DeletionTimestamp != nil:
						counts["terminating"]++
					default:
						counts["running"]++
					}
				}
				g.Expect(counts["gated"]).To(Equal(gated))
				g.Expect(counts["running"]).To(Equal(running))
				g.Expect(counts["terminating"]).To(Equal(3 - running))
			}).WithContext(ctx).Should(Succeed())
		}
		Expect(env.Admin.Delete(ctx, &t.pods(ctx, Default)[0])).To(Succeed())
		expectGated(2, 1)
		for _, suspend := range []string{"true", "false"} {
			Expect(env.Admin.Patch(ctx, job, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"suspend":`+suspend+`}}`)))).To(Succeed())
		}
		expectGated(0, 3)
		t.expectUsage(ctx, "cpu", 3)
		Eventually(func(g Gomega) {
			t.killDeleted(ctx, g)
			g.Expect(t.count(ctx, g, "low")).To(Equal(map[string]int{string(corev1.PodRunning): 3}))
		}).WithContext(ctx).Should(Succeed())
		for _, p := range t.pods(ctx, Default) {
			t.end(ctx, corev1.PodSucceeded, p.Name)
		}
		t.expectUsage(ctx, "cpu", 0)
	}, SpecTimeout(specTimeout))
})
