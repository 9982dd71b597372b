package gang_test

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/tranche-dev/tranche/test/testenv"
)

var _ = Describe("A manager that is killed after each write while it runs a gang", func() {
	It("reaches the same final state, also after a restart of the JobSet", func(ctx SpecContext) {
		Expect(manager.Stop()).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { startManager(ctx) }, NodeTimeout(patience))
		proxy, err := env.StartProxy()
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { proxy.Stop() })
		managers, err := env.StartShortLived(proxy, testenv.ManagerOptions{Settings: settings()})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() error { _, err := managers.Stop(); return err })
		const name = "killed"
		js := asGang(newJobSet(name, role{name: "driver", replicas: 1, pods: 1}, role{name: "workers", replicas: 1, pods: 2}))
		js.Spec.FailurePolicy = &jobset.FailurePolicy{MaxRestarts: 1}
		Expect(env.Admin.Create(ctx, js)).To(Succeed())
		expectBound(ctx, js, name+"-all-r0: 3 of 3")
		fail(ctx, js, "driver")
		expectBound(ctx, js, name+"-all-r1: 3 of 3")
		Eventually(func(g Gomega) {
			g.Expect(podGroups(ctx, g, js)).To(ConsistOf(HaveField("Name", HavePrefix(name+"-all-r1-"))), "that of the first attempt goes with its pods")
		}).WithContext(ctx).Should(Succeed())
		remove(ctx, js)
		killed, err := managers.Stop()
		Expect(err).NotTo(HaveOccurred())
		AddReportEntry("killed managers", killed)
		Expect(killed).To(BeNumerically(">", 10), strings.Join(proxy.Writes(), "\n"))
	}, SpecTimeout(6*patience))
})
