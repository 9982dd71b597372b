package integration_test

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// A slowTenant is a tenant whose quota Workloads belong to a Job: they keep the quota after an eviction, until the test releases it.
type slowTenant struct {
	*tenant
	job *batchv1.Job
}

func (t slowTenant) create(ctx context.Context, name, cpus string, priority int32) *kueue.Workload {
	GinkgoHelper()
	w := t.urgent(name, cpus, priority)
	w.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(t.job, batchv1.SchemeGroupVersion.WithKind("Job"))}
	return create(ctx, w)
}

// newSlowTenant makes a tenant with this nominal quota in a Cohort.
func newSlowTenant(ctx context.Context, cohort, cpus string, change func(*kueue.ClusterQueueSpec)) slowTenant {
	GinkgoHelper()
	t := slowTenant{tenant: newQueue(ctx)}
	t.onlyOnDemand(ctx, cpus, func(spec *kueue.ClusterQueueSpec) {
		spec.CohortName = kueue.CohortReference(cohort)
		spec.Preemption = &kueue.ClusterQueuePreemption{}
		change(spec)
	})
	t.job = plainJob(t.namespace, "owner")
	t.job.Spec.Suspend = new(true)
	Expect(env.adminClient.Create(ctx, t.job)).To(Succeed())
	return t
}

func reclaiming(policy kueue.PreemptionPolicy) func(*kueue.ClusterQueueSpec) {
	return func(spec *kueue.ClusterQueueSpec) { spec.Preemption.ReclaimWithinCohort = policy }
}

// workloads returns the quota Workloads of a tenant that hold quota, those that are being evicted, and how many have ever been evicted.
func (t slowTenant) workloads(ctx context.Context, g Gomega) (running, leaving []*kueue.Workload, evicted int) {
	var list kueue.WorkloadList
	g.Expect(env.adminClient.List(ctx, &list, client.InNamespace(t.namespace))).To(Succeed())
	for i := range list.Items {
		w := &list.Items[i]
		isEvicted := apimeta.IsStatusConditionTrue(w.Status.Conditions, kueue.WorkloadEvicted)
		if isEvicted {
			evicted++
		}
		switch {
		case w.Status.Admission == nil:
		case isEvicted:
			leaving = append(leaving, w)
		default:
			running = append(running, w)
		}
	}
	return running, leaving, evicted
}

// giveBack releases the quota of an evicted quota Workload, as the controller of its job does when the pods have terminated.
func giveBack(ctx context.Context, w *kueue.Workload) {
	GinkgoHelper()
	Expect(retry.RetryOnConflict(retry.DefaultRetry, func() error {
		now := fresh(ctx, w)
		now.Status.Admission = nil
		for _, of := range []string{kueue.WorkloadQuotaReserved, kueue.WorkloadAdmitted} {
			apimeta.SetStatusCondition(&now.Status.Conditions, metav1.Condition{
				Type: of, Status: metav1.ConditionFalse, Reason: kueue.WorkloadPending, Message: "by the test", ObservedGeneration: now.Generation, //nolint:staticcheck // what job controllers write
			})
		}
		return env.adminClient.Status().Update(ctx, now)
	})).To(Succeed())
}

// expectWaiting waits until the engine has refused a quota Workload.
func expectWaiting(ctx context.Context, w *kueue.Workload) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		now := fresh(ctx, w)
		g.Expect(apimeta.IsStatusConditionFalse(now.Status.Conditions, kueue.WorkloadQuotaReserved)).To(BeTrue())
		g.Expect(now.Status.Admission).To(BeNil())
	}).WithContext(ctx).Should(Succeed())
}

func newCohort(ctx context.Context, name, parent, weight, cpus string) {
	GinkgoHelper()
	cohort := &kueue.Cohort{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: kueue.CohortSpec{ParentName: kueue.CohortReference(parent)}}
	if weight != "" {
		of := resource.MustParse(weight)
		cohort.Spec.FairSharing = &kueue.FairSharing{Weight: &of}
	}
	if cpus != "" {
		cohort.Spec.ResourceGroups = onDemandQuota(cpus)
	}
	Expect(env.adminClient.Create(ctx, cohort)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) {
		Expect(client.IgnoreNotFound(env.adminClient.Delete(ctx, cohort))).To(Succeed())
	})
}

// onDemandQuota returns the resource groups of a node with this nominal quota.
func onDemandQuota(cpus string) []kueue.ResourceGroup {
	return []kueue.ResourceGroup{{
		CoveredResources: []corev1.ResourceName{corev1.ResourceCPU},
		Flavors: []kueue.FlavorQuotas{{Name: onDemand, Resources: []kueue.ResourceQuota{
			{Name: corev1.ResourceCPU, NominalQuota: resource.MustParse(cpus)},
		}}},
	}}
}

