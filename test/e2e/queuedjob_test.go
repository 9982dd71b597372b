package e2e_test

import (
	"context"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
	"github.com/tranche-dev/tranche/test/testenv"
)

// newJob returns a Job for the team's queue whose pods run until the test ends them, and does not submit it.
func (t team) newJob(name string, pods int32, gpus string) *batchv1.Job {
	r := replicatedJob{name: "main", pods: pods, cpus: "1", gpus: gpus}.build()
	spec := r.Template.Spec
	spec.Parallelism, spec.Completions, spec.CompletionMode = &pods, &pods, nil
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: name, Labels: map[string]string{apis.QueueLabel: "queue"}},
		Spec:       spec,
	}
}

// queued returns a queued Job and its quota Workload.
func (t team) queued(ctx context.Context, g Gomega, name string) (*batchv1.Job, *kueue.Workload) {
	var job batchv1.Job
	g.Expect(env.Admin.Get(ctx, client.ObjectKey{Namespace: t.namespace, Name: name}, &job)).To(Succeed())
	var list kueue.WorkloadList
	g.Expect(env.Admin.List(ctx, &list, client.InNamespace(t.namespace), client.MatchingLabels{apis.JobUIDLabel: string(job.UID)})).To(Succeed())
	g.Expect(list.Items).To(HaveLen(1))
	return &job, &list.Items[0]
}

// expectJob waits until the quota Workload of a Job is in a state, and the Job runs, or is held without pods and additions.
func (t team) expectJob(ctx context.Context, name, state string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		job, w := t.queued(ctx, g, name)
		g.Expect(stateOfStage(w)).To(Equal(state))
		runs := state == "ready" || state == "Succeeded"
		g.Expect(*job.Spec.Suspend).To(Equal(!runs))
		if !runs {
			g.Expect(t.podsOfJob(ctx, g, name)).To(BeEmpty())
			g.Expect(job.Spec.Template.Labels).NotTo(HaveKey(apis.PodSetLabel))
			g.Expect(job.Spec.Template.Spec.NodeSelector).To(BeEmpty())
			g.Expect(job.Spec.Template.Spec.Tolerations).To(BeEmpty())
		}
	}).WithContext(ctx).Should(Succeed(), func() string { return t.describe(ctx) })
}

// podsOfJob returns the pods of a Job that are not terminal.
func (t team) podsOfJob(ctx context.Context, g Gomega, name string) []corev1.Pod {
	var list corev1.PodList
	g.Expect(env.Admin.List(ctx, &list, client.InNamespace(t.namespace), client.MatchingLabels{batchv1.JobNameLabel: name})).To(Succeed())
	return slices.DeleteFunc(list.Items, func(pod corev1.Pod) bool {
		return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	})
}

// endPodsOf ends running pods of a Job, at most so many.
func (t team) endPodsOf(ctx context.Context, g Gomega, name string, most int) {
	for _, pod := range t.podsOfJob(ctx, g, name) {
		if pod.Status.Phase == corev1.PodRunning && most > 0 {
			pod.Status.Phase = corev1.PodSucceeded
			g.Expect(env.Admin.Status().Update(ctx, &pod)).To(Succeed())
			most--
		}
	}
}

func (t team) patchJob(ctx context.Context, name, patch string) {
	GinkgoHelper()
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: name}}
	Expect(env.Admin.Patch(ctx, job, client.RawPatch(types.MergePatchType, []byte(patch)))).To(Succeed())
}

func (t team) evictJob(ctx context.Context, name string, why workloadstatus.Eviction) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		_, w := t.queued(ctx, g, name)
		g.Expect(applyStatus(ctx, w, apis.AdmissionFieldManager, workloadstatus.Evicted(w, why, time.Now()))).To(Succeed())
	}).WithContext(ctx).Should(Succeed())
}

