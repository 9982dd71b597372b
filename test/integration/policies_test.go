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

const isAdmitted = "Admitted=True Admitted"

// waits expects that the manager has decided that a quota Workload waits for quota.
func waits(ctx context.Context, w *kueue.Workload) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		now := fresh(ctx, w)
		g.Expect(apimeta.IsStatusConditionFalse(now.Status.Conditions, kueue.WorkloadQuotaReserved)).To(BeTrue(), "%v", state(now))
		g.Expect(now.Status.Admission).To(BeNil())
	}).WithContext(ctx).Should(Succeed())
}

// flavorOf expects that a quota Workload is admitted, and returns its flavor.
func flavorOf(ctx context.Context, w *kueue.Workload) kueue.ResourceFlavorReference {
	GinkgoHelper()
	return expect(ctx, w, isAdmitted).Status.Admission.PodSetAssignments[0].Flavors[corev1.ResourceCPU]
}

// newFlavor makes a ResourceFlavor of this test.
func newFlavor(ctx context.Context, spec kueue.ResourceFlavorSpec) kueue.ResourceFlavorReference {
	GinkgoHelper()
	flavor := &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{GenerateName: "policies-"}, Spec: spec}
	Expect(env.adminClient.Create(ctx, flavor)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) { Expect(env.adminClient.Delete(ctx, flavor)).To(Succeed()) })
	return kueue.ResourceFlavorReference(flavor.Name)
}

func (t *tenant) join(cohort string) func(*kueue.ClusterQueueSpec) {
	return func(spec *kueue.ClusterQueueSpec) { spec.CohortName = kueue.CohortReference(cohort) }
}

