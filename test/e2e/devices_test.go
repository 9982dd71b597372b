package e2e_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"

	"github.com/tranche-dev/tranche/controllers/conditions"
)

var _ = Describe("Devices", func() {
	It("are refused where no quota is charged for them", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "15")
		js := t.newJobSet("free", replicatedJob{name: "init", cpus: "1"}, replicatedJob{name: "main", cpus: "1"})
		pod := &js.Spec.ReplicatedJobs[1].Template.Spec.Template.Spec
		pod.ResourceClaims = []corev1.PodResourceClaim{{Name: "eight", ResourceClaimTemplateName: new("eight-devices")}}
		submit(ctx, inOrder(js))
		Eventually(func(g Gomega) {
			c := apimeta.FindStatusCondition(t.jobSet(ctx, g, "free").Status.Conditions, conditions.StageAdmitted)
			g.Expect(c).NotTo(BeNil())
			g.Expect(c.Reason).To(Equal("Misconfigured"))
			g.Expect(c.Message).To(ContainSubstring(`resource claim "eight"`))
			g.Expect(t.pods(ctx, g, "init")).To(BeEmpty(), "nothing starts that could not be continued")
		}).WithContext(ctx).Should(Succeed())
	}, SpecTimeout(specTimeout))
})
