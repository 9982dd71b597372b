package kueue_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/test/invariants"
)

const (
	// arriving is how many Jobs, groups of pods and JobSets arrive while a tree is taken over and handed back, and arrivesEvery how often.
	arriving     = 48
	arrivesEvery = 400 * time.Millisecond
	// seenBetween is how many more reservations there are between two changes of the engine.
	seenBetween = 8
)

var _ = Describe("A cohort tree under load", Ordered, func() {
	BeforeAll(func(ctx SpecContext) {
		startBeside(ctx)
	}, NodeTimeout(2*patience))

	It("is taken over and handed back twice, while jobs of three kinds arrive and finish", func(ctx SpecContext) {
		inCohort := func(cq *kueue.ClusterQueue) { cq.Spec.CohortName = "load" }
		// Jobs, groups of pods and JobSets of one stage wait in a queue that admits them strictly in their order, and borrow; those of two are in the other one.
		tenant(ctx, "load-strict", 3, inCohort, func(cq *kueue.ClusterQueue) { cq.Spec.QueueingStrategy = kueue.StrictFIFO })
		tenant(ctx, "load-stages", 8, inCohort, func(cq *kueue.ClusterQueue) {
			cq.Spec.ResourceGroups[0].Flavors[0].Resources[0].LendingLimit = resource.NewQuantity(2, resource.DecimalSI)
		})
		auditing, stopAudit := context.WithCancel(ctx)
		defer stopAudit()
		auditor, err := invariants.Start(auditing, env.Admin)
		Expect(err).NotTo(HaveOccurred())
		log := watchReservations(auditing, "load-strict", "load-stages")
		running := named(lasting(newJob("load-strict", 1), "600"), "running")
		Expect(env.Admin.Create(ctx, running)).To(Succeed())
		Eventually(read(ctx, workloadOf(ctx, running))).WithContext(ctx).Should(haveCondition(kueue.WorkloadPodsReady, metav1.ConditionTrue, ""))
		l := &load{arrived: make(chan struct{})}
		go l.arrive(ctx)
		go endGroups(auditing, "load-strict")

		var engines []string
		for range 2 {
			log.awaitMore(ctx, seenBetween)
			takeOver(ctx, "load-strict", "load-stages")
			engines = append(engines, fmt.Sprintf("Tranche after %d", log.count()))
			log.awaitMore(ctx, seenBetween)
			handBack(ctx, "load-strict", "load-stages")
			engines = append(engines, fmt.Sprintf("Kueue after %d", log.count()))
		}
		log.awaitMore(ctx, 1)
		Eventually(l.arrived).WithContext(ctx).Should(BeClosed())
		l.expectEnd(ctx)
		Expect(log.order("load-strict")).To(HaveLen(len(l.jobs) + len(l.groups) + len(l.whole) + 1))
		report := fmt.Sprintf("%d Jobs, %d groups of pods, %d JobSets of one stage and %d of two; reservations: %d, %v", len(l.jobs), len(l.groups), len(l.whole), len(l.jobSets), log.count(), engines)
		AddReportEntry("load", report)
		GinkgoWriter.Println(report)

		By("keeping the order, restarting nothing and violating nothing")
		expectOrder(log.order("load-strict"), l.whole)
		Expect(podUIDs(ctx, running)).To(HaveLen(1))
		violations, err := auditor.Violations(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(violations).To(BeEmpty())
		removePods(ctx, "load-strict", "load-stages")
	}, NodeTimeout(5*patience))
})

// removePods deletes all pods of some namespaces and what would create them again, and waits until they are gone: an auditor that starts later has
// not seen why they could run.
func removePods(ctx context.Context, namespaces ...string) {
	GinkgoHelper()
	for _, namespace := range namespaces {
		for _, kind := range []client.Object{&jobsetapi.JobSet{}, &batchv1.Job{}, &corev1.Pod{}} {
			Expect(env.Admin.DeleteAllOf(ctx, kind, client.InNamespace(namespace), client.PropagationPolicy(metav1.DeletePropagationBackground))).To(Succeed())
		}
		Eventually(func(g Gomega) {
			pods := &corev1.PodList{}
			g.Expect(env.Admin.List(ctx, pods, client.InNamespace(namespace))).To(Succeed())
			g.Expect(pods.Items).To(BeEmpty())
		}).WithContext(ctx).Should(Succeed())
	}
}

// expectOrder expects that no quota Workload was admitted before one that comes earlier for both engines: Kueue orders all by the creation of the quota
// Workload, and Tranche those of JobSets by the creation of the JobSet. Both managers write what they decide at one time in parallel, and times are whole
// seconds: such a Workload may have a time that is one second later.
func expectOrder(reserved []*kueue.Workload, jobSets []*jobsetapi.JobSet) {
	GinkgoHelper()
	since := func(w *kueue.Workload) time.Time {
		return meta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadQuotaReserved).LastTransitionTime.Time
	}
	submitted := func(w *kueue.Workload) *metav1.Time {
		for _, js := range jobSets {
			if metav1.IsControlledBy(w, js) {
				return &js.CreationTimestamp
			}
		}
		return &w.CreationTimestamp
	}
	for i, w := range reserved {
		Expect(w).NotTo(haveCondition(kueue.WorkloadEvicted, metav1.ConditionTrue, ""), w.Name)
		for _, earlier := range reserved[:i] {
			if w.CreationTimestamp.Before(&earlier.CreationTimestamp) && submitted(w).Before(submitted(earlier)) {
				Expect(since(w).Sub(since(earlier))).To(BeNumerically("<=", time.Second), "%s was admitted before %s", earlier.Name, w.Name)
			}
		}
	}
}

