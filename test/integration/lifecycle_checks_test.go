package integration_test

import (
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/test/testenv"
)

var _ = Describe("AdmissionChecks", Ordered, func() {
	var proxy *testenv.Proxy
	var t *tenant

	BeforeAll(func(ctx SpecContext) { proxy = startManager(ctx, nil) }, NodeTimeout(patience))

	// The check budget applies to all, nodes to those on spot, licence to those on demand.
	BeforeEach(func(ctx SpecContext) {
		t = newQueue(ctx,
			kueue.AdmissionCheckStrategyRule{Name: "budget"},
			kueue.AdmissionCheckStrategyRule{Name: "nodes", OnFlavors: []kueue.ResourceFlavorReference{spot}},
			kueue.AdmissionCheckStrategyRule{Name: "licence", OnFlavors: []kueue.ResourceFlavorReference{onDemand}},
		)
	}, NodeTimeout(patience))

	It("admit a quota Workload once those of its flavors are Ready, with one write for each step", func(ctx SpecContext) {
		proxy.AfterWrite(nil)
		w := t.reserved(ctx, "train", spot)
		expect(ctx, w, "check budget=Pending", "check nodes=Pending", "no check licence", "Admitted=False UnsatisfiedChecks")
		answer(ctx, w, kueue.AdmissionCheckState{Name: "budget", State: kueue.CheckStateReady, Message: "enough"})
		answer(ctx, w, kueue.AdmissionCheckState{Name: "nodes", State: kueue.CheckStateReady, Message: "there", PodSetUpdates: []kueue.PodSetUpdate{
			{Name: "main", NodeSelector: map[string]string{"pool": "spot-1"}},
		}})
		now := expect(ctx, w, "Admitted=True Admitted", "QuotaReserved=True QuotaReserved", "check budget=Ready", "check nodes=Ready", "admission")
		Expect(now.Status.AdmissionChecks).To(HaveLen(2))
		for _, check := range now.Status.AdmissionChecks {
			Expect(check.Message).To(BeElementOf("enough", "there"), "the message of its controller")
		}
		expectEvent(ctx, w, "Admitted")

		By("evicting it when a check becomes Retry, and releasing its quota")
		answer(ctx, w, kueue.AdmissionCheckState{Name: "nodes", State: kueue.CheckStateRetry, Message: "gone"})
		finishEviction(ctx, w)
		now = expect(ctx, w, "Evicted=True AdmissionCheck", "QuotaReserved=False AdmissionGated", "Admitted=False NoReservationUnsatisfiedChecks", "no admission",
			"check budget=Pending", "check nodes=Pending/1", "Requeued=True BackoffFinished", "no requeueAt")
		Expect(find(now, kueue.WorkloadEvicted).Message).To(Equal(`Evicted due to AdmissionCheck in state Retry: "nodes" (gone)`))
		expectEvent(ctx, w, "EvictedDueToAdmissionCheck")
		expectEvent(ctx, w, "Requeued")

		writes := 0
		for _, path := range proxy.Writes() {
			if strings.Contains(path, "/workloads/train") && strings.Contains(path, t.namespace) {
				writes++
			}
		}
		// A slow machine lets the manager observe the two answers one after the other, which takes one more write.
		Expect(writes).To(BeElementOf(5, 6), "checks, admission, eviction, the gate, requeueing: %v", proxy.Writes())
	}, SpecTimeout(patience))

	It("follow changes of the ClusterQueue's checks while the quota Workload is pending", func(ctx SpecContext) {
		w := t.reserved(ctx, "train", spot)
		expect(ctx, w, "check budget=Pending", "check nodes=Pending")
		answer(ctx, w, kueue.AdmissionCheckState{Name: "nodes", State: kueue.CheckStateReady})
		setChecks := func(names ...kueue.AdmissionCheckReference) {
			queue := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: t.clusterQueue.Name}}
			Expect(env.adminClient.Get(ctx, client.ObjectKeyFromObject(queue), queue)).To(Succeed())
			before := queue.DeepCopy()
			queue.Spec.AdmissionChecksStrategy = nil
			for _, name := range names {
				if queue.Spec.AdmissionChecksStrategy == nil {
					queue.Spec.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{}
				}
				rules := &queue.Spec.AdmissionChecksStrategy.AdmissionChecks
				*rules = append(*rules, kueue.AdmissionCheckStrategyRule{Name: name})
			}
			Expect(env.adminClient.Patch(ctx, queue, client.MergeFrom(before))).To(Succeed())
		}
		setChecks("budget", "audit")
		expect(ctx, w, "check budget=Pending", "check audit=Pending", "no check nodes", "Admitted=False UnsatisfiedChecks")
		setChecks()
		expect(ctx, w, "no check", "Admitted=True Admitted")
	}, SpecTimeout(patience))

	It("delay a quota Workload by the longest requested delay", func(ctx SpecContext) {
		w := t.reserved(ctx, "train", spot)
		expect(ctx, w, "check budget=Pending", "check nodes=Pending")
		answer(ctx, w, kueue.AdmissionCheckState{Name: "nodes", State: kueue.CheckStateRetry, RequeueAfterSeconds: new(int32(600)), RetryCount: new(int32(4))})
		finishEviction(ctx, w)
		now := expect(ctx, w, "Evicted=True AdmissionCheck", "Requeued=False AdmissionCheck", "no admission", "check nodes=Pending/5", "requeueAt")
		Expect(time.Until(now.Status.RequeueState.RequeueAt.Time)).To(BeNumerically("~", 600*time.Second, patience))

		By("respecting a change that the user makes after the eviction")
		answer(ctx, w, kueue.AdmissionCheckState{Name: "budget", State: kueue.CheckStateRetry, RequeueAfterSeconds: new(int32(6000))})
		finishEviction(ctx, w)
		now = expect(ctx, w, "check budget=Pending/1", "Requeued=False AdmissionCheck", "requeueAt")
		Expect(time.Until(now.Status.RequeueState.RequeueAt.Time)).To(BeNumerically("~", 6000*time.Second, patience))

		By("requeueing it when the back-off has expired")
		w = t.reserved(ctx, "soon", spot)
		expect(ctx, w, "check nodes=Pending")
		answer(ctx, w, kueue.AdmissionCheckState{Name: "nodes", State: kueue.CheckStateRetry, RequeueAfterSeconds: new(int32(2))})
		finishEviction(ctx, w)
		until := expect(ctx, w, "Requeued=False AdmissionCheck", "requeueAt").Status.RequeueState.RequeueAt
		now = expect(ctx, w, "Requeued=True BackoffFinished", "no requeueAt", "no count")
		Expect(find(now, kueue.WorkloadRequeued).LastTransitionTime.Time).NotTo(BeTemporally("<", until.Time))
	}, SpecTimeout(patience))

	It("deactivate a quota Workload that an AdmissionCheck rejects, until a user activates it again", func(ctx SpecContext) {
		w := t.reserved(ctx, "train", spot)
		expect(ctx, w, "check budget=Pending", "check nodes=Pending")
		answer(ctx, w, kueue.AdmissionCheckState{Name: "nodes", State: kueue.CheckStateRetry, RequeueAfterSeconds: new(int32(600))})
		finishEviction(ctx, w)
		expect(ctx, w, "Requeued=False AdmissionCheck", "requeueAt")
		reserve(ctx, fresh(ctx, w), spot, time.Now())
		answer(ctx, w, kueue.AdmissionCheckState{Name: "budget", State: kueue.CheckStateRejected, Message: "no money left"})
		finishEviction(ctx, w)
		now := expect(ctx, w, "inactive", "Evicted=True DeactivatedDueToAdmissionCheck", "QuotaReserved=False Pending", "Admitted=False NoReservationUnsatisfiedChecks",
			"Requeued=False DeactivatedDueToAdmissionCheck", "no DeactivationTarget", "no admission", "no requeueAt", "check budget=Pending", "check nodes=Pending")
		Expect(find(now, kueue.WorkloadEvicted).Message).To(ContainSubstring(`"budget" (no money left)`))
		expectEvent(ctx, w, "AdmissionCheckRejected")
		expectEvent(ctx, w, "EvictedDueToDeactivatedDueToAdmissionCheck")

		setActive(ctx, w, true)
		expect(ctx, w, "Requeued=True Reactivated", "no inactive")
	}, SpecTimeout(patience))

	It("deactivate a quota Workload if their pod set updates conflict", func(ctx SpecContext) {
		w := t.reserved(ctx, "train", spot)
		expect(ctx, w, "check budget=Pending", "check nodes=Pending")
		for _, name := range []kueue.AdmissionCheckReference{"budget", "nodes"} {
			answer(ctx, w, kueue.AdmissionCheckState{Name: name, State: kueue.CheckStateReady, PodSetUpdates: []kueue.PodSetUpdate{
				{Name: "main", Labels: map[string]string{"account": string(name)}},
			}})
		}
		finishEviction(ctx, w)
		now := expect(ctx, w, "inactive", "Evicted=True DeactivatedDueToAdmissionCheck", "no admission")
		Expect(find(now, kueue.WorkloadEvicted).Message).To(ContainSubstring(`label "account" is to be "nodes", but is "budget" already`))
	}, SpecTimeout(patience))

	It("are never overwritten, even if they answer at once", func(ctx SpecContext) {
		const many = 24
		var all []*kueue.Workload
		for i := range many {
			w := t.reserved(ctx, fmt.Sprintf("train-%d", i), spot)
			for _, name := range []kueue.AdmissionCheckReference{"budget", "nodes"} {
				for try := range 3 {
					answer(ctx, w, kueue.AdmissionCheckState{Name: name, State: kueue.CheckStatePending, Message: fmt.Sprintf("try %d", try)})
				}
				answer(ctx, w, kueue.AdmissionCheckState{Name: name, State: kueue.CheckStateReady, Message: "last word"})
			}
			all = append(all, w)
		}
		for _, w := range all {
			now := expect(ctx, w, "Admitted=True Admitted", "check budget=Ready", "check nodes=Ready")
			for _, check := range now.Status.AdmissionChecks {
				Expect(check.Message).To(Equal("last word"), "%s of %s", check.Name, w.Name)
			}
		}
	}, SpecTimeout(patience))

	It("stay as long as a ClusterQueue names them", func(ctx SpecContext) {
		check := &kueue.AdmissionCheck{
			ObjectMeta: metav1.ObjectMeta{Name: t.namespace}, Spec: kueue.AdmissionCheckSpec{ControllerName: "example.com/lifecycle"},
		}
		Expect(env.adminClient.Create(ctx, check)).To(Succeed())
		user := newQueue(ctx, kueue.AdmissionCheckStrategyRule{Name: kueue.AdmissionCheckReference(check.Name)})
		Eventually(func(g Gomega) {
			g.Expect(env.adminClient.Get(ctx, client.ObjectKeyFromObject(check), check)).To(Succeed())
			g.Expect(check.Finalizers).To(ContainElement(kueue.ResourceInUseFinalizerName))
		}).WithContext(ctx).Should(Succeed())
		Expect(env.adminClient.Delete(ctx, check)).To(Succeed())
		before := user.clusterQueue.DeepCopy()
		user.clusterQueue.Spec.AdmissionChecksStrategy = nil
		// The manager removes the finalizer of a later AdmissionCheck that no ClusterQueue names.
		unused := &kueue.AdmissionCheck{
			ObjectMeta: metav1.ObjectMeta{Name: t.namespace + "-unused", Finalizers: []string{kueue.ResourceInUseFinalizerName}}, Spec: check.Spec,
		}
		Expect(env.adminClient.Create(ctx, unused)).To(Succeed())
		Expect(env.adminClient.Delete(ctx, unused)).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(env.adminClient.Get(ctx, client.ObjectKeyFromObject(unused), unused)).To(MatchError(ContainSubstring("not found")))
		}).WithContext(ctx).Should(Succeed())
		Expect(env.adminClient.Get(ctx, client.ObjectKeyFromObject(check), check)).To(Succeed(), "it is in use")
		Expect(env.adminClient.Patch(ctx, user.clusterQueue, client.MergeFrom(before))).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(env.adminClient.Get(ctx, client.ObjectKeyFromObject(check), check)).To(MatchError(ContainSubstring("not found")))
		}).WithContext(ctx).Should(Succeed())
	}, SpecTimeout(patience))
})