// These policies are those of Kueue. The simulator has scenarios for their details.
var _ = Describe("Policies of ClusterQueues", Ordered, func() {
	BeforeAll(func(ctx SpecContext) { startManager(ctx, nil) }, NodeTimeout(patience))

	DescribeTable("decide whether a later Workload overtakes one that does not fit", func(ctx SpecContext, strategy kueue.QueueingStrategy, passes bool) {
		t := newQueue(ctx)
		t.onlyOnDemand(ctx, "4", func(spec *kueue.ClusterQueueSpec) { spec.QueueingStrategy = strategy })
		first := create(ctx, t.workload("first", "2"))
		expect(ctx, first, isAdmitted)
		head := create(ctx, t.workload("head", "3"))
		waits(ctx, head)
		later := create(ctx, t.workload("later", "1"))
		if passes {
			expect(ctx, later, isAdmitted)
			return
		}
		waits(ctx, later)
		finish(ctx, first)
		expect(ctx, head, isAdmitted)
		expect(ctx, later, isAdmitted)
	},
		Entry("BestEffortFIFO", kueue.BestEffortFIFO, true, SpecTimeout(patience)),
		Entry("StrictFIFO", kueue.StrictFIFO, false, SpecTimeout(patience)),
	)

	DescribeTable("decide whether to borrow in a flavor or to use the next flavor", func(ctx SpecContext, when kueue.FlavorFungibilityPolicy, want kueue.ResourceFlavorReference) {
		t, lender := newQueue(ctx), newQueue(ctx)
		for _, member := range []*tenant{t, lender} {
			member.configure(ctx, func(spec *kueue.ClusterQueueSpec) {
				spec.CohortName = kueue.CohortReference("cohort-" + t.namespace)
				spec.FlavorFungibility = &kueue.FlavorFungibility{WhenCanBorrow: when}
			})
		}
		Expect(flavorOf(ctx, create(ctx, t.workload("nominal", "6")))).To(BeEquivalentTo(onDemand))
		Expect(flavorOf(ctx, create(ctx, t.workload("more", "4")))).To(Equal(want))
	},
		Entry("MayStopSearch", kueue.MayStopSearch, kueue.ResourceFlavorReference(onDemand), SpecTimeout(patience)),
		Entry("TryNextFlavor", kueue.TryNextFlavor, kueue.ResourceFlavorReference(spot), SpecTimeout(patience)),
	)

	DescribeTable("decide whether to preempt in a flavor or to use the next flavor", func(ctx SpecContext, when kueue.FlavorFungibilityPolicy, want kueue.ResourceFlavorReference) {
		t := newQueue(ctx)
		t.configure(ctx, func(spec *kueue.ClusterQueueSpec) {
			spec.Preemption = &kueue.ClusterQueuePreemption{WithinClusterQueue: kueue.PreemptionPolicyLowerPriority, ReclaimWithinCohort: kueue.PreemptionPolicyNever}
			spec.FlavorFungibility = &kueue.FlavorFungibility{WhenCanPreempt: when}
		})
		low := create(ctx, t.urgent("low", "6", 1))
		Expect(flavorOf(ctx, low)).To(BeEquivalentTo(onDemand))
		high := create(ctx, t.urgent("high", "6", 2))
		if want == onDemand {
			finishEviction(ctx, low)
		}
		Expect(flavorOf(ctx, high)).To(Equal(want))
		if want == onDemand {
			// It continues with the next flavor.
			expect(ctx, low, isAdmitted, "Requeued=True Preempted")
		} else {
			expect(ctx, low, isAdmitted, "no Evicted")
		}
	},
		Entry("MayStopSearch", kueue.MayStopSearch, kueue.ResourceFlavorReference(onDemand), SpecTimeout(patience)),
		Entry("TryNextFlavor", kueue.TryNextFlavor, kueue.ResourceFlavorReference(spot), SpecTimeout(patience)),
	)

	It("reserve flavors for pods that tolerate their taints and select their nodes", func(ctx SpecContext) {
		tainted := newFlavor(ctx, kueue.ResourceFlavorSpec{
			NodeLabels: map[string]string{"kind": "tainted"},
			NodeTaints: []corev1.Taint{{Key: "special", Value: "yes", Effect: corev1.TaintEffectNoSchedule}},
		})
		labelled := newFlavor(ctx, kueue.ResourceFlavorSpec{NodeLabels: map[string]string{"kind": "labelled"}})
		plain := newFlavor(ctx, kueue.ResourceFlavorSpec{NodeLabels: map[string]string{"kind": "plain"}})
		t := newQueue(ctx)
		t.configure(ctx, func(spec *kueue.ClusterQueueSpec) {
			group := &spec.ResourceGroups[0]
			group.Flavors = nil
			for _, name := range []kueue.ResourceFlavorReference{tainted, labelled, plain} {
				group.Flavors = append(group.Flavors, kueue.FlavorQuotas{
					Name: name, Resources: []kueue.ResourceQuota{{Name: corev1.ResourceCPU, NominalQuota: resource.MustParse("4")}},
				})
			}
		})
		Expect(flavorOf(ctx, create(ctx, t.workload("any", "1")))).To(Equal(labelled))

		tolerant := t.workload("tolerant", "1")
		tolerant.Spec.PodSets[0].Template.Spec.Tolerations = []corev1.Toleration{{Key: "special", Operator: corev1.TolerationOpExists}}
		Expect(flavorOf(ctx, create(ctx, tolerant))).To(Equal(tainted))

		selective := t.workload("selective", "1")
		selective.Spec.PodSets[0].Template.Spec.NodeSelector = map[string]string{"kind": "plain"}
		Expect(flavorOf(ctx, create(ctx, selective))).To(Equal(plain))

		affine := t.workload("affine", "1")
		affine.Spec.PodSets[0].Template.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "kind", Operator: corev1.NodeSelectorOpIn, Values: []string{"plain"}}},
			}}},
		}}
		Expect(flavorOf(ctx, create(ctx, affine))).To(Equal(plain))

		nowhere := t.workload("nowhere", "1")
		nowhere.Spec.PodSets[0].Template.Spec.NodeSelector = map[string]string{"kind": "tainted"}
		waits(ctx, create(ctx, nowhere))
	}, SpecTimeout(patience))

	It("preempt in order to borrow only up to the threshold of borrowWithinCohort", func(ctx SpecContext) {
		t, other := newQueue(ctx), newQueue(ctx)
		cohort := "cohort-" + t.namespace
		other.onlyOnDemand(ctx, "4", other.join(cohort))
		t.onlyOnDemand(ctx, "4", func(spec *kueue.ClusterQueueSpec) {
			spec.CohortName = kueue.CohortReference(cohort)
			spec.Preemption = &kueue.ClusterQueuePreemption{
				ReclaimWithinCohort: kueue.PreemptionPolicyLowerPriority, WithinClusterQueue: kueue.PreemptionPolicyLowerPriority,
				BorrowWithinCohort: &kueue.BorrowWithinCohort{Policy: kueue.BorrowWithinCohortPolicyLowerPriority, MaxPriorityThreshold: new(int32(0))},
			}
		})
		third := newQueue(ctx)
		third.onlyOnDemand(ctx, "0", third.join(cohort))
		above, below := create(ctx, third.urgent("above", "2", 1)), create(ctx, third.urgent("below", "4", -1))
		expect(ctx, above, isAdmitted)
		expect(ctx, below, isAdmitted)
		// It borrows 1 of the 2 that remain in addition to its own 4, and preempts the Workload below the threshold.
		borrows := create(ctx, t.urgent("borrows", "5", 2))
		finishEviction(ctx, below)
		expect(ctx, borrows, isAdmitted)
		expect(ctx, below, "Preempted=True InCohortReclaimWhileBorrowing", "no admission")
		expect(ctx, above, isAdmitted, "no Evicted")
	}, SpecTimeout(patience))

	DescribeTable("admit nothing while they are stopped with Hold, and keep running Workloads", func(ctx SpecContext, hold func(context.Context, *tenant, kueue.StopPolicy)) {
		t := newQueue(ctx)
		running := create(ctx, t.workload("running", "1"))
		expect(ctx, running, isAdmitted)
		hold(ctx, t, kueue.Hold)
		waiting := create(ctx, t.workload("waiting", "1"))
		waits(ctx, waiting)
		expect(ctx, running, isAdmitted, "no Evicted")
		hold(ctx, t, kueue.None)
		expect(ctx, waiting, isAdmitted)
	},
		Entry("by the ClusterQueue", func(ctx context.Context, t *tenant, policy kueue.StopPolicy) {
			t.configure(ctx, func(spec *kueue.ClusterQueueSpec) { spec.StopPolicy = &policy })
		}, SpecTimeout(patience)),
		Entry("by the LocalQueue", func(ctx context.Context, t *tenant, policy kueue.StopPolicy) {
			before := t.localQueue.DeepCopy()
			t.localQueue.Spec.StopPolicy = &policy
			Expect(env.adminClient.Patch(ctx, t.localQueue, client.MergeFrom(before))).To(Succeed())
			Eventually(func(g Gomega) {
				g.Expect(env.adminClient.Get(ctx, client.ObjectKeyFromObject(t.localQueue), t.localQueue)).To(Succeed())
				g.Expect(apimeta.IsStatusConditionTrue(t.localQueue.Status.Conditions, kueue.LocalQueueActive)).To(Equal(policy == kueue.None))
			}).WithContext(ctx).Should(Succeed())
		}, SpecTimeout(patience)),
	)
})

