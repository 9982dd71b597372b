package integration_test

import (
	"context"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	k8sevents "k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/controllers/engine"
	"github.com/tranche-dev/tranche/controllers/metrics"
	"github.com/tranche-dev/tranche/controllers/quotaaudit"
)

// Here the feed of the engine withholds events that the test wants it to miss. The engine decides nothing: this process never leads.
var _ = Describe("The quota audit", Ordered, func() {
	var (
		runner *engine.Runner
		t      *tenant
		isDeaf atomic.Bool
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
		audit := quotaaudit.Config{
			Engine: runner, Cache: mgr.GetCache(), Live: mgr.GetAPIReader(), Recorder: recorder, Metrics: counts, Period: 2 * time.Second,
		}
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
})

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
