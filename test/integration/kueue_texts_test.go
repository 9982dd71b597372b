package integration_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// Scripts and dashboards compare these texts.
var _ = Describe("Kueue's texts", Ordered, ContinueOnFailure, func() {
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

	It("give the reason for which queues are not active", func(ctx SpecContext) {
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
})
