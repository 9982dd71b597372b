package adoption_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
)

// createElastic creates an elastic Job of two pods as Kueue leaves it: with quota for one pod, and the scheduling gate on the other. It returns the pod
// that runs.
func createElastic(ctx context.Context) []types.UID {
	GinkgoHelper()
	job := asReleasedByKueue(newJob("elastic", 2))
	job.Annotations = map[string]string{apis.ElasticJobAnnotation: "true"}
	job.Spec.Template.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: kueue.ElasticJobSchedulingGate}}
	Expect(env.Admin.Create(ctx, job)).To(Succeed())
	leaveWorkloadNamed(ctx, "job-elastic-slice", job, 1)
	var pods corev1.PodList
	Eventually(func(g Gomega) {
		g.Expect(env.Admin.List(ctx, &pods, client.InNamespace(namespace), client.MatchingLabels{batchv1.JobNameLabel: "elastic"})).To(Succeed())
		g.Expect(pods.Items).To(HaveLen(2))
	}).WithContext(ctx).Should(Succeed())
	Expect(env.Admin.Patch(ctx, &pods.Items[0], client.RawPatch(types.MergePatchType, []byte(`{"spec":{"schedulingGates":null}}`)))).To(Succeed())
	Eventually(func(g Gomega) {
		g.Expect(runningPods(ctx, g, batchv1.JobNameLabel, "elastic")).To(ConsistOf(pods.Items[0].UID))
	}).WithContext(ctx).Should(Succeed())
	return []types.UID{pods.Items[0].UID}
}

// expectElasticAdopted checks that the Job has the size for which it is charged, and asks for the rest.
func expectElasticAdopted(ctx context.Context) {
	GinkgoHelper()
	By("letting an elastic Job wait for the quota that Kueue had not admitted")
	job := jobOf(ctx, Default, "elastic")
	Expect(*job.Spec.Parallelism).To(Equal(int32(1)))
	Expect(job.Annotations).To(HaveKeyWithValue(apis.SizeAnnotation, "2"))
	Eventually(func(g Gomega) {
		var list kueue.WorkloadList
		g.Expect(env.Admin.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabels{apis.JobUIDLabel: string(job.UID)}, client.HasLabels{apis.GrowthLabel})).To(Succeed())
		g.Expect(list.Items).To(HaveLen(1))
		g.Expect(list.Items[0].Spec.PodSets[0].Count).To(Equal(int32(1)))
	}).WithContext(ctx).Should(Succeed())
}

// expectElasticGrows waits until the Job has all of its pods. They are created with the gate of Kueue.
func expectElasticGrows(ctx context.Context) {
	GinkgoHelper()
	By("enlarging the elastic Job when there is quota")
	Eventually(func(g Gomega) {
		g.Expect(runningPods(ctx, g, batchv1.JobNameLabel, "elastic")).To(HaveLen(2))
	}).WithContext(ctx).Should(Succeed())
	Expect(jobOf(ctx, Default, "elastic").Spec.Template.Spec.SchedulingGates).NotTo(BeEmpty())
}
