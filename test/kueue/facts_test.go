package kueue_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/test/controlplane"
	"github.com/tranche-dev/tranche/test/sample"
)

// What Kueue does with objects that others write: other code relies on it, so that a version of Kueue that does otherwise has to be noticed.
var _ = Describe("Facts about Kueue", func() {
	It("admits a Job as Kueue alone does", func(ctx SpecContext) {
		tenant(ctx, "alone", 4)
		job := newJob("alone", 2)
		Expect(env.Admin.Create(ctx, job)).To(Succeed())
		w := workloadOf(ctx, job)
		Eventually(read(ctx, w)).WithContext(ctx).Should(haveCondition(kueue.WorkloadFinished, metav1.ConditionTrue, ""))
		Expect(read(ctx, job)(NewGomega(Fail)).Spec.Template.Spec.NodeSelector).To(HaveKeyWithValue("pool", "gpu"))
	}, NodeTimeout(patience))
})

// newJob returns a Job that asks for 1 GPU per pod in the queue of a tenant, and runs for a second.
func newJob(namespace string, pods int32) *batchv1.Job {
	template := sample.ReplicatedJob("main", pods, sample.Amounts(string(gpu), "1"), map[string]string{controlplane.FakeRunTime: "1"}).Template
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "job", Labels: map[string]string{apis.QueueLabel: "queue"}}, Spec: template.Spec,
	}
}

// workloadOf waits for the quota Workload of a Job.
func workloadOf(ctx context.Context, job *batchv1.Job) *kueue.Workload {
	GinkgoHelper()
	var found *kueue.Workload
	Eventually(func(g Gomega) {
		var list kueue.WorkloadList
		g.Expect(env.Admin.List(ctx, &list, client.InNamespace(job.Namespace))).To(Succeed())
		for i := range list.Items {
			if metav1.IsControlledBy(&list.Items[i], job) {
				found = &list.Items[i]
			}
		}
		g.Expect(found).NotTo(BeNil())
	}).WithContext(ctx).Should(Succeed())
	return found
}
