package podgroup_test

import (
	. "github.com/onsi/ginkgo/v2"
	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/apis"
)

var _ = Describe("Devices of gangs of pods", func() {
	It("are refused where no quota is charged for them", func(ctx SpecContext) {
		t := newTeam(ctx, "2", "0")
		t.podGroup(ctx, coscheduling, "free", map[string]any{"minMember": int64(1)}, nil)
		member := t.member("free-0", 1).label(apis.CoschedulingLabel, "free")
		member.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "eight", ResourceClaimTemplateName: new("eight-devices")}}
		create(ctx, member)
		t.expectTold(ctx, "Pod", "free-0", `Misconfigured: pod "free-0" has the resource claim "eight"`)
		t.expectPods(ctx, "free-", "free-0=gated")
	}, SpecTimeout(specTimeout))
})
