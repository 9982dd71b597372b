package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
	"github.com/tranche-dev/tranche/test/testenv"
)

// The stages as users see them, without knowledge of the engine.
var _ = Describe("A staged JobSet reports", func() {
	It("its state in lists, the missing quota in an Event, and its stages in its timeline", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "20")
		submit(ctx, t.deepSpeed("first"))
		Eventually(func(g Gomega) {
			g.Expect(t.list(ctx, g, "jobsets", "first")).To(HaveSuffix("1/3 initializer Admitted"))
		}).WithContext(ctx).Should(Succeed())
		t.end(ctx, "first", "initializer", corev1.PodSucceeded)
		t.expectStages(ctx, "first", "launcher=ready", "trainer-node=ready")
		submit(ctx, t.fineTune("second"))
		t.end(ctx, "second", "initializer", corev1.PodSucceeded)
		Eventually(func(g Gomega) {
			g.Expect(t.list(ctx, g, "jobsets", "first")).To(HaveSuffix("2/3 launcher, 3/3 trainer-node Admitted"))
			g.Expect(t.list(ctx, g, "jobsets", "second")).To(HaveSuffix("2/2 trainer-node WaitingForQuota"))
			g.Expect(t.list(ctx, g, "workloads", "second")).To(HaveSuffix("trainer-node Pending WaitingForQuota"))
			g.Expect(t.waits(ctx, g, "second")).To(ConsistOf(And(
				HavePrefix(`Waiting to admit stage 2/2 "trainer-node": `), ContainSubstring("15 nvidia.com/gpu of flavor a100: 0 of 20 free"),
			)))
		}).WithContext(ctx).Should(Succeed())

		By("starting another manager, which reads its state from the objects")
		Expect(manager.Stop()).To(Succeed())
		t.expectNoLeader(ctx, t.fineTune("third"))
		var err error
		manager, err = env.StartManager(ctx, testenv.ManagerOptions{})
		Expect(err).NotTo(HaveOccurred())
		t.end(ctx, "first", "trainer-node", corev1.PodSucceeded)
		t.end(ctx, "first", "launcher", corev1.PodSucceeded)
		t.expectOver(ctx, "first", jobset.JobSetCompleted)
		for stage, gpus := range map[string]int64{"initializer": 0, "launcher": 5, "trainer-node": 15} {
			t.expectCounted(ctx, "first", stage, gpus)
		}
		Eventually(func(g Gomega) {
			g.Expect(t.list(ctx, g, "jobsets", "first")).To(HaveSuffix("Finished"))
		}).WithContext(ctx).Should(Succeed())
		forged := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"tranche.dev/timeline":"{}"}}}`))
		Expect(env.Admin.Patch(ctx, t.jobSet(ctx, Default, "first"), forged)).To(MatchError(ContainSubstring("only Tranche's manager")))
	}, SpecTimeout(specTimeout))

	It("for how long its quota was idle, even if its manager was replaced meanwhile", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "20")
		js := t.deepSpeed("closed")
		js.Spec.FailurePolicy = &jobset.FailurePolicy{MaxRestarts: 1}
		submit(ctx, js)
		t.end(ctx, "closed", "initializer", corev1.PodSucceeded)
		t.expectStages(ctx, "closed", "launcher=ready", "trainer-node=ready")
		t.endOne(ctx, "closed", "trainer-node", corev1.PodFailed)
		t.expectRestarts(ctx, "closed", 1)
		t.expectStages(ctx, "closed", "initializer=ready", "launcher=admitted", "trainer-node=admitted")
		stages := map[string]float64{"launcher": 5, "trainer-node": 15}
		for stage := range stages {
			Eventually(func(g Gomega) { g.Expect(t.times(ctx, g, "closed", stage).NotReadySince).NotTo(BeNil()) }).WithContext(ctx).Should(Succeed())
		}
		Expect(manager.Stop()).To(Succeed())
		var err error
		manager, err = env.StartManager(ctx, testenv.ManagerOptions{})
		Expect(err).NotTo(HaveOccurred())
		suspend(ctx, js, true)
		Eventually(func(g Gomega) {
			idle := 0.0
			for stage, gpus := range stages {
				released := apimeta.FindStatusCondition(t.workload(ctx, g, "closed", stage).Status.Conditions, kueue.WorkloadQuotaReserved)
				g.Expect(released.Status).To(Equal(metav1.ConditionFalse))
				idle += gpus * released.LastTransitionTime.Sub(t.times(ctx, g, "closed", stage).NotReadySince.Time).Seconds()
			}
			g.Expect(t.idle(ctx, g)).To(Equal(idle), "the metrics of the new manager")
		}).WithContext(ctx).Should(Succeed())
	}, SpecTimeout(specTimeout))

	It("the idle time before an eviction", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "20")
		submit(ctx, t.deepSpeed("victim"))
		t.end(ctx, "victim", "initializer", corev1.PodSucceeded)
		t.expectStages(ctx, "victim", "launcher=ready", "trainer-node=ready")
		before := t.workload(ctx, Default, "victim", "trainer-node")
		reserved := apimeta.FindStatusCondition(before.Status.Conditions, kueue.WorkloadQuotaReserved).LastTransitionTime.Time
		Eventually(func() time.Time { return time.Now() }).WithContext(ctx).Should(BeTemporally(">", reserved.Add(2*time.Second)))
		t.evict(ctx, "victim", "trainer-node", workloadstatus.Eviction{Reason: kueue.WorkloadEvictedByPreemption, Message: "Preempted by the test"})
		Eventually(func(g Gomega) {
			times := t.times(ctx, g, "victim", "trainer-node")
			g.Expect(times.Finished).To(BeNil())
			g.Expect(times.Held[gpu]).To(BeNumerically(">=", 2*15))
		}).WithContext(ctx).Should(Succeed())
		Eventually(func(g Gomega) {
			again := apimeta.FindStatusCondition(t.workload(ctx, g, "victim", "trainer-node").Status.Conditions, kueue.WorkloadQuotaReserved)
			g.Expect(again.Status).To(Equal(metav1.ConditionTrue))
			g.Expect(again.LastTransitionTime.Time).To(BeTemporally(">", reserved), "it has been released and reserved again")
		}).WithContext(ctx).Should(Succeed())
		t.expectStages(ctx, "victim", "launcher=ready", "trainer-node=ready")
		held := t.times(ctx, Default, "victim", "trainer-node").Held[gpu]
		t.end(ctx, "victim", "trainer-node", corev1.PodSucceeded)
		t.end(ctx, "victim", "launcher", corev1.PodSucceeded)
		t.expectOver(ctx, "victim", jobset.JobSetCompleted)
		Eventually(func(g Gomega) {
			times := t.times(ctx, g, "victim", "trainer-node")
			g.Expect(times.Finished).NotTo(BeNil())
			g.Expect(times.Earlier).To(HaveExactElements(HaveField("Ready", Not(BeNil()))), "its pods were ready before they were evicted")
			again := apimeta.FindStatusCondition(t.workload(ctx, g, "victim", "trainer-node").Status.Conditions, kueue.WorkloadQuotaReserved)
			g.Expect(times.Held[gpu]).To(Equal(held + 15*int64(times.Finished.Sub(again.LastTransitionTime.Time)/time.Second)))
		}).WithContext(ctx).Should(Succeed())
	}, SpecTimeout(specTimeout))

	It("the idle time while other clients keep writing the JobSet", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "20")
		js := t.deepSpeed("busy")
		submit(ctx, js)
		t.end(ctx, "busy", "initializer", corev1.PodSucceeded)
		t.expectStages(ctx, "busy", "launcher=ready", "trainer-node=ready")
		reserved := apimeta.FindStatusCondition(t.workload(ctx, Default, "busy", "trainer-node").Status.Conditions, kueue.WorkloadQuotaReserved).LastTransitionTime.Time
		Eventually(func() time.Time { return time.Now() }).WithContext(ctx).Should(BeTemporally(">", reserved.Add(2*time.Second)))
		stop := keepWriting(ctx, js)
		t.evict(ctx, "busy", "trainer-node", workloadstatus.Eviction{Reason: kueue.WorkloadEvictedByPreemption, Message: "Preempted by the test"})
		Eventually(func(g Gomega) {
			again := apimeta.FindStatusCondition(t.workload(ctx, g, "busy", "trainer-node").Status.Conditions, kueue.WorkloadQuotaReserved)
			g.Expect(again.LastTransitionTime.Time).To(BeTemporally(">", reserved), "it has been released")
		}).WithContext(ctx).Should(Succeed())
		stop()
		Expect(t.times(ctx, Default, "busy", "trainer-node").Held[gpu]).To(BeNumerically(">=", 2*15))
	}, SpecTimeout(specTimeout))
})

// keepWriting makes several users write an annotation of a JobSet all the time, until stop is called.
func keepWriting(ctx context.Context, js *jobsetapi.JobSet) (stop func()) {
	GinkgoHelper()
	ctx, cancel := context.WithCancel(ctx)
	var writers sync.WaitGroup
	for i := range 8 {
		writers.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				patch := fmt.Sprintf(`{"metadata":{"annotations":{"example.com/writer-%d":"%d"}}}`, i, n)
				// Only that the JobSet changes counts.
				_ = env.Admin.Patch(ctx, js.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch)))
			}
		})
	}
	stop = func() {
		cancel()
		writers.Wait()
	}
	DeferCleanup(stop)
	return stop
}

// idle returns for how many GPU-seconds the manager has seen quota of the team held by stages that were not ready.
func (t team) idle(ctx context.Context, g Gomega) float64 {
	series := regexp.MustCompile(`tranche_idle_quota_seconds_total\{cause="NotReady",cluster_queue="` + t.namespace + `",.*resource="nvidia.com/gpu".*\} (\S+)`)
	body, err := testenv.ReadMetrics(ctx, manager.Metrics)
	g.Expect(err).NotTo(HaveOccurred())
	found := series.FindStringSubmatch(body)
	g.Expect(found).To(HaveLen(2))
	seconds, err := strconv.ParseFloat(found[1], 64)
	g.Expect(err).NotTo(HaveOccurred())
	return seconds
}

// list returns the line about a JobSet, or the last about quota Workloads of it, that kubectl prints, with single spaces.
func (t team) list(ctx context.Context, g Gomega, kind, name string) string {
	args := []string{"get", kind, "--namespace", t.namespace, "--no-headers"}
	if kind == "workloads" {
		args = append(args, "--selector", apis.JobSetLabel+"="+name)
	} else {
		args = append(args, name)
	}
	out, err := env.KubectlOutput(ctx, args...)
	g.Expect(err).NotTo(HaveOccurred())
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return strings.Join(strings.Fields(lines[len(lines)-1]), " ")
}

// waits returns the Events about stages of a JobSet that wait.
func (t team) waits(ctx context.Context, g Gomega, name string) []string {
	var list eventsv1.EventList
	g.Expect(env.Admin.List(ctx, &list, client.InNamespace(t.namespace))).To(Succeed())
	var notes []string
	for _, e := range list.Items {
		if e.Regarding.Kind == "JobSet" && e.Regarding.Name == name && e.Reason == "StageWaiting" {
			notes = append(notes, e.Note)
		}
	}
	return notes
}

func (t team) jobSet(ctx context.Context, g Gomega, name string) *jobsetapi.JobSet {
	js := &jobsetapi.JobSet{}
	g.Expect(env.Admin.Get(ctx, client.ObjectKey{Namespace: t.namespace, Name: name}, js)).To(Succeed())
	return js
}

// times reads the timeline of one stage, as any tool can.
func (t team) times(ctx context.Context, g Gomega, name, stage string) apis.StageTimes {
	var timeline apis.Timeline
	g.Expect(json.Unmarshal([]byte(t.jobSet(ctx, g, name).Annotations[apis.TimelineAnnotation]), &timeline)).To(Succeed())
	for _, s := range timeline.Stages {
		if s.Name == stage {
			return s
		}
	}
	g.Expect(timeline.Stages).To(ContainElement(HaveField("Name", stage)))
	return apis.StageTimes{}
}

// expectCounted waits until the timeline agrees with the quota Workload of a stage that has finished.
func (t team) expectCounted(ctx context.Context, name, stage string, gpus int64) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		times, w := t.times(ctx, g, name, stage), t.workload(ctx, g, name, stage)
		at := func(conditionType string) time.Time {
			return apimeta.FindStatusCondition(w.Status.Conditions, conditionType).LastTransitionTime.Time
		}
		g.Expect(times.Finished.Time).To(BeTemporally("==", at(kueue.WorkloadFinished)))
		g.Expect(times.Ready.Time).To(BeTemporally("==", at(kueue.WorkloadPodsReady)))
		g.Expect(times.Admitted.Time).To(BeTemporally("==", at(kueue.WorkloadAdmitted)))
		g.Expect(times.Queued.Time).To(BeTemporally("<=", times.Admitted.Time))
		g.Expect(times.Queued.Time).To(BeTemporally(">=", w.CreationTimestamp.Time))
		g.Expect(times.Held[gpu]).To(Equal(gpus * int64(at(kueue.WorkloadFinished).Sub(at(kueue.WorkloadQuotaReserved))/time.Second)))
		g.Expect(times.Idle[gpu]).To(BeNumerically("<=", times.Held[gpu]))
	}).WithContext(ctx).Should(Succeed())
}

// expectNoLeader asks verbs after a manager has led, while none runs, also about a JobSet that is submitted meanwhile, which it deletes.
func (t team) expectNoLeader(ctx context.Context, js *jobsetapi.JobSet) {
	GinkgoHelper()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: apis.SystemNamespace, Name: apis.ManagerServiceAccount}}
	leader, err := env.StartManager(ctx, testenv.ManagerOptions{Settings: map[string]any{"leaderElection": map[string]any{"leaderElect": true}}})
	Expect(err).NotTo(HaveOccurred())
	// Before the manager has the answer to its request for the Lease it does not release it.
	Eventually(ctx, func(ctx context.Context) (string, error) { return testenv.ReadMetrics(ctx, leader.Metrics) }).
		Should(MatchRegexp(`leader_election_master_status\{.*\} 1`))
	Expect(leader.Stop()).To(Succeed())
	Expect(env.Admin.Create(ctx, js)).To(Succeed())
	for _, args := range [][]string{{"explain", js.Name}, {"pending"}} {
		args = append(args, "-n", t.namespace, "--kubeconfig", env.AdminKubeconfig)
		out, err := exec.CommandContext(ctx, filepath.Join(env.Root, "bin", "tranche"), args...).CombinedOutput() // #nosec G204 -- a name of the test
		Expect(err).NotTo(HaveOccurred(), "%s", out)
		Expect(string(out)).To(ContainSubstring("This may be out of date: no manager has led since 20"))
		if args[0] == "explain" {
			Expect(string(out)).To(ContainSubstring("has no quota Workload: the manager has not created one yet"))
		}
	}
	Expect(env.Admin.Delete(ctx, js)).To(Succeed())
	Expect(env.Admin.Delete(ctx, lease)).To(Succeed()) // the other managers of the suite do without
}
