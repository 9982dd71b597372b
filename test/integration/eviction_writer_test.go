package integration_test

import (
	"context"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	k8sevents "k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/controllers/engine"
	"github.com/tranche-dev/tranche/controllers/metrics"
	"github.com/tranche-dev/tranche/test/testenv"
)

const decisions = "decisions" // a namespace

var _ = Describe("The writer of decisions", Ordered, func() {
	var runner *engine.Runner
	counters := metrics.New(metrics.Replica{})

	BeforeAll(func(ctx SpecContext) {
		Expect(env.CreateNamespace(ctx, decisions, nil)).To(Succeed())
		clientset, err := kubernetes.NewForConfig(env.Plane.AdminConfig())
		Expect(err).NotTo(HaveOccurred())
		running, stop := context.WithCancel(context.Background())
		broadcaster := k8sevents.NewBroadcaster(&k8sevents.EventSinkImpl{Interface: clientset.EventsV1()})
		Expect(broadcaster.StartRecordingToSinkWithContext(running)).To(Succeed())
		idle, err := admission.New(admission.Config{StageAdmission: admission.Safe})
		Expect(err).NotTo(HaveOccurred())
		elected := make(chan struct{})
		close(elected)
		runner, err = engine.NewRunner(engine.Config{
			Engine: idle, Client: env.adminClient, Reader: env.adminClient,
			Recorder: broadcaster.NewRecorder(env.adminClient.Scheme(), "writer-test"), Metrics: counters, Elected: elected, Writers: 16,
		})
		Expect(err).NotTo(HaveOccurred())
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = runner.Start(running)
		}()
		DeferCleanup(func() {
			stop()
			<-done
			broadcaster.Shutdown()
		})
	}, NodeTimeout(patience))

	It("records victim and preemptor once, and keeps the quota reserved", func(ctx SpecContext) {
		preemptor := newStage(ctx, "preemptor")
		victim := newStage(ctx, "victim")
		runner.Write(admit(victim))
		Eventually(func(g Gomega) {
			g.Expect(env.adminClient.Get(ctx, client.ObjectKeyFromObject(victim), victim)).To(Succeed())
			g.Expect(quotaworkload.IsTrue(victim, kueue.WorkloadAdmitted)).To(BeTrue())
		}).WithContext(ctx).Should(Succeed())
		evict := admission.Evict{
			ID: 7, Stage: client.ObjectKeyFromObject(victim), UID: victim.UID, Reason: kueue.WorkloadEvictedByPreemption, Message: "it holds 5 of 8",
			Preemption: &admission.Preemption{Preemptor: client.ObjectKeyFromObject(preemptor), PreemptorUID: preemptor.UID, Reason: kueue.InCohortReclamationReason},
		}
		runner.Write(evict)
		runner.Write(evict)
		Eventually(func(g Gomega) {
			g.Expect(env.adminClient.Get(ctx, client.ObjectKeyFromObject(victim), victim)).To(Succeed())
			evicted := apimeta.FindStatusCondition(victim.Status.Conditions, kueue.WorkloadEvicted)
			g.Expect(evicted).NotTo(BeNil())
			g.Expect(evicted.Status).To(Equal(metav1.ConditionTrue))
			g.Expect(evicted.Reason).To(Equal(kueue.WorkloadEvictedByPreemption))
			g.Expect(evicted.Message).To(And(ContainSubstring("UID: "+string(preemptor.UID)), ContainSubstring("JobUID: job-of-preemptor")))
			preempted := apimeta.FindStatusCondition(victim.Status.Conditions, kueue.WorkloadPreempted)
			g.Expect(preempted).NotTo(BeNil())
			g.Expect(preempted.Reason).To(Equal(kueue.InCohortReclamationReason))
			g.Expect(evicted.Message).To(Equal(preempted.Message + `; preemptor: JobSet "of-preemptor"`))
		}).WithContext(ctx).Should(Succeed())
		Expect(victim.Status.Admission).NotTo(BeNil())
		for _, held := range []string{kueue.WorkloadQuotaReserved, kueue.WorkloadAdmitted} {
			Expect(quotaworkload.IsTrue(victim, held)).To(BeTrue(), held)
		}

		By("counting it once: a repeated decision about an evicted stage is not written again")
		runner.Write(admission.Refuse{Stage: client.ObjectKeyFromObject(victim), UID: victim.UID})
		runner.Write(evict)
		runner.Write(admit(victim))
		Eventually(func(g Gomega) {
			g.Expect(env.adminClient.Get(ctx, client.ObjectKeyFromObject(victim), victim)).To(Succeed())
			g.Expect(quotaworkload.IsTrue(victim, kueue.WorkloadEvicted)).To(BeFalse(), "it was admitted last")
		}).WithContext(ctx).Should(Succeed())
		Expect(victim.Status.SchedulingStats.Evictions).To(Equal([]kueue.WorkloadSchedulingStatsEviction{{Reason: "Preempted", Count: 1}}))
		expectEvents(ctx, "victim", "EvictedDueToPreempted", "Preempted")
		expectEvents(ctx, "of-victim", "StageEvicted")
	}, SpecTimeout(patience))

	It("counts each stage once that it evicts to resolve a deadlock", func(ctx SpecContext) {
		w := newStage(ctx, "deadlocked")
		runner.Write(admit(w))
		Eventually(func(g Gomega) {
			g.Expect(env.adminClient.Get(ctx, client.ObjectKeyFromObject(w), w)).To(Succeed())
			g.Expect(quotaworkload.IsTrue(w, kueue.WorkloadAdmitted)).To(BeTrue())
		}).WithContext(ctx).Should(Succeed())
		for _, id := range []admission.DecisionID{10, 11} {
			runner.Write(admission.Evict{
				ID: id, Stage: client.ObjectKeyFromObject(w), UID: w.UID, Reason: kueue.WorkloadEvictedByPreemption, Message: "deadlock recovery", ResolvesDeadlock: true,
			})
		}
		expectEvents(ctx, "of-deadlocked", "StageEvicted")
		// Decisions about one stage are written in the order in which they come: both evictions before this admission.
		runner.Write(admit(w))
		Eventually(func(g Gomega) {
			g.Expect(env.adminClient.Get(ctx, client.ObjectKeyFromObject(w), w)).To(Succeed())
			g.Expect(quotaworkload.IsTrue(w, kueue.WorkloadEvicted)).To(BeFalse())
		}).WithContext(ctx).Should(Succeed())
		registry := prometheus.NewRegistry()
		for _, c := range counters.Collectors() {
			Expect(registry.Register(c)).To(Succeed())
		}
		Expect(testutil.GatherAndCompare(registry, strings.NewReader(`
			# HELP tranche_deadlock_evictions_total Number of stages evicted to resolve a deadlock, by ClusterQueue. Admissions cause no deadlock, but changes of queues and quotas can.
			# TYPE tranche_deadlock_evictions_total counter
			tranche_deadlock_evictions_total{cluster_queue="`+string(w.Status.Admission.ClusterQueue)+`"} 1
		`), "tranche_deadlock_evictions_total")).To(Succeed())
	}, SpecTimeout(patience))

	It("does not evict a quota Workload without quota", func(ctx SpecContext) {
		w := newStage(ctx, "idle")
		runner.Write(admission.Evict{ID: 8, Stage: client.ObjectKeyFromObject(w), UID: w.UID, Reason: kueue.WorkloadEvictedByClusterQueueStopped})
		runner.Write(admission.Evict{ID: 9, Stage: client.ObjectKeyFromObject(w), UID: "of-another", Reason: kueue.WorkloadEvictedByClusterQueueStopped})
		runner.Write(admit(w))
		Eventually(func(g Gomega) {
			g.Expect(env.adminClient.Get(ctx, client.ObjectKeyFromObject(w), w)).To(Succeed())
			g.Expect(quotaworkload.IsTrue(w, kueue.WorkloadAdmitted)).To(BeTrue())
		}).WithContext(ctx).Should(Succeed())
		Expect(apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadEvicted)).To(BeNil())
		Expect(w.Status.SchedulingStats).To(BeNil())
	}, SpecTimeout(patience))

	It("does not admit a quota Workload whose requests have grown since, and admits the current requests", func(ctx SpecContext) {
		w := newStage(ctx, "grows")
		seen := watchAdmissions(ctx, w)
		decided := admit(w)
		w.Spec.PodSets[0].Count = 2
		Expect(env.adminClient.Update(ctx, w)).To(Succeed())
		runner.Write(decided)
		renamed := admit(w)
		renamed.Admission.PodSetAssignments[0].Name = "other"
		runner.Write(renamed)
		now := admit(w)
		now.ID, now.Admission.PodSetAssignments[0].Count = 2, new(int32(2))
		runner.Write(now)

		// Decisions about one stage are written in the order in which they come.
		var first *kueue.Admission
		Eventually(seen).WithContext(ctx).Should(Receive(&first))
		Expect(first.PodSetAssignments).To(Equal(now.Admission.PodSetAssignments))
	}, SpecTimeout(patience))

	It("reserves quota and does not admit while AdmissionChecks are pending", func(ctx SpecContext) {
		w := newStage(ctx, "checked")
		decision := admit(w)
		decision.Checks = []kueue.AdmissionCheckReference{"provision", "budget"}
		runner.Write(decision)
		Eventually(func(g Gomega) {
			g.Expect(env.adminClient.Get(ctx, client.ObjectKeyFromObject(w), w)).To(Succeed())
			g.Expect(quotaworkload.IsTrue(w, kueue.WorkloadQuotaReserved)).To(BeTrue())
		}).WithContext(ctx).Should(Succeed())
		Expect(apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadAdmitted).Reason).To(Equal("UnsatisfiedChecks"))
		Expect(w.Status.Admission).NotTo(BeNil())
		states := map[kueue.AdmissionCheckReference]kueue.CheckState{}
		for _, check := range w.Status.AdmissionChecks {
			states[check.Name] = check.State
		}
		Expect(states).To(Equal(map[kueue.AdmissionCheckReference]kueue.CheckState{"provision": kueue.CheckStatePending, "budget": kueue.CheckStatePending}))
		expectEvents(ctx, "of-checked", "StageReserved")
	}, SpecTimeout(patience))
})