// A load is what arrives while engines change.
type load struct {
	arrived chan struct{}
	// All below belong to the goroutine of arrive until arrived is closed.
	jobs   []*batchv1.Job
	groups [][]*corev1.Pod
	// whole have one stage, and jobSets two.
	whole, jobSets []*jobsetapi.JobSet
}

// arrive creates a Job, a group of pods, and a JobSet of one stage and of two in turn.
func (l *load) arrive(ctx context.Context) {
	defer GinkgoRecover()
	defer close(l.arrived)
	due := time.NewTicker(arrivesEvery)
	defer due.Stop()
	for i := range arriving {
		name := fmt.Sprintf("run-%02d", i)
		switch i % 4 {
		case 0:
			job := named(newJob("load-strict", int32(1+i%2)), name)
			Expect(env.Admin.Create(ctx, job)).To(Succeed())
			l.jobs = append(l.jobs, job)
		case 1:
			l.groups = append(l.groups, podGroup(ctx, "load-strict", name, 2))
		case 2:
			js := newJobSet("load-strict", name)
			js.Labels = map[string]string{apis.QueueLabel: "queue"}
			Expect(env.Admin.Create(ctx, js)).To(Succeed())
			l.whole = append(l.whole, js)
		case 3:
			js := stagedJobSet("load-stages", map[string]string{apis.QueueLabel: "queue"}, "1")
			js.Name = name
			Expect(env.Admin.Create(ctx, js)).To(Succeed())
			l.jobSets = append(l.jobSets, js)
		}
		select {
		case <-due.C:
		case <-ctx.Done():
			return
		}
	}
}

// endGroups ends the pods of groups once they run: a pod without a Job does not end by itself.
func endGroups(ctx context.Context, namespace string) {
	defer GinkgoRecover()
	watcher, err := env.Admin.Watch(ctx, &corev1.PodList{}, client.InNamespace(namespace), client.HasLabels{apis.PodGroupNameLabel})
	Expect(err).NotTo(HaveOccurred())
	defer watcher.Stop()
	for event := range watcher.ResultChan() {
		pod, ok := event.Object.(*corev1.Pod)
		if !ok || pod.Status.Phase != corev1.PodRunning {
			continue
		}
		Expect(client.IgnoreNotFound(succeed(ctx, pod))).To(Or(Succeed(), MatchError(context.Canceled)))
	}
}