var _ = Describe("A queued Job", func() {
	It("waits for quota, runs on its flavors, and finishes", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "4")
		Expect(env.Admin.Create(ctx, t.newJob("first", 2, "2"))).To(Succeed())
		t.expectJob(ctx, "first", "ready")
		body, err := testenv.ReadMetrics(ctx, manager.Metrics)
		Expect(err).NotTo(HaveOccurred())
		Expect(body).To(MatchRegexp(`kueue_workload_creation_latency_seconds_count\{job_kind="Job",replica_role="standalone"\} [1-9]`))
		second := t.newJob("second", 2, "1")
		second.Spec.Suspend = new(true) // as users of Kueue submit Jobs
		second.Labels["kueue.x-k8s.io/max-exec-time-seconds"] = "600"
		Expect(env.Admin.Create(ctx, second)).To(Succeed())
		t.expectJob(ctx, "second", "waiting")

		job, w := t.queued(ctx, Default, "first")
		Expect(w.Name).To(HavePrefix("job-first-"))
		Expect(w.Spec.PodSets).To(HaveLen(1))
		Expect(w.Spec.PodSets[0].Name).To(Equal(kueue.DefaultPodSetName))
		Expect(w.Spec.PodSets[0].Count).To(Equal(int32(2)))
		Expect(metav1.IsControlledBy(w, job)).To(BeTrue())
		Expect(t.podsOfJob(ctx, Default, "first")).To(HaveLen(2))
		for _, pod := range t.podsOfJob(ctx, Default, "first") {
			Expect(pod.Spec.NodeName).To(HavePrefix("a100"))
			Expect(pod.Labels).To(HaveKeyWithValue(apis.LocalQueueLabel, "queue"))
		}
		_, w = t.queued(ctx, Default, "second")
		Expect(*w.Spec.MaximumExecutionTimeSeconds).To(Equal(int32(600)))

		t.endPodsOf(ctx, Default, "first", 1) // its quota is reclaimed
		Eventually(func(g Gomega) {
			_, w := t.queued(ctx, g, "first")
			g.Expect(w.Status.ReclaimablePods).To(Equal([]kueue.ReclaimablePod{{Name: "main", Count: 1}}))
		}).WithContext(ctx).Should(Succeed())
		t.expectJob(ctx, "second", "ready")
		for _, name := range []string{"first", "second"} {
			Eventually(func(g Gomega) {
				t.endPodsOf(ctx, g, name, 2)
				job, w := t.queued(ctx, g, name)
				g.Expect(job.Status.CompletionTime).NotTo(BeNil())
				g.Expect(stateOfStage(w)).To(Equal("Succeeded"))
				g.Expect(w.Finalizers).To(BeEmpty())
			}).WithContext(ctx).Should(Succeed())
		}
	}, SpecTimeout(specTimeout))

	It("runs with fewer pods if its user allows that, and has its own size again when it is evicted", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "2")
		job := t.newJob("partial", 3, "1")
		job.Annotations = map[string]string{apis.MinParallelismAnnotation: "1"}
		Expect(env.Admin.Create(ctx, job)).To(Succeed())
		t.expectJob(ctx, "partial", "ready")
		job, w := t.queued(ctx, Default, "partial")
		Expect(*job.Spec.Parallelism).To(Equal(int32(2)))
		Expect(*w.Status.Admission.PodSetAssignments[0].Count).To(Equal(int32(2)))
		Expect(t.podsOfJob(ctx, Default, "partial")).To(HaveLen(2))
		t.submitUrgent(ctx, "2")
		t.evictJob(ctx, "partial", preemption)
		t.expectJob(ctx, "partial", "waiting")
		job, _ = t.queued(ctx, Default, "partial")
		Expect(*job.Spec.Parallelism).To(Equal(int32(3)))
	}, SpecTimeout(specTimeout))

	It("releases its quota when it is evicted, deactivated or suspended by its user, and continues later", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "4")
		Expect(env.Admin.Create(ctx, t.newJob("victim", 4, "1"))).To(Succeed())
		t.expectJob(ctx, "victim", "ready")
		t.endPodsOf(ctx, Default, "victim", 1)
		Eventually(func(g Gomega) {
			job, _ := t.queued(ctx, g, "victim")
			g.Expect(job.Status.Succeeded).To(Equal(int32(1)))
		}).WithContext(ctx).Should(Succeed())
		t.submitUrgent(ctx, "4")
		t.evictJob(ctx, "victim", preemption)
		t.expectStages(ctx, "urgent", "urgent=ready")
		t.expectJob(ctx, "victim", "waiting")
		t.end(ctx, "urgent", "urgent", corev1.PodSucceeded)
		t.expectJob(ctx, "victim", "ready")
		expectReserved := func(gpus string) {
			Eventually(func(g Gomega) { g.Expect(t.reserved(ctx, g)).To(Equal(gpus)) }).WithContext(ctx).Should(Succeed())
		}
		expectReserved("3") // one of its pods has succeeded before

		By("deactivating it")
		setActive := func(active bool) {
			Eventually(func(g Gomega) {
				_, w := t.queued(ctx, g, "victim")
				w.Spec.Active = &active
				g.Expect(env.Admin.Update(ctx, w)).To(Succeed())
			}).WithContext(ctx).Should(Succeed())
		}
		setActive(false)
		t.expectJob(ctx, "victim", "waiting")
		expectReserved("0")
		setActive(true)
		t.expectJob(ctx, "victim", "ready")

		By("suspending it")
		t.patchJob(ctx, "victim", `{"spec":{"suspend":true}}`)
		t.expectJob(ctx, "victim", "closed")
		expectReserved("0")
		t.patchJob(ctx, "victim", `{"spec":{"suspend":false}}`)
		t.expectJob(ctx, "victim", "ready")

		By("suspending it as if its release had not been noticed")
		t.patchJob(ctx, "victim", `{"metadata":{"annotations":{"tranche.dev/unnoticed":"true"}},"spec":{"suspend":true}}`)
		t.expectJob(ctx, "victim", "closed")
		expectReserved("0")
		job, _ := t.queued(ctx, Default, "victim")
		Expect(job.Annotations).NotTo(HaveKey(apis.UnnoticedAnnotation))
		t.patchJob(ctx, "victim", `{"spec":{"suspend":false}}`)
		t.expectJob(ctx, "victim", "ready")

		By("deleting its quota Workload")
		_, w := t.queued(ctx, Default, "victim")
		Expect(env.Admin.Delete(ctx, w)).To(Succeed())
		Eventually(func(g Gomega) {
			_, now := t.queued(ctx, g, "victim")
			g.Expect(now.UID).NotTo(Equal(w.UID))
		}).WithContext(ctx).Should(Succeed())
		t.expectJob(ctx, "victim", "ready")

		By("deleting the Job")
		job, _ = t.queued(ctx, Default, "victim")
		Expect(env.Admin.Delete(ctx, job, client.PropagationPolicy("Background"))).To(Succeed())
		expectReserved("0")
	}, SpecTimeout(specTimeout))
})