// With blockAdmission the next Workload is admitted once the pods of all that are admitted are ready.
var _ = Describe("blockAdmission", Ordered, func() {
	BeforeAll(func(ctx SpecContext) {
		startManager(ctx, map[string]any{"waitForPodsReady": map[string]any{"enable": true, "timeout": "10m", "blockAdmission": true}})
		deleteAdmitted(ctx)
	}, NodeTimeout(patience))

	It("admits one Workload at a time", func(ctx SpecContext) {
		t := newQueue(ctx)
		first := create(ctx, t.workload("first", "1"))
		expect(ctx, first, isAdmitted)
		expectEvent(ctx, first, "QuotaReserved")
		expectEvent(ctx, first, "Admitted")
		second := create(ctx, t.workload("second", "1"))
		waits(ctx, second)
		write(ctx, fresh(ctx, first), "job-controller", func(status *kueue.WorkloadStatus) {
			status.Conditions = []metav1.Condition{{
				Type: kueue.WorkloadPodsReady, Status: metav1.ConditionTrue, Reason: kueue.WorkloadStarted, LastTransitionTime: metav1.Now(),
			}}
		})
		expect(ctx, second, isAdmitted)
	}, SpecTimeout(patience))
})

// deleteAdmitted deletes every quota Workload that other specs have left admitted: under blockAdmission, each of the cluster counts.
func deleteAdmitted(ctx context.Context) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		var all kueue.WorkloadList
		g.Expect(env.adminClient.List(ctx, &all)).To(Succeed())
		var left []string
		for i := range all.Items {
			w := &all.Items[i]
			if w.Status.Admission != nil {
				left = append(left, client.ObjectKeyFromObject(w).String())
				g.Expect(client.IgnoreNotFound(env.adminClient.Delete(ctx, w))).To(Succeed())
			}
		}
		g.Expect(left).To(BeEmpty())
	}).WithContext(ctx).Should(Succeed())
}