// succeed ends a pod.
func succeed(ctx context.Context, pod *corev1.Pod) error {
	ended := pod.DeepCopy()
	ended.Status.Phase = corev1.PodSucceeded
	return env.Admin.Status().Patch(ctx, ended, client.MergeFrom(pod))
}

// expectEnd waits until all has finished, and expects that each pod ran once.
func (l *load) expectEnd(ctx context.Context) {
	GinkgoHelper()
	for _, job := range l.jobs {
		Eventually(read(ctx, job)).WithContext(ctx).Should(HaveField("Status.CompletionTime", Not(BeNil())), job.Name)
		Expect(podUIDs(ctx, job)).To(HaveLen(int(*job.Spec.Parallelism)), "each pod of Job %s ran once", job.Name)
	}
	for _, group := range l.groups {
		for _, pod := range group {
			uid := pod.UID
			Eventually(read(ctx, pod)).WithContext(ctx).Should(HaveField("Status.Phase", corev1.PodSucceeded), pod.Name)
			Expect(pod.UID).To(Equal(uid), pod.Name)
		}
	}
	for _, js := range l.whole {
		expectOneRun(ctx, js, 1, "main")
	}
	for _, js := range l.jobSets {
		expectOneRun(ctx, js, 2, "first", "second")
	}
}

// expectOneRun waits until a JobSet has completed, and expects that each of the pods of its stages ran once.
func expectOneRun(ctx context.Context, js *jobsetapi.JobSet, pods int, stages ...string) {
	GinkgoHelper()
	awaitCompletion(ctx, js)
	Expect(js.Status.Restarts).To(BeZero(), js.Name)
	for _, stage := range stages {
		Expect(stageOf(ctx, js, stage)).NotTo(haveCondition(kueue.WorkloadEvicted, metav1.ConditionTrue, ""))
		Expect(podUIDs(ctx, childOf(ctx, js, stage))).To(HaveLen(pods), "each pod of stage %s of %s ran once", stage, js.Name)
	}
}

// reservations are the quota Workloads of some namespaces in the order in which they got quota for the first time.
type reservations struct {
	mu    sync.Mutex
	first map[types.UID]bool
	all   []*kueue.Workload
}

// watchReservations records reservations until the context ends.
func watchReservations(ctx context.Context, namespaces ...string) *reservations {
	GinkgoHelper()
	r := &reservations{first: map[types.UID]bool{}}
	for _, namespace := range namespaces {
		watcher, err := env.Admin.Watch(ctx, &kueue.WorkloadList{}, client.InNamespace(namespace))
		Expect(err).NotTo(HaveOccurred())
		go func() {
			defer watcher.Stop()
			for event := range watcher.ResultChan() {
				if w, ok := event.Object.(*kueue.Workload); ok {
					r.see(w)
				}
			}
		}()
	}
	return r
}

func (r *reservations) see(w *kueue.Workload) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if meta.IsStatusConditionTrue(w.Status.Conditions, kueue.WorkloadQuotaReserved) && !r.first[w.UID] {
		r.first[w.UID] = true
		r.all = append(r.all, w)
	}
}

func (r *reservations) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.all)
}

// order returns those of a namespace.
func (r *reservations) order(namespace string) []*kueue.Workload {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.all), func(w *kueue.Workload) bool { return w.Namespace != namespace })
}

// awaitMore waits until there are so many more reservations than now.
func (r *reservations) awaitMore(ctx context.Context, more int) {
	GinkgoHelper()
	before := r.count()
	Eventually(r.count).WithContext(ctx).Should(BeNumerically(">=", before+more))
}
