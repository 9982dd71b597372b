package integration_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	k8sevents "k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/controllers/engine"
	"github.com/tranche-dev/tranche/controllers/metrics"
	"github.com/tranche-dev/tranche/controllers/podgang"
	"github.com/tranche-dev/tranche/controllers/quotaaudit"
	"github.com/tranche-dev/tranche/test/controlplane"
	"github.com/tranche-dev/tranche/test/invariants"
	"github.com/tranche-dev/tranche/test/testenv"
)

// Here the feed of the engine withholds events that the test wants it to miss. The engine decides nothing: this process never leads.
var _ = Describe("The quota audit", Ordered, func() {
	var (
		runner *engine.Runner
		t      *tenant
		isDeaf atomic.Bool
		// registry has the metrics of the audit.
		registry *prometheus.Registry
	)

	BeforeAll(func(ctx SpecContext) {
		flavor := &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: onDemand}}
		Expect(client.IgnoreAlreadyExists(env.adminClient.Create(ctx, flavor))).To(Succeed())
		config := env.Plane.AdminConfig()
		running, stop := context.WithCancel(context.Background())
		clientset, err := kubernetes.NewForConfig(config)
		Expect(err).NotTo(HaveOccurred())
		broadcaster := k8sevents.NewBroadcaster(&k8sevents.EventSinkImpl{Interface: clientset.EventsV1()})
		Expect(broadcaster.StartRecordingToSinkWithContext(running)).To(Succeed())
		mgr, err := ctrl.NewManager(config, ctrl.Options{Scheme: env.adminClient.Scheme(), Metrics: metricsserver.Options{BindAddress: "0"}})
		Expect(err).NotTo(HaveOccurred())
		core, err := admission.New(admission.Config{})
		Expect(err).NotTo(HaveOccurred())
		recorder := broadcaster.NewRecorder(env.adminClient.Scheme(), "ledger-test")
		counts := metrics.New(metrics.Replica{})
		runner, err = engine.NewRunner(engine.Config{
			Engine: core, Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Recorder: recorder, Metrics: counts, Elected: make(chan struct{}), Writers: 1,
		})
		Expect(err).NotTo(HaveOccurred())
		Expect(mgr.Add(runner)).To(Succeed())
		Expect(engine.Watch(running, mgr, runner,
			func(q *kueue.ClusterQueue) admission.Event { return admission.ClusterQueueObserved{ClusterQueue: q} },
			func(q *kueue.ClusterQueue) admission.Event { return admission.ClusterQueueGone{Name: q.Name} })).To(Succeed())
		Expect(engine.Watch(running, mgr, runner,
			func(w *kueue.Workload) admission.Event {
				if isDeaf.Load() {
					return nil
				}
				return admission.WorkloadObserved{Workload: w}
			},
			func(w *kueue.Workload) admission.Event {
				if isDeaf.Load() {
					return nil
				}
				return admission.WorkloadGone{Key: client.ObjectKeyFromObject(w), UID: w.UID}
			})).To(Succeed())
		gangPods, err := podgang.NewPodCache(mgr)
		Expect(err).NotTo(HaveOccurred())
		audit := quotaaudit.Config{
			Engine: runner, Cache: mgr.GetCache(), GangPods: gangPods, Live: mgr.GetAPIReader(), Recorder: recorder, Metrics: counts,
			Namespaces: labels.Everything(), Period: 2 * time.Second,
		}
		registry = prometheus.NewRegistry()
		registry.MustRegister(counts.Collectors()...)
		Expect(quotaaudit.SetupWithManager(mgr, audit)).To(Succeed())
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = mgr.Start(running)
		}()
		DeferCleanup(func() {
			stop()
			<-done
			broadcaster.Shutdown()
		})
	}, NodeTimeout(patience))

	BeforeEach(func(ctx SpecContext) {
		isDeaf.Store(false)
		t = newQueue(ctx)
		expectCharge(ctx, runner, t, "0")
	}, NodeTimeout(patience))

	It("detects and repairs a reservation that the engine has missed", func(ctx SpecContext) {
		isDeaf.Store(true)
		reserve(ctx, create(ctx, t.workload("missed", "3")), onDemand, time.Now())
		expectCharge(ctx, runner, t, "3")
		expectMismatch(ctx, t, "The engine charged 0 cpu of flavor "+onDemand+", but quota Workload "+t.namespace+"/missed holds 3")
	}, SpecTimeout(patience))

	It("detects and repairs a quota Workload that the engine regards as deleted", func(ctx SpecContext) {
		w := create(ctx, t.workload("lives", "3"))
		reserve(ctx, w, onDemand, time.Now())
		expectCharge(ctx, runner, t, "3")
		runner.Observe(admission.WorkloadGone{Key: client.ObjectKeyFromObject(w), UID: w.UID})
		expectMismatch(ctx, t, "The engine charged 0 cpu of flavor "+onDemand+", but quota Workload "+t.namespace+"/lives holds 3")
		expectCharge(ctx, runner, t, "3")

		By("treating it as deleted when it disappears")
		Expect(env.adminClient.Delete(ctx, w)).To(Succeed())
		expectCharge(ctx, runner, t, "0")
	}, SpecTimeout(patience))

	It("detects and repairs leaked quota", func(ctx SpecContext) {
		w := create(ctx, t.workload("gone", "3"))
		reserve(ctx, w, onDemand, time.Now())
		expectCharge(ctx, runner, t, "3")
		expectNoMismatch(ctx, t)
		isDeaf.Store(true)
		Expect(env.adminClient.Delete(ctx, w)).To(Succeed())
		expectCharge(ctx, runner, t, "0")
		expectMismatch(ctx, t, "The engine charged 3 cpu of flavor "+onDemand+", but quota Workload "+t.namespace+"/gone holds 0")
	}, SpecTimeout(patience))

	It("detects pods that are not charged, by whatever way they got there", func(ctx SpecContext) {
		manager := env.clientAs(testenv.ManagerUser)
		queue := t.clusterQueue.DeepCopy()
		group := &queue.Spec.ResourceGroups[0]
		group.CoveredResources = append(group.CoveredResources, "nvidia.com/gpu")
		for i := range group.Flavors {
			group.Flavors[i].Resources = append(group.Flavors[i].Resources, kueue.ResourceQuota{Name: "nvidia.com/gpu", NominalQuota: resource.MustParse("8")})
		}
		Expect(env.adminClient.Patch(ctx, queue, client.MergeFrom(t.clusterQueue))).To(Succeed())
		auditing, stop := context.WithCancel(context.Background())
		DeferCleanup(stop)
		auditor, err := invariants.Start(auditing, env.adminClient)
		Expect(err).NotTo(HaveOccurred())
		violations := func(ctx context.Context) []string {
			all, err := auditor.Violations(ctx)
			Expect(err).NotTo(HaveOccurred())
			return slices.DeleteFunc(all, func(text string) bool { return !strings.Contains(text, t.namespace+"/") })
		}
		gpus := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), "nvidia.com/gpu": resource.MustParse("8")}
		job := newQueuedJob(t.namespace, "train")
		job.Spec.Parallelism, job.Spec.Completions = new(int32(1)), new(int32(5))
		job.Spec.Template.Annotations = map[string]string{controlplane.FakeExit: controlplane.FakeExitNever}
		job.Spec.Template.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: gpus, Limits: gpus}
		Expect(env.adminClient.Create(ctx, job)).To(Succeed())
		w := t.workload("train", "1")
		w.Labels = map[string]string{apis.JobUIDLabel: string(job.UID)}
		w.Spec.PodSets[0].Template.Spec.Containers[0].Resources.Requests = gpus
		reserve(ctx, create(ctx, w), onDemand, time.Now(), admittedSince(time.Now()))

		By("starting a queued Job on its quota, and then more pods of it, as only the manager may")
		change := func(patch string) {
			GinkgoHelper()
			Expect(manager.Patch(ctx, job, client.RawPatch(types.MergePatchType, []byte(patch)))).To(Succeed())
		}
		pods := func(n int32) {
			GinkgoHelper()
			Eventually(func(g Gomega) {
				g.Expect(env.adminClient.Get(ctx, client.ObjectKeyFromObject(job), job)).To(Succeed())
				g.Expect(job.Status.Active).To(Equal(n))
			}).WithContext(ctx).Should(Succeed())
		}
		change(`{"spec":{"suspend":false}}`)
		pods(1)
		Expect(violations(ctx)).To(BeEmpty())
		change(`{"spec":{"parallelism":3}}`)
		pods(3)
		expectUncharged(ctx, registry, t, 16)
		expectAccused(ctx, t, "Job", "train", "Live pods ask for 24 nvidia.com/gpu, and quota is charged for 8")
		Expect(violations(ctx)).To(ConsistOf(HavePrefix("I9: " + t.namespace + "/train was charged")))

		By("stopping them")
		change(`{"spec":{"parallelism":1}}`)
		expectUncharged(ctx, registry, t, 0)

		By("ungating a pod of a gang without quota")
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: "free", Labels: map[string]string{apis.QueueLabel: "queue", apis.PodGroupNameLabel: "gang"}}}
		pod.Annotations = map[string]string{apis.PodGroupTotalCountAnnotation: "1"}
		pod.Spec = *job.Spec.Template.Spec.DeepCopy()
		Expect(env.adminClient.Create(ctx, pod)).To(Succeed())
		Expect(pod.Spec.SchedulingGates).NotTo(BeEmpty())
		ungate := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"schedulingGates":null}}`))
		Expect(manager.Patch(ctx, pod, ungate)).To(Succeed())
		expectUncharged(ctx, registry, t, 8)
		expectAccused(ctx, t, "Pod", "free", "Live pods ask for 8 nvidia.com/gpu, and quota is charged for 0")
		Expect(violations(ctx)).To(ContainElement(HavePrefix("I2: pod " + t.namespace + "/free of a gang lived ungated")))
		Expect(env.adminClient.Delete(ctx, pod, client.GracePeriodSeconds(0))).To(Succeed())
		expectUncharged(ctx, registry, t, 0)
	}, SpecTimeout(patience))
})

// reportedWithin is by when the audit reports pods that are not charged. It reads the cache every five seconds, twice, and then the API server.
const reportedWithin = 15 * time.Second

// expectUncharged waits until the metric reports so many GPUs that pods of a tenant have and nothing charges.
func expectUncharged(ctx context.Context, registry *prometheus.Registry, t *tenant, want float64) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		families, err := registry.Gather()
		g.Expect(err).NotTo(HaveOccurred())
		got := 0.0
		for _, family := range families {
			for _, m := range family.GetMetric() {
				if family.GetName() == "tranche_uncharged_accelerators" && m.GetLabel()[0].GetValue() == t.namespace {
					got += m.GetGauge().GetValue()
				}
			}
		}
		g.Expect(got).To(Equal(want))
	}).WithContext(ctx).WithTimeout(reportedWithin).Should(Succeed())
}

// expectAccused waits until an Event on an object reports that its pods are not charged.
func expectAccused(ctx context.Context, t *tenant, kind, name, want string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		var list eventsv1.EventList
		g.Expect(env.adminClient.List(ctx, &list, client.InNamespace(t.namespace))).To(Succeed())
		var told []string
		for _, e := range list.Items {
			if e.Reason == "AcceleratorsUncharged" && e.Regarding.Kind == kind && e.Regarding.Name == name {
				told = append(told, e.Note)
			}
		}
		g.Expect(told).To(ContainElement(HavePrefix(want)))
	}).WithContext(ctx).WithTimeout(reportedWithin).Should(Succeed())
}

// expectCharge waits until the engine charges so much to the ClusterQueue of a tenant.
func expectCharge(ctx context.Context, runner *engine.Runner, t *tenant, want string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		var view admission.ClusterQueueView
		var ok bool
		g.Expect(runner.View(ctx, func(e *admission.Engine) { view, ok = e.ClusterQueue(t.namespace) })).To(Succeed())
		g.Expect(ok).To(BeTrue())
		g.Expect(view.FlavorsReservation[0].Resources[0].Total.String()).To(Equal(want))
	}).WithContext(ctx).Should(Succeed())
}

func mismatches(ctx context.Context, g Gomega, t *tenant) []string {
	var list eventsv1.EventList
	g.Expect(env.adminClient.List(ctx, &list, client.InNamespace(corev1.NamespaceDefault))).To(Succeed())
	var told []string
	for _, e := range list.Items {
		if e.Regarding.Kind == "ClusterQueue" && e.Regarding.Name == t.namespace && e.Reason == "LedgerMismatch" {
			told = append(told, e.Note)
		}
	}
	return told
}

// expectMismatch waits until this Event, and no other, is recorded on the ClusterQueue.
func expectMismatch(ctx context.Context, t *tenant, want string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(mismatches(ctx, g, t)).To(ConsistOf(HavePrefix(want)))
	}).WithContext(ctx).Should(Succeed())
}

func expectNoMismatch(ctx context.Context, t *tenant) {
	GinkgoHelper()
	Expect(mismatches(ctx, NewWithT(GinkgoT()), t)).To(BeEmpty())
}
