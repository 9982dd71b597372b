package groupstart_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
)

var _ = Describe("A group of a JobSet without a queue", func() {
	It("starts only when all of its pods have started, also after a restart", func(ctx SpecContext) {
		js := inGroup(newJobSet("unqueued", role{name: "workers", replicas: 2, pods: 2}, role{name: "driver", replicas: 1, pods: 1, late: true}))
		js.Labels, js.Spec.FailurePolicy = nil, &jobset.FailurePolicy{MaxRestarts: 1}
		submit(ctx, js)
		expectWaiting(ctx, js, 4)
		expectCondition(ctx, js, metav1.ConditionFalse, "WaitingForPods", "main containers wait until all 5 pods of the group have started")
		expectCounted(ctx, js, "workers", "4 of 5 pods")
		Expect(configMapOf(ctx, Default, js).Data).NotTo(HaveKey("released"))
		startLate(ctx, js, "driver", 1)
		expectReleased(ctx, js, "workers", "driver")
		endPod(ctx, podOf(ctx, js, "driver"), 3)
		expectCondition(ctx, js, metav1.ConditionFalse, "WaitingForPods", "")
		expectWaiting(ctx, js, 4)
		expectCounted(ctx, js, "workers", "4 of 5 pods")
		startLate(ctx, js, "driver", 1)
		expectReleased(ctx, js, "workers", "driver")
	}, SpecTimeout(patience))

	DescribeTable("matches the example of KEP-498", func(ctx SpecContext, story string, members int) {
		js := &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "my-jobset"}}
		Expect(env.Kubectl(ctx, "create", "--filename", "testdata/kep-498-"+story+".yaml")).To(Succeed())
		DeferCleanup(func(ctx SpecContext) {
			Expect(env.Admin.Delete(ctx, js, client.PropagationPolicy(metav1.DeletePropagationForeground))).To(Succeed())
			Eventually(func(g Gomega) {
				g.Expect(apierrors.IsNotFound(env.Admin.Get(ctx, client.ObjectKeyFromObject(js), &jobsetapi.JobSet{}))).To(BeTrue())
			}).WithContext(ctx).Should(Succeed())
		}, NodeTimeout(muchPatience))
		Eventually(func(g Gomega) {
			var jobs batchv1.JobList
			g.Expect(env.Admin.List(ctx, &jobs, client.InNamespace(js.Namespace), client.MatchingLabels{jobset.JobSetNameKey: js.Name})).To(Succeed())
			waiting := 0
			for _, job := range jobs.Items {
				g.Expect(job.Labels).To(HaveKeyWithValue(apis.HoldLabel, apis.HoldUnqueued))
				g.Expect(job.Spec.Suspend).To(HaveValue(BeFalse()), "released without quota")
				pod := job.Spec.Template.Spec
				if job.Labels[jobset.ReplicatedJobNameKey] == "workers" {
					waiting++
					g.Expect(pod.InitContainers).To(HaveExactElements(HaveField("Name", container)))
					g.Expect(pod.InitContainers[0].Args).To(ContainElement("--timeout=300s"))
					g.Expect(pod.Volumes[0].ConfigMap.Name).To(Equal("my-jobset" + configMapSuffix))
				} else {
					g.Expect(pod.InitContainers).To(BeEmpty())
				}
			}
			g.Expect(waiting).To(Equal(3))
			g.Expect(jobs.Items).To(HaveLen(members))
			var configMap corev1.ConfigMap
			g.Expect(env.Admin.Get(ctx, client.ObjectKey{Namespace: js.Namespace, Name: js.Name + configMapSuffix}, &configMap)).To(Succeed())
			g.Expect(configMap.Data).To(HaveKeyWithValue("pods", "300"))
		}).WithContext(ctx).Should(Succeed())
	},
		Entry("story 1", SpecTimeout(muchPatience), "story-1", 3),
		Entry("story 2", SpecTimeout(muchPatience), "story-2", 4),
	)
})