var _ = Describe("A manager that is killed after each of its writes", func() {
	It("runs a Job to its end, through an eviction and a suspension", func(ctx SpecContext) {
		Expect(manager.Stop()).To(Succeed())
		proxy, err := env.StartProxy()
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { proxy.Stop() })
		t := newTeam(ctx, "4", "4")
		DeferCleanup(func(ctx SpecContext) {
			manager, err = env.StartManager(ctx, testenv.ManagerOptions{})
			Expect(err).NotTo(HaveOccurred())
		})
		managers, err := env.StartShortLived(proxy, testenv.ManagerOptions{})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() error { _, err := managers.Stop(); return err })
		Expect(env.Admin.Create(ctx, t.newJob("train", 2, "2"))).To(Succeed())
		t.expectJob(ctx, "train", "ready")
		t.evictJob(ctx, "train", preemption)
		Eventually(func(g Gomega) {
			_, w := t.queued(ctx, g, "train")
			g.Expect(stateOf(w)).To(HaveKeyWithValue("Evicted", "False QuotaReserved"))
			g.Expect(w.Status.SchedulingStats.Evictions).To(Equal([]kueue.WorkloadSchedulingStatsEviction{{Reason: "Preempted", Count: 1}}))
		}).WithContext(ctx).Should(Succeed(), func() string { return t.describe(ctx) })
		t.expectJob(ctx, "train", "ready")
		t.patchJob(ctx, "train", `{"spec":{"suspend":true}}`)
		t.expectJob(ctx, "train", "closed")
		t.patchJob(ctx, "train", `{"spec":{"suspend":false}}`)
		Eventually(func(g Gomega) {
			t.endPodsOf(ctx, g, "train", 2)
			_, w := t.queued(ctx, g, "train")
			g.Expect(stateOfStage(w)).To(Equal("Succeeded"))
			g.Expect(w.Finalizers).To(BeEmpty())
		}).WithContext(ctx).Should(Succeed(), func() string { return t.describe(ctx) })
		killed, err := managers.Stop()
		Expect(err).NotTo(HaveOccurred())
		AddReportEntry("crashes", killed)
		Expect(killed).To(BeNumerically(">", 15), "it has written less often than a Job needs")
	}, SpecTimeout(2*specTimeout))
})
