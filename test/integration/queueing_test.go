package integration_test

import (
	"context"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
)

// configure changes the ClusterQueue of a tenant, and waits until the manager uses the change.
func (t *tenant) configure(ctx context.Context, change func(*kueue.ClusterQueueSpec)) {
	GinkgoHelper()
	before := t.clusterQueue.DeepCopy()
	change(&t.clusterQueue.Spec)
	Expect(env.adminClient.Patch(ctx, t.clusterQueue, client.MergeFrom(before))).To(Succeed())
	generation := t.clusterQueue.Generation
	Eventually(ctx, func(g Gomega) {
		g.Expect(env.adminClient.Get(ctx, client.ObjectKeyFromObject(t.clusterQueue), t.clusterQueue)).To(Succeed())
		active := apimeta.FindStatusCondition(t.clusterQueue.Status.Conditions, kueue.ClusterQueueActive)
		g.Expect(active).NotTo(BeNil())
		g.Expect(active.ObservedGeneration).To(BeNumerically(">=", generation))
	}).Should(Succeed())
}

// onlyOnDemand leaves the tenant with one flavor of which it has this.
func (t *tenant) onlyOnDemand(ctx context.Context, cpus string, change func(*kueue.ClusterQueueSpec)) {
	GinkgoHelper()
	t.configure(ctx, func(spec *kueue.ClusterQueueSpec) {
		flavors := &spec.ResourceGroups[0].Flavors
		*flavors = (*flavors)[:1]
		(*flavors)[0].Resources = []kueue.ResourceQuota{{Name: corev1.ResourceCPU, NominalQuota: resource.MustParse(cpus)}}
		change(spec)
	})
}

// urgent makes a quota Workload of a priority.
func (t *tenant) urgent(name, cpus string, priority int32) *kueue.Workload {
	w := t.workload(name, cpus)
	w.Spec.Priority = &priority
	return w
}

func finish(ctx context.Context, w *kueue.Workload) {
	GinkgoHelper()
	write(ctx, fresh(ctx, w), "job-controller", func(status *kueue.WorkloadStatus) {
		status.Conditions = []metav1.Condition{{
			Type: kueue.WorkloadFinished, Status: metav1.ConditionTrue, Reason: kueue.WorkloadFinishedReasonSucceeded, LastTransitionTime: metav1.Now(),
		}}
	})
}

