package podgroup_test

import (
	"os"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/tranche-dev/tranche/apis"
)

var _ = Describe("A PodGroup whose API is installed while the manager runs", func() {
	It("restarts the manager, which then admits its pods", func(ctx SpecContext) {
		t := newTeam(ctx, "1", "0")
		create(ctx, t.member("p-0", 0).annotate(apis.GroupNameAnnotation, "late"))
		t.expectTold(ctx, "Pod", "p-0", `PodGroup "late" of scheduling.volcano.sh, scheduling.incubator.k8s.io or incubator.scheduling.k8s.io does not exist in namespace`)
		Expect(env.InstallPodGroups("scheduling.volcano.sh")).To(Succeed())
		Eventually(manager.Done()).WithContext(ctx).Should(BeClosed())
		log, err := os.ReadFile(manager.Log)
		Expect(err).NotTo(HaveOccurred())
		Expect(string(log)).To(ContainSubstring("scheduling.volcano.sh/v1beta1 now has"))

		By("starting it, as Kubernetes does")
		manager, err = startManager(ctx)
		Expect(err).NotTo(HaveOccurred())
		group := t.podGroup(ctx, "scheduling.volcano.sh/v1beta1", "late", map[string]any{"minMember": int64(1)}, nil)
		t.expectPods(ctx, "", "p-0=running")
		Expect(env.Admin.Delete(ctx, group)).To(Succeed())
	}, SpecTimeout(specTimeout))
})
