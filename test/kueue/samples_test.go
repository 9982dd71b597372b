package kueue_test

import (
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
)

var _ = Describe("The samples", Ordered, func() {
	BeforeAll(func(ctx SpecContext) {
		startBeside(ctx)
	}, NodeTimeout(patience))

	It("run beside Kueue on the quota of each stage", func(ctx SpecContext) {
		Expect(env.Kubectl(ctx, "apply", "-k", filepath.Join(env.Root, "config/samples/demo/queues"))).To(Succeed())
		newSafetyCheck(ctx, "samples")
		for _, name := range []string{"team-a", "team-b"} {
			cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: name}}
			Eventually(func(g Gomega) {
				read(ctx, cq)(g)
				checked("samples")(cq)
				g.Expect(env.Admin.Update(ctx, cq)).To(Succeed())
			}).WithContext(ctx).Should(Succeed())
			Eventually(func(g Gomega) {
				g.Expect(meta.IsStatusConditionTrue(read(ctx, cq)(g).Status.Conditions, kueue.ClusterQueueActive)).To(BeTrue())
			}).WithContext(ctx).Should(Succeed())
			DeferCleanup(func(ctx SpecContext) { empty(ctx, name) }, NodeTimeout(patience))
		}
		Expect(env.Kubectl(ctx, "create", "-k", filepath.Join(env.Root, "config/samples/demo/jobsets"))).To(Succeed())
		var all jobsetapi.JobSetList
		for _, namespace := range []string{"team-a", "team-b"} {
			var list jobsetapi.JobSetList
			Expect(env.Admin.List(ctx, &list, client.InNamespace(namespace))).To(Succeed())
			all.Items = append(all.Items, list.Items...)
		}
		Expect(all.Items).To(HaveLen(4))
		for i := range all.Items {
			js := &all.Items[i]
			Eventually(func(g Gomega) {
				g.Expect(meta.IsStatusConditionTrue(read(ctx, js)(g).Status.Conditions, string(jobset.JobSetCompleted))).To(BeTrue())
			}).WithContext(ctx).Should(Succeed())
			want := 2
			if js.Name == "train-and-evaluate" || js.Name == "fine-tune-deepspeed" {
				want = 3
			}
			// The stages end once the manager has seen the end of the JobSet.
			Eventually(func(g Gomega) {
				var stages kueue.WorkloadList
				g.Expect(env.Admin.List(ctx, &stages, client.InNamespace(js.Namespace), client.MatchingLabels{apis.JobSetLabel: js.Name})).To(Succeed())
				g.Expect(stages.Items).To(HaveLen(want), js.Name)
				for i := range stages.Items {
					g.Expect(&stages.Items[i]).To(haveCondition(kueue.WorkloadFinished, metav1.ConditionTrue, kueue.WorkloadFinishedReasonSucceeded))
					g.Expect(&stages.Items[i]).NotTo(haveCondition(kueue.WorkloadEvicted, metav1.ConditionTrue, ""))
				}
			}).WithContext(ctx).Should(Succeed())
		}
	}, NodeTimeout(2*patience))
})