var _ = Describe("Queues and Cohorts", Ordered, func() {
	const admitted = "Admitted=True Admitted"
	var lender, borrower *tenant

	pair := func(ctx context.Context, change func(*kueue.ClusterQueueSpec)) {
		lender, borrower = newQueue(ctx), newQueue(ctx)
		for _, t := range []*tenant{lender, borrower} {
			t.onlyOnDemand(ctx, "4", func(spec *kueue.ClusterQueueSpec) {
				spec.CohortName = kueue.CohortReference("cohort-" + lender.namespace)
				change(spec)
			})
		}
	}

	Context("by priority", Ordered, func() {
		BeforeAll(func(ctx SpecContext) { startManager(ctx, nil) }, NodeTimeout(patience))

		It("lend idle quota, and report how much is borrowed", func(ctx SpecContext) {
			pair(ctx, func(*kueue.ClusterQueueSpec) {})
			big := create(ctx, borrower.workload("big", "7"))
			expect(ctx, big, admitted)
			Eventually(func(g Gomega) {
				var q kueue.ClusterQueue
				g.Expect(env.adminClient.Get(ctx, client.ObjectKeyFromObject(borrower.clusterQueue), &q)).To(Succeed())
				g.Expect(q.Status.FlavorsUsage).NotTo(BeEmpty())
				g.Expect(q.Status.FlavorsUsage[0].Resources[0].Borrowed.Value()).To(BeEquivalentTo(3))
			}).WithContext(ctx).Should(Succeed())
			own := create(ctx, lender.workload("own", "4"))
			expect(ctx, own, "tranche.dev/Waiting=True WaitingForQuota")
			finish(ctx, big)
			expect(ctx, own, admitted)
		}, SpecTimeout(patience))

		It("reclaim lent quota", func(ctx SpecContext) {
			pair(ctx, func(spec *kueue.ClusterQueueSpec) {
				spec.Preemption = &kueue.ClusterQueuePreemption{ReclaimWithinCohort: kueue.PreemptionPolicyAny, WithinClusterQueue: kueue.PreemptionPolicyNever}
			})
			big := create(ctx, borrower.urgent("big", "7", 9))
			expect(ctx, big, admitted)
			own := create(ctx, lender.workload("own", "4"))
			finishEviction(ctx, big)
			expect(ctx, own, admitted)
			now := expect(ctx, big, "Preempted=True InCohortReclamation", "Requeued=True Preempted", "no admission", "tranche.dev/Waiting=True WaitingForQuota")
			Expect(find(now, kueue.WorkloadPreempted).Message).To(ContainSubstring("UID: " + string(own.UID)))
			Expect(now.Status.SchedulingStats.Evictions).To(HaveLen(1))
			finish(ctx, own)
			expect(ctx, big, admitted, "Evicted=False QuotaReserved")
		}, SpecTimeout(patience))

		It("admit higher priorities first, and preempt as few victims as possible", func(ctx SpecContext) {
			t := newQueue(ctx)
			t.onlyOnDemand(ctx, "4", func(spec *kueue.ClusterQueueSpec) {
				spec.Preemption = &kueue.ClusterQueuePreemption{WithinClusterQueue: kueue.PreemptionPolicyLowerPriority, ReclaimWithinCohort: kueue.PreemptionPolicyNever}
			})
			low, lower := create(ctx, t.urgent("low", "2", 2)), create(ctx, t.urgent("lower", "2", 1))
			expect(ctx, low, admitted)
			expect(ctx, lower, admitted)
			high := create(ctx, t.urgent("high", "2", 3))
			finishEviction(ctx, lower)
			expect(ctx, high, admitted)
			expect(ctx, lower, "Preempted=True InClusterQueue", "no admission")
			expect(ctx, low, admitted, "no Evicted")
		}, SpecTimeout(patience))

		It("drain with stopPolicy HoldAndDrain, and resume", func(ctx SpecContext) {
			t := newQueue(ctx)
			w := create(ctx, t.workload("one", "1"))
			expect(ctx, w, admitted)
			t.configure(ctx, func(spec *kueue.ClusterQueueSpec) { spec.StopPolicy = new(kueue.HoldAndDrain) })
			finishEviction(ctx, w)
			expect(ctx, w, "Evicted=True ClusterQueueStopped", "no admission", "Requeued=False ClusterQueueStopped")
			t.configure(ctx, func(spec *kueue.ClusterQueueSpec) { spec.StopPolicy = new(kueue.None) })
			expect(ctx, w, admitted, "Requeued=True ClusterQueueRestarted")
		}, SpecTimeout(patience))

		It("admit nothing before they have their finalizer, and get a removed finalizer back", func(ctx SpecContext) {
			allow := refuseFinalizers(ctx)
			unprotected, other := newQueue(ctx), newQueue(ctx)
			early := create(ctx, unprotected.workload("early", "1"))
			Eventually(func(g Gomega) {
				var q kueue.ClusterQueue
				g.Expect(env.adminClient.Get(ctx, client.ObjectKeyFromObject(other.clusterQueue), &q)).To(Succeed())
				g.Expect(q.Finalizers).To(BeEmpty())
				q.Finalizers = []string{kueue.ResourceInUseFinalizerName}
				g.Expect(env.adminClient.Update(ctx, &q)).To(Succeed())
			}).WithContext(ctx).Should(Succeed())
			expect(ctx, create(ctx, other.workload("late", "1")), admitted)
			refused := expect(ctx, early, "QuotaReserved=False Inadmissible", "tranche.dev/Waiting=True Suspended")
			Expect(find(refused, apis.WaitingCondition).Message).To(ContainSubstring("until it has the finalizer " + kueue.ResourceInUseFinalizerName))
			allow(ctx)
			expect(ctx, early, admitted)

			patch := []byte(`{"metadata":{"finalizers":null}}`)
			Expect(env.adminClient.Patch(ctx, unprotected.clusterQueue.DeepCopy(), client.RawPatch(types.MergePatchType, patch))).To(Succeed())
			Eventually(func(g Gomega) {
				var q kueue.ClusterQueue
				g.Expect(env.adminClient.Get(ctx, client.ObjectKeyFromObject(unprotected.clusterQueue), &q)).To(Succeed())
				g.Expect(q.Finalizers).To(ConsistOf(kueue.ResourceInUseFinalizerName))
			}).WithContext(ctx).Should(Succeed())
		}, SpecTimeout(patience))

		It("admit only as many pods as the quota for pods allows", func(ctx SpecContext) {
			t := newQueue(ctx)
			t.onlyOnDemand(ctx, "4", func(*kueue.ClusterQueueSpec) {})
			w := t.workload("elastic", "1")
			w.Spec.PodSets[0].Count, w.Spec.PodSets[0].MinCount = 6, new(int32(2))
			now := expect(ctx, create(ctx, w), admitted)
			Expect(now.Status.Admission.PodSetAssignments[0].Count).To(HaveValue(BeEquivalentTo(4)))
		}, SpecTimeout(patience))

		It("report Cohorts that are each other's parent", func(ctx SpecContext) {
			t := newQueue(ctx)
			a, b := "cycle-a-"+t.namespace, "cycle-b-"+t.namespace
			for name, parent := range map[string]string{a: b, b: a} {
				cohort := &kueue.Cohort{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: kueue.CohortSpec{ParentName: kueue.CohortReference(parent)}}
				Expect(env.adminClient.Create(ctx, cohort)).To(Succeed())
				DeferCleanup(func(ctx SpecContext) {
					Expect(client.IgnoreNotFound(env.adminClient.Delete(ctx, cohort))).To(Succeed())
				})
			}
			t.configure(ctx, func(spec *kueue.ClusterQueueSpec) { spec.CohortName = kueue.CohortReference(a) })
			w := create(ctx, t.workload("one", "1"))
			now := expect(ctx, w, "tranche.dev/Waiting=True Misconfigured")
			Expect(find(now, apis.WaitingCondition).Message).To(ContainSubstring("form a cycle: " + a + ", " + b))
			Expect(env.adminClient.Delete(ctx, &kueue.Cohort{ObjectMeta: metav1.ObjectMeta{Name: b}})).To(Succeed())
			expect(ctx, w, admitted)
		}, SpecTimeout(patience))
	})

	Context("with fair sharing", Ordered, func() {
		BeforeAll(func(ctx SpecContext) {
			startManager(ctx, map[string]any{
				"fairSharing":          map[string]any{"preemptionStrategies": []string{"LessThanOrEqualToFinalShare", "LessThanInitialShare"}},
				"admissionFairSharing": map[string]any{"usageHalfLifeTime": "1h", "usageSamplingInterval": "1s"},
			})
		}, NodeTimeout(patience))

		It("preempt the queue that borrows more, and report the shares", func(ctx SpecContext) {
			pair(ctx, func(spec *kueue.ClusterQueueSpec) {
				spec.ResourceGroups[0].Flavors[0].Resources[0].NominalQuota = resource.MustParse("0")
				spec.Preemption = &kueue.ClusterQueuePreemption{ReclaimWithinCohort: kueue.PreemptionPolicyAny, WithinClusterQueue: kueue.PreemptionPolicyNever}
			})
			cohort := &kueue.Cohort{ObjectMeta: metav1.ObjectMeta{Name: "cohort-" + lender.namespace}}
			cohort.Spec.ResourceGroups = onDemandQuota("6")
			Expect(env.adminClient.Create(ctx, cohort)).To(Succeed())
			DeferCleanup(func(ctx SpecContext) { Expect(env.adminClient.Delete(ctx, cohort)).To(Succeed()) })
			var borrowing []*kueue.Workload
			for _, name := range []string{"a", "b", "c"} {
				borrowing = append(borrowing, create(ctx, borrower.workload(name, "2")))
				expect(ctx, borrowing[len(borrowing)-1], admitted)
			}
			mine := create(ctx, lender.workload("mine", "2"))
			var victim int
			Eventually(func() int {
				victim = slices.IndexFunc(borrowing, func(w *kueue.Workload) bool { return quotaworkload.IsTrue(fresh(ctx, w), kueue.WorkloadEvicted) })
				return victim
			}).WithContext(ctx).Should(BeNumerically(">=", 0))
			finishEviction(ctx, borrowing[victim])
			expect(ctx, mine, admitted)
			shares := func(g Gomega, t *tenant) int64 {
				var q kueue.ClusterQueue
				g.Expect(env.adminClient.Get(ctx, client.ObjectKeyFromObject(t.clusterQueue), &q)).To(Succeed())
				g.Expect(q.Status.FairSharing).NotTo(BeNil())
				return q.Status.FairSharing.WeightedShare
			}
			Eventually(func(g Gomega) {
				g.Expect(shares(g, borrower)).To(BeEquivalentTo(667))
				g.Expect(shares(g, lender)).To(BeEquivalentTo(334))
				var c kueue.Cohort
				g.Expect(env.adminClient.Get(ctx, client.ObjectKeyFromObject(cohort), &c)).To(Succeed())
				g.Expect(c.Status.FairSharing).NotTo(BeNil())
			}).WithContext(ctx).Should(Succeed())
		}, SpecTimeout(patience))

		It("report the share of a Cohort without ClusterQueues", func(ctx SpecContext) {
			cohort := &kueue.Cohort{ObjectMeta: metav1.ObjectMeta{GenerateName: "alone-"}}
			Expect(env.adminClient.Create(ctx, cohort)).To(Succeed())
			DeferCleanup(func(ctx SpecContext) { Expect(env.adminClient.Delete(ctx, cohort)).To(Succeed()) })
			Eventually(func(g Gomega) {
				g.Expect(env.adminClient.Get(ctx, client.ObjectKeyFromObject(cohort), cohort)).To(Succeed())
				g.Expect(cohort.Status.FairSharing).To(HaveValue(HaveField("WeightedShare", BeEquivalentTo(0))))
			}).WithContext(ctx).Should(Succeed())
		}, SpecTimeout(patience))

		It("order LocalQueues by their usage", func(ctx SpecContext) {
			t := newQueue(ctx)
			t.onlyOnDemand(ctx, "2", func(spec *kueue.ClusterQueueSpec) {
				spec.AdmissionScope = &kueue.AdmissionScope{AdmissionMode: kueue.UsageBasedAdmissionFairSharing}
			})
			other := t.localQueue.DeepCopy()
			other.ObjectMeta = metav1.ObjectMeta{Namespace: t.namespace, Name: "other"}
			Expect(env.adminClient.Create(ctx, other)).To(Succeed())
			first := create(ctx, t.workload("first", "2"))
			expect(ctx, first, admitted)
			second := create(ctx, t.workload("second", "2"))
			third := t.workload("third", "2")
			third.Spec.QueueName = "other"
			create(ctx, third)
			expect(ctx, second, "tranche.dev/Waiting=True WaitingForQuota")
			expect(ctx, third, "tranche.dev/Waiting=True WaitingForQuota")
			Eventually(func(g Gomega) {
				var q kueue.LocalQueue
				g.Expect(env.adminClient.Get(ctx, client.ObjectKeyFromObject(t.localQueue), &q)).To(Succeed())
				g.Expect(q.Status.FairSharing).NotTo(BeNil())
				consumed := q.Status.FairSharing.AdmissionFairSharingStatus.ConsumedResources[corev1.ResourceCPU]
				g.Expect(consumed.Sign()).To(Equal(1))
			}).WithContext(ctx).Should(Succeed())
			finish(ctx, first)
			expect(ctx, third, admitted)
			expect(ctx, second, "no admission")
		}, SpecTimeout(patience))
	})
})
