package gang_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstatus"
)

// submitPrinted creates a JobSet of KEP-1068 as printed, but for the version of the API.
func submitPrinted(ctx context.Context, file string) *jobsetapi.JobSet {
	GinkgoHelper()
	js := &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "sample-jobset"}}
	Expect(env.Kubectl(ctx, "create", "--namespace", namespace, "--filename", "testdata/kep1068/"+file)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) { remove(ctx, js) }, NodeTimeout(patience))
	return js
}

func expectNoQuota(ctx context.Context, js *jobsetapi.JobSet) {
	GinkgoHelper()
	var list kueue.WorkloadList
	Expect(env.Admin.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabels{"tranche.dev/jobset": js.Name})).To(Succeed())
	Expect(list.Items).To(BeEmpty())
}

var _ = Describe("A gang of a JobSet without a queue", func() {
	It("includes all pods, as in KEP-1068", func(ctx SpecContext) {
		js := submitPrinted(ctx, "jobset.yaml")
		expectBound(ctx, js, "sample-jobset-all-r0: 16 of 16")
		expectCondition(ctx, js, jobsetstatus.GangScheduling, metav1.ConditionTrue, "1 gang, ")
		expectNoQuota(ctx, js)
	}, SpecTimeout(patience))

	It("includes the pods of a ReplicatedJob, as in KEP-1068, and starts when the previous ReplicatedJob has completed", func(ctx SpecContext) {
		js := submitPrinted(ctx, "replicatedjob.yaml")
		expectBound(ctx, js, "sample-jobset-replicated-job-1-0-r0: 8 of 8", "sample-jobset-replicated-job-2-1-r0: 3 of 3")
	}, SpecTimeout(patience))

	It("includes the pods of each Job, as in KEP-1068", func(ctx SpecContext) {
		js := submitPrinted(ctx, "replica.yaml")
		expectBound(ctx, js,
			"sample-jobset-replicated-job-1-0x0-r0: 4 of 4", "sample-jobset-replicated-job-1-0x1-r0: 4 of 4",
			"sample-jobset-replicated-job-2-1x0-r0: 3 of 3", "sample-jobset-replicated-job-2-1x1-r0: 3 of 3", "sample-jobset-replicated-job-2-1x2-r0: 3 of 3")
	}, SpecTimeout(patience))

	It("across stages never starts, and reports why", func(ctx SpecContext) {
		js := asGang(newJobSet("unqueued-stages", role{name: "first", replicas: 1, pods: 1}, role{name: "second", replicas: 1, pods: 1}))
		js.Labels, js.Spec.StartupPolicy = nil, &jobsetapi.StartupPolicy{StartupPolicyOrder: jobset.InOrder}
		submit(ctx, js)
		expectCondition(ctx, js, jobsetstatus.StageInProgress, metav1.ConditionFalse, "can never start")
		awaitHandled(ctx)
		Expect(podsOf(ctx, Default, js)).To(BeEmpty())
	}, SpecTimeout(patience))

	It("is placed whole or not at all, and is recreated after a restart", func(ctx SpecContext) {
		large := asGang(newJobSet("unqueued-large", role{name: "workers", replicas: 1, pods: 13}))
		large.Labels = nil
		submit(ctx, large)
		expectTried(ctx, large, "unqueued-large-all-r0")
		expectBound(ctx, large, "unqueued-large-all-r0: 0 of 13")
		js := asGang(newJobSet("unqueued", role{name: "driver", replicas: 1, pods: 1}, role{name: "workers", replicas: 1, pods: 2}))
		js.Labels, js.Spec.FailurePolicy = nil, &jobset.FailurePolicy{MaxRestarts: 1}
		submit(ctx, js)
		expectBound(ctx, js, "unqueued-all-r0: 3 of 3")
		fail(ctx, js, "driver")
		expectBound(ctx, js, "unqueued-all-r1: 3 of 3")
		Eventually(func(g Gomega) {
			g.Expect(podGroups(ctx, g, js)).To(HaveLen(1))
			for _, pod := range podsOf(ctx, g, js) {
				g.Expect(pod.Status.Phase).To(Equal(corev1.PodRunning))
			}
		}).WithContext(ctx).Should(Succeed())
	}, SpecTimeout(patience))
})
