package integration_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// Scripts and dashboards compare these texts.
var _ = Describe("Messages shared with Kueue", Ordered, ContinueOnFailure, func() {
	var t *tenant
	BeforeAll(func(ctx SpecContext) { startManager(ctx, nil) }, NodeTimeout(patience))
	BeforeEach(func(ctx SpecContext) { t = newQueue(ctx) }, NodeTimeout(patience))

	isActive := func(ctx context.Context, queue client.Object, conditions func() []metav1.Condition, reason, message string) {
		GinkgoHelper()
		Eventually(func(g Gomega) {
			g.Expect(env.adminClient.Get(ctx, client.ObjectKeyFromObject(queue), queue)).To(Succeed())
			c := apimeta.FindStatusCondition(conditions(), kueue.ClusterQueueActive)
			g.Expect(c).NotTo(BeNil())
			g.Expect([]string{string(c.Status), c.Reason, c.Message}).To(Equal([]string{"False", reason, message}))
		}).WithContext(ctx).Should(Succeed())
	}
	eventsOn := func(ctx context.Context, g Gomega, w *kueue.Workload) (found []eventsv1.Event) {
		var list eventsv1.EventList
		g.Expect(env.adminClient.List(ctx, &list, client.InNamespace(w.Namespace))).To(Succeed())
		for _, e := range list.Items {
			if e.Regarding.UID == w.UID {
				found = append(found, e)
			}
		}
		return found
	}

	It("report why queues are not active", func(ctx SpecContext) {
		clusterQueue, local := t.clusterQueue.DeepCopy(), t.localQueue.DeepCopy()
		ofClusterQueue := func() []metav1.Condition { return clusterQueue.Status.Conditions }
		ofLocal := func() []metav1.Condition { return local.Status.Conditions }
		t.configure(ctx, func(spec *kueue.ClusterQueueSpec) {
			spec.ResourceGroups[0].Flavors[0].Name = "missing"
			spec.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{AdmissionChecks: []kueue.AdmissionCheckStrategyRule{{Name: "absent"}}}
		})
		isActive(ctx, clusterQueue, ofClusterQueue, "FlavorNotFound",
			"Can't admit new workloads: references missing ResourceFlavor(s): missing, references missing AdmissionCheck(s): absent.")
		isActive(ctx, local, ofLocal, "ClusterQueueIsInactive", "Can't submit new workloads to clusterQueue")
		nowhere := &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: "nowhere"}, Spec: kueue.LocalQueueSpec{ClusterQueue: "absent"}}
		Expect(env.adminClient.Create(ctx, nowhere)).To(Succeed())
		isActive(ctx, nowhere, func() []metav1.Condition { return nowhere.Status.Conditions }, "ClusterQueueDoesNotExist", "Can't submit new workloads to clusterQueue")
		t.stopLocalQueue(ctx, kueue.Hold)
		isActive(ctx, local, ofLocal, "Stopped", "LocalQueue is stopped")
	}, SpecTimeout(patience))

	It("warn once of a quota Workload that gets no quota, and not of an ineligible one", func(ctx SpecContext) {
		t.onlyOnDemand(ctx, "4", func(*kueue.ClusterQueueSpec) {})
		large := create(ctx, t.workload("large", "5"))
		expect(ctx, large, "QuotaReserved=False Pending")
		refusal := find(fresh(ctx, large), kueue.WorkloadQuotaReserved)
		Eventually(func(g Gomega) {
			found := eventsOn(ctx, g, large)
			g.Expect(found).To(HaveLen(1))
			g.Expect([]string{found[0].Type, found[0].Reason, found[0].Note}).To(Equal([]string{corev1.EventTypeWarning, "Pending", refusal.Message}))
		}).WithContext(ctx).Should(Succeed())

		By("changing the missing amount, which changes the message")
		t.configure(ctx, func(spec *kueue.ClusterQueueSpec) {
			spec.ResourceGroups[0].Flavors[0].Resources[0].NominalQuota = resource.MustParse("3")
		})
		Eventually(func(g Gomega) {
			g.Expect(find(fresh(ctx, large), kueue.WorkloadQuotaReserved).Message).NotTo(Equal(refusal.Message))
			found := eventsOn(ctx, g, large)
			g.Expect(found).To(HaveLen(1))
			g.Expect(found[0].Series).NotTo(BeNil())
		}).WithContext(ctx).WithTimeout(time.Minute + patience).Should(Succeed()) // amounts are written once a minute

		By("holding the LocalQueue")
		t.stopLocalQueue(ctx, kueue.Hold)
		Eventually(func(g Gomega) { // the engine knows it
			g.Expect(env.adminClient.Get(ctx, client.ObjectKeyFromObject(t.localQueue), t.localQueue)).To(Succeed())
			g.Expect(apimeta.IsStatusConditionFalse(t.localQueue.Status.Conditions, kueue.LocalQueueActive)).To(BeTrue())
		}).WithContext(ctx).Should(Succeed())
		held := create(ctx, t.workload("held", "1"))
		expect(ctx, held, "QuotaReserved=False Inadmissible")
		t.stopLocalQueue(ctx, kueue.None)
		expect(ctx, held, "Admitted=True Admitted")
		expectEvent(ctx, held, "Admitted")
		for _, e := range eventsOn(ctx, Default, held) {
			Expect(e.Type).To(Equal(corev1.EventTypeNormal), e.Reason)
		}
	}, SpecTimeout(time.Minute+2*patience))
})