var _ = Describe("Reservations", Ordered, func() {
	const admitted = "Admitted=True Admitted"

	Context("by priority", Ordered, func() {
		BeforeAll(func(ctx SpecContext) { startManager(ctx, nil) }, NodeTimeout(patience))

		It("of two preemptors do not block each other", func(ctx SpecContext) {
			beta := newSlowTenant(ctx, "", "2", func(*kueue.ClusterQueueSpec) {})
			cohort := "two-" + beta.namespace
			beta.configure(ctx, func(spec *kueue.ClusterQueueSpec) { spec.CohortName = kueue.CohortReference(cohort) })
			alpha := newSlowTenant(ctx, cohort, "2", reclaiming(kueue.PreemptionPolicyAny))
			gamma := newSlowTenant(ctx, cohort, "2", reclaiming(kueue.PreemptionPolicyAny))
			for _, name := range []string{"first", "second"} {
				expect(ctx, beta.create(ctx, name, "3", 0), admitted)
			}
			a, c := alpha.create(ctx, "a", "2", 0), gamma.create(ctx, "c", "2", 0)
			var victims []*kueue.Workload
			Eventually(func(g Gomega) {
				_, victims, _ = beta.workloads(ctx, g)
				g.Expect(victims).To(HaveLen(2))
			}).WithContext(ctx).Should(Succeed())

			By("releasing the quota of one victim, which suffices for one of the two")
			giveBack(ctx, victims[0])
			Eventually(func(g Gomega) {
				inAlpha, _, _ := alpha.workloads(ctx, g)
				inGamma, _, _ := gamma.workloads(ctx, g)
				g.Expect(append(inAlpha, inGamma...)).To(HaveLen(1))
			}).WithContext(ctx).Should(Succeed())
			giveBack(ctx, victims[1])
			expect(ctx, a, admitted)
			expect(ctx, c, admitted)
		}, SpecTimeout(patience))

		It("keep nominal quota for the head of a StrictFIFO queue that may not reclaim it", func(ctx SpecContext) {
			borrower := newSlowTenant(ctx, "", "0", func(*kueue.ClusterQueueSpec) {})
			cohort := "strict-" + borrower.namespace
			borrower.configure(ctx, func(spec *kueue.ClusterQueueSpec) { spec.CohortName = kueue.CohortReference(cohort) })
			owner := newSlowTenant(ctx, cohort, "2", func(spec *kueue.ClusterQueueSpec) {
				spec.QueueingStrategy = kueue.StrictFIFO
				spec.Preemption.ReclaimWithinCohort = kueue.PreemptionPolicyLowerPriority
			})
			first := owner.create(ctx, "first", "1", 9)
			expect(ctx, first, admitted)
			second := owner.create(ctx, "second", "2", 9)
			expectWaiting(ctx, second)
			small := borrower.create(ctx, "small", "1", 0)
			expectWaiting(ctx, small)
			finish(ctx, first)
			expect(ctx, second, admitted)
			finish(ctx, second)
			expect(ctx, small, admitted)
		}, SpecTimeout(patience))
	})

	Context("with fair sharing", Ordered, func() {
		BeforeAll(func(ctx SpecContext) {
			startManager(ctx, map[string]any{
				"fairSharing": map[string]any{"preemptionStrategies": []string{"LessThanOrEqualToFinalShare", "LessThanInitialShare"}},
			})
		}, NodeTimeout(patience))

		It("end a burst with fair shares, and with as few evictions as it takes", func(ctx SpecContext) {
			best := newSlowTenant(ctx, "", "0", func(*kueue.ClusterQueueSpec) {})
			id := "-" + best.namespace
			newCohort(ctx, "root"+id, "", "", "12")
			newCohort(ctx, "research"+id, "root"+id, "", "")
			newCohort(ctx, "best-effort"+id, "root"+id, "0.5", "")
			best.configure(ctx, func(spec *kueue.ClusterQueueSpec) { spec.CohortName = kueue.CohortReference("best-effort" + id) })
			team := func(name, weight string) slowTenant {
				newCohort(ctx, name+id, "research"+id, weight, "")
				return newSlowTenant(ctx, name+id, "0", reclaiming(kueue.PreemptionPolicyLowerPriority))
			}
			chemistry, physics, llm := team("chemistry", "1"), team("physics", "1"), team("llm", "2")

			By("using up all quota")
			for n := range 6 {
				for _, t := range []slowTenant{best, physics} {
					expect(ctx, t.create(ctx, fmt.Sprint("low", n), "1", -1), admitted)
				}
			}
			for n := range 6 {
				for _, t := range []slowTenant{chemistry, physics, llm, best} {
					t.create(ctx, fmt.Sprint("high", n), "1", 100)
				}
			}

			By("ending the pods of each victim as it is evicted")
			victimsOf := func(t slowTenant, n int) {
				for range n {
					var victims []*kueue.Workload
					Eventually(func(g Gomega) {
						_, victims, _ = t.workloads(ctx, g)
						g.Expect(victims).NotTo(BeEmpty())
					}).WithContext(ctx).Should(Succeed())
					giveBack(ctx, victims[0])
				}
			}
			victimsOf(best, 2)
			victimsOf(physics, 4)
			teams := map[string]slowTenant{"best-effort": best, "chemistry": chemistry, "physics": physics, "llm": llm}
			counts := func(ctx context.Context) map[string]string {
				all := map[string]string{}
				for name, t := range teams {
					running, leaving, evicted := t.workloads(ctx, Default)
					all[name] = fmt.Sprintf("%d running, %d leaving, %d evicted", len(running), len(leaving), evicted)
				}
				return all
			}
			fair := Equal(map[string]string{
				"best-effort": "4 running, 0 leaving, 2 evicted", "llm": "4 running, 0 leaving, 0 evicted",
				"physics": "2 running, 0 leaving, 4 evicted", "chemistry": "2 running, 0 leaving, 0 evicted",
			})
			Eventually(ctx, counts).Should(fair)
			Consistently(ctx, counts).WithTimeout(time.Second).Should(fair)
		}, SpecTimeout(patience))
	})
})
