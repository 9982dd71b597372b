package adoption_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
)

// submitUrgent submits a Job that needs all quota of the flavor on which an adopted Job of one pod runs.
func submitUrgent(ctx context.Context, name string) {
	GinkgoHelper()
	job := newJob(name, 4)
	job.Labels[apis.PriorityClassLabel] = "urgent"
	job.Spec.Template.Spec.NodeSelector = map[string]string{"pool": "spot"}
	Expect(env.Admin.Create(ctx, job)).To(Succeed())
}

// expectExemptionEnds shows that no preemption evicts an adopted Job of one pod, and that one does when the Job was evicted and admitted again.
func expectExemptionEnds(ctx context.Context, adopted string) {
	GinkgoHelper()
	Expect(env.Admin.Create(ctx, &kueue.WorkloadPriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "urgent"}, Value: 100})).To(Succeed())
	setActive := func(active bool) {
		Eventually(func(g Gomega) {
			w := workloadOf(ctx, g, jobOf(ctx, g, adopted).UID)
			w.Spec.Active = &active
			g.Expect(env.Admin.Update(ctx, w)).To(Succeed())
		}).WithContext(ctx).Should(Succeed())
	}
	expectRunning := func(name string, pods int) {
		Eventually(func(g Gomega) {
			g.Expect(runningPods(ctx, g, batchv1.JobNameLabel, name)).To(HaveLen(pods))
		}).WithContext(ctx).Should(Succeed(), name)
	}
	By("letting a Job of higher priority wait for the adopted one")
	submitUrgent(ctx, "urgent-1")
	Eventually(func(g Gomega) {
		w := workloadOf(ctx, g, jobOf(ctx, g, "urgent-1").UID)
		g.Expect(apimeta.IsStatusConditionFalse(w.Status.Conditions, kueue.WorkloadQuotaReserved)).To(BeTrue())
	}).WithContext(ctx).Should(Succeed())
	w := workloadOf(ctx, Default, jobOf(ctx, Default, adopted).UID)
	Expect(w.Annotations).To(HaveKey(apis.AdoptedAnnotation))
	Expect(apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadEvicted)).To(BeNil())

	By("deactivating the adopted one")
	setActive(false)
	expectRunning("urgent-1", 4)
	expectRunning(adopted, 0)
	Expect(workloadOf(ctx, Default, jobOf(ctx, Default, adopted).UID).Annotations).NotTo(HaveKey(apis.AdoptedAnnotation))
	expectJobsEnd(ctx, "urgent-1")

	By("preempting it after it was admitted again")
	setActive(true)
	expectRunning(adopted, 1)
	submitUrgent(ctx, "urgent-2")
	expectRunning("urgent-2", 4)
	expectRunning(adopted, 0)
	preempted := apimeta.FindStatusCondition(workloadOf(ctx, Default, jobOf(ctx, Default, adopted).UID).Status.Conditions, kueue.WorkloadPreempted)
	Expect(preempted).NotTo(BeNil())
	expectJobsEnd(ctx, "urgent-2")
}
