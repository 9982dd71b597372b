package kueue_test

import (
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/test/testenv"
)

var _ = Describe("Managers that are killed after each write beside Kueue", Ordered, func() {
	BeforeAll(startBeside, NodeTimeout(patience))

	It("bring a JobSet to its end with the AdmissionCheck", func(ctx SpecContext) {
		const name = "killed-after-each-write"
		newSafetyCheck(ctx, name)
		tenant(ctx, name, 2, checked(name))
		killBeside()
		proxy, err := env.StartProxy()
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { proxy.Stop() })
		managers, err := env.StartShortLived(proxy, testenv.ManagerOptions{Settings: map[string]any{"mode": "Beside"}})
		Expect(err).NotTo(HaveOccurred())
		js := launcherAndWorkers(name, name)
		Expect(env.Admin.Create(ctx, js)).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(meta.IsStatusConditionTrue(read(ctx, js)(g).Status.Conditions, string(jobset.JobSetCompleted))).To(BeTrue())
			var stages kueue.WorkloadList
			g.Expect(env.Admin.List(ctx, &stages, client.InNamespace(name), client.MatchingLabels{apis.JobSetLabel: name})).To(Succeed())
			g.Expect(stages.Items).To(HaveLen(2))
			for i := range stages.Items {
				g.Expect(&stages.Items[i]).To(haveCondition(kueue.WorkloadFinished, metav1.ConditionTrue, kueue.WorkloadFinishedReasonSucceeded))
				g.Expect(&stages.Items[i]).NotTo(haveCondition(kueue.WorkloadEvicted, metav1.ConditionTrue, ""))
				g.Expect(stages.Items[i].Finalizers).To(BeEmpty())
			}
		}).WithContext(ctx).WithTimeout(2 * patience).Should(Succeed())
		killed, err := managers.Stop()
		Expect(err).NotTo(HaveOccurred())
		AddReportEntry("managers", fmt.Sprintf("%d were killed", killed))
		Expect(killed).To(BeNumerically(">", 8))
	}, NodeTimeout(4*patience))
})
