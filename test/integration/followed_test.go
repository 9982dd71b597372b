package integration_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// The fields of each kind are tried in package admission. Here it matters that a change of each kind reaches the engine.
var _ = Describe("A change that lets a pending quota Workload fit", Ordered, ContinueOnFailure, func() {
	const admitted = "Admitted=True Admitted"

	BeforeAll(func(ctx SpecContext) { startManager(ctx, nil) }, NodeTimeout(patience))

	// waits creates a quota Workload and waits until it reports why it is not admitted.
	waits := func(ctx context.Context, w *kueue.Workload) *kueue.Workload {
		GinkgoHelper()
		create(ctx, w)
		Eventually(func(g Gomega) {
			g.Expect(apimeta.IsStatusConditionFalse(fresh(ctx, w).Status.Conditions, kueue.WorkloadQuotaReserved)).To(BeTrue())
		}).WithContext(ctx).Should(Succeed())
		return w
	}
	makeObject := func(ctx context.Context, object client.Object) {
		GinkgoHelper()
		Expect(env.adminClient.Create(ctx, object)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) {
			Expect(client.IgnoreNotFound(env.adminClient.Delete(ctx, object))).To(Succeed())
		})
	}
	update := func(ctx context.Context, object client.Object, change func()) {
		GinkgoHelper()
		before, isObject := object.DeepCopyObject().(client.Object)
		Expect(isObject).To(BeTrue())
		change()
		Expect(env.adminClient.Patch(ctx, object, client.MergeFrom(before))).To(Succeed())
	}

	DescribeTable("is followed by its admission:", func(ctx SpecContext, prepare func(context.Context, *tenant) func()) {
		t := newQueue(ctx)
		change := prepare(ctx, t)
		w := waits(ctx, t.workload("pending", "4"))
		change()
		expect(ctx, w, admitted)
	},
		Entry("of a ResourceFlavor", func(ctx context.Context, t *tenant) func() {
			flavor := &kueue.ResourceFlavor{
				ObjectMeta: metav1.ObjectMeta{Name: t.namespace},
				Spec:       kueue.ResourceFlavorSpec{NodeTaints: []corev1.Taint{{Key: "maintenance", Effect: corev1.TaintEffectNoSchedule}}},
			}
			makeObject(ctx, flavor)
			t.configure(ctx, func(spec *kueue.ClusterQueueSpec) {
				spec.ResourceGroups[0].Flavors = spec.ResourceGroups[0].Flavors[:1]
				spec.ResourceGroups[0].Flavors[0].Name = kueue.ResourceFlavorReference(flavor.Name)
			})
			return func() { update(ctx, flavor, func() { flavor.Spec.NodeTaints = nil }) }
		}, SpecTimeout(patience)),
		Entry("of the labels of a Namespace", func(ctx context.Context, t *tenant) func() {
			t.configure(ctx, func(spec *kueue.ClusterQueueSpec) {
				spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"selected": "true"}}
			})
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: t.namespace}}
			return func() { update(ctx, namespace, func() { namespace.Labels = map[string]string{"selected": "true"} }) }
		}, SpecTimeout(patience)),
		Entry("of a LocalQueue", func(ctx context.Context, t *tenant) func() {
			t.stopLocalQueue(ctx, kueue.Hold)
			return func() { t.stopLocalQueue(ctx, kueue.None) }
		}, SpecTimeout(patience)),
		Entry("of a Cohort", func(ctx context.Context, t *tenant) func() {
			quota := func(cpus string) []kueue.ResourceGroup {
				return []kueue.ResourceGroup{{
					CoveredResources: []corev1.ResourceName{corev1.ResourceCPU},
					Flavors: []kueue.FlavorQuotas{{Name: onDemand, Resources: []kueue.ResourceQuota{
						{Name: corev1.ResourceCPU, NominalQuota: resource.MustParse(cpus)},
					}}},
				}}
			}
			cohort := &kueue.Cohort{ObjectMeta: metav1.ObjectMeta{Name: t.namespace}, Spec: kueue.CohortSpec{ResourceGroups: quota("0")}}
			makeObject(ctx, cohort)
			t.onlyOnDemand(ctx, "2", func(spec *kueue.ClusterQueueSpec) { spec.CohortName = kueue.CohortReference(cohort.Name) })
			return func() { update(ctx, cohort, func() { cohort.Spec.ResourceGroups = quota("2") }) }
		}, SpecTimeout(patience)),
		Entry("of an AdmissionCheck", func(ctx context.Context, t *tenant) func() {
			check := &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: t.namespace}, Spec: kueue.AdmissionCheckSpec{ControllerName: "example.com/followed"}}
			makeObject(ctx, check)
			t.configure(ctx, func(spec *kueue.ClusterQueueSpec) {
				spec.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{AdmissionChecks: []kueue.AdmissionCheckStrategyRule{{
					Name: kueue.AdmissionCheckReference(check.Name), OnFlavors: []kueue.ResourceFlavorReference{spot},
				}}}
			})
			return func() {
				Eventually(func(g Gomega) {
					g.Expect(env.adminClient.Get(ctx, client.ObjectKeyFromObject(check), check)).To(Succeed())
					apimeta.SetStatusCondition(&check.Status.Conditions, metav1.Condition{Type: kueue.AdmissionCheckActive, Status: metav1.ConditionTrue, Reason: "Active"})
					g.Expect(env.adminClient.Status().Update(ctx, check)).To(Succeed())
				}).WithContext(ctx).Should(Succeed())
			}
		}, SpecTimeout(patience)),
		Entry("of the queueingStrategy of a ClusterQueue", func(ctx context.Context, t *tenant) func() {
			t.onlyOnDemand(ctx, "5", func(spec *kueue.ClusterQueueSpec) { spec.QueueingStrategy = kueue.StrictFIFO })
			expect(ctx, create(ctx, t.urgent("runs", "1", 2)), admitted)
			waits(ctx, t.urgent("head", "5", 1))
			return func() {
				t.configure(ctx, func(spec *kueue.ClusterQueueSpec) { spec.QueueingStrategy = kueue.BestEffortFIFO })
			}
		}, SpecTimeout(patience)),
	)

	It("is followed by its admission: of a WorkloadPriorityClass", func(ctx SpecContext) {
		t := newQueue(ctx)
		class := &kueue.WorkloadPriorityClass{ObjectMeta: metav1.ObjectMeta{Name: t.namespace}, Value: 1}
		makeObject(ctx, class)
		t.onlyOnDemand(ctx, "5", func(spec *kueue.ClusterQueueSpec) { spec.QueueingStrategy = kueue.StrictFIFO })
		expect(ctx, create(ctx, t.urgent("runs", "1", 9)), admitted)
		waits(ctx, t.urgent("head", "5", 5))
		w := t.urgent("pending", "4", class.Value)
		w.Spec.PriorityClassRef = kueue.NewWorkloadPriorityClassRef(class.Name)
		waits(ctx, w)
		update(ctx, class, func() { class.Value = 7 })
		expect(ctx, w, admitted)
		Expect(fresh(ctx, w).Spec.Priority).To(HaveValue(BeEquivalentTo(7)))
	}, SpecTimeout(patience))
})
