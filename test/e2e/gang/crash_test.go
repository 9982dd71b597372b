package gang_test

import (
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/tranche-dev/tranche/test/testenv"
)

var _ = Describe("A manager that is killed while it runs a gang", func() {
	It("reaches the same final state after a crash at any write, also after a restart of the JobSet", func(ctx SpecContext) {
		Expect(manager.Stop()).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { startManager(ctx) }, NodeTimeout(patience))
		proxy, err := env.StartProxy()
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { proxy.Stop() })
		for n, struck := 1, true; struck; n++ {
			By(fmt.Sprintf("killing it after write %d", n))
			managers, err := env.StartRelay(proxy, n, testenv.ManagerOptions{Settings: settings()})
			Expect(err).NotTo(HaveOccurred())
			name := fmt.Sprintf("killed-%d", n)
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
			struck, err = managers.Stop()
			Expect(err).NotTo(HaveOccurred())
			if n > 80 {
				Fail("the manager writes without end: " + fmt.Sprint(proxy.Writes()))
			}
		}
	}, SpecTimeout(6*patience))
})