// newStage creates the quota Workload of the stage "train" of a JobSet that no controller runs.
func newStage(ctx context.Context, name string) *kueue.Workload {
	GinkgoHelper()
	pod := corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "main", Image: "example.com/main"}},
	}}
	js := &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: decisions, Name: "of-" + name}}
	js.Spec.Suspend = new(true)
	js.Spec.ReplicatedJobs = []jobsetapi.ReplicatedJob{{ReplicatedJob: jobset.ReplicatedJob{
		Name: "main", Replicas: 1, Template: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: pod}},
	}}}
	Expect(env.adminClient.Create(ctx, js)).To(Succeed())
	w := &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: decisions, Name: name, Labels: map[string]string{apis.StageLabel: "train", apis.JobUIDLabel: "job-of-" + name},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(js, jobset.GroupVersion.WithKind("JobSet"))},
		},
		Spec: kueue.WorkloadSpec{PodSets: []kueue.PodSet{{Name: "main", Count: 1, Template: pod}}},
	}
	// Only the manager may write its stage.
	Expect(env.clientAs(testenv.ManagerUser, "system:masters").Create(ctx, w)).To(Succeed())
	return w
}

// watchAdmissions returns every admission that a quota Workload is ever observed with.
func watchAdmissions(ctx context.Context, w *kueue.Workload) <-chan *kueue.Admission {
	GinkgoHelper()
	watcher, err := env.adminClient.Watch(ctx, &kueue.WorkloadList{}, client.InNamespace(w.Namespace), client.MatchingFields{"metadata.name": w.Name})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(watcher.Stop)
	seen := make(chan *kueue.Admission, 16)
	go func() {
		for event := range watcher.ResultChan() {
			if w, ok := event.Object.(*kueue.Workload); ok && w.Status.Admission != nil {
				seen <- w.Status.Admission
			}
		}
	}()
	return seen
}

func admit(w *kueue.Workload) admission.Admit {
	return admission.Admit{
		ID: 1, Stage: client.ObjectKeyFromObject(w), UID: w.UID, JobSet: "of-" + w.Name, StageName: "train",
		Admission: kueue.Admission{ClusterQueue: "research", PodSetAssignments: []kueue.PodSetAssignment{{
			Name: "main", Count: new(int32(1)), Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{corev1.ResourceCPU: "default"},
			ResourceUsage: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")},
		}}},
	}
}

// expectEvents waits until all of these Events are recorded on an object.
func expectEvents(ctx context.Context, object string, reasons ...string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		var list eventsv1.EventList
		g.Expect(env.adminClient.List(ctx, &list, client.InNamespace(decisions))).To(Succeed())
		var told []string
		for _, e := range list.Items {
			if e.Regarding.Name == object {
				told = append(told, e.Reason)
			}
		}
		for _, reason := range reasons {
			g.Expect(told).To(ContainElement(reason))
		}
	}).WithContext(ctx).Should(Succeed())
}
