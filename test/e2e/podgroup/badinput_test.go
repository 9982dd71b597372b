package podgroup_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/apis"
)

var _ = Describe("An invalid gang is reported and blocks no other gang:", func() {
	It("a PodGroup that does not exist", func(ctx SpecContext) {
		t := newTeam(ctx, "2", "0")
		create(ctx, t.member("p-0", 0).label(apis.CoschedulingLabel, "late"))
		t.expectTold(ctx, "Pod", "p-0", `Warning Misconfigured: PodGroup "late" of scheduling.x-k8s.io does not exist`)
		create(ctx, t.member("q-0", 0).koordinator("name", "other", "min-available", "1"))
		t.expectPods(ctx, "", "p-0=gated", "q-0=running")

		By("creating it")
		group := t.podGroup(ctx, coscheduling, "late", map[string]any{"minMember": int64(1)}, nil)
		t.expectPods(ctx, "p-", "p-0=running")
		expectNoted(ctx, group, "has started")
	}, SpecTimeout(specTimeout))

	It("groups that do not parse, or do not include the gang", func(ctx SpecContext) {
		t := newTeam(ctx, "2", "0")
		key := apis.KoordinatorPrefix + "groups"
		group := t.podGroup(ctx, koordinator, "a", map[string]any{"minMember": int64(1)}, map[string]string{key: "a,b"})
		create(ctx, t.member("a-0", 0).label(apis.KoordinatorLabel, "a"))
		expectNoted(ctx, group, `is "a,b": set a JSON list of gangs such as`)
		t.expectTold(ctx, "PodGroup", "a", "set a JSON list")
		t.expectTold(ctx, "Pod", "a-0", "set a JSON list")
		annotate(ctx, group, key, `["x/b"]`)
		expectNoted(ctx, group, "does not list the gang itself")
		t.expectPods(ctx, "a-", "a-0=gated")
		annotate(ctx, group, key, "")
		t.expectPods(ctx, "a-", "a-0=running")
	}, SpecTimeout(specTimeout))

	It("members with different settings", func(ctx SpecContext) {
		t := newTeam(ctx, "9", "0")
		create(ctx,
			t.member("p-0", 0).koordinator("name", "p", "min-available", "2"), t.member("p-1", 0).koordinator("name", "p", "min-available", "1"),
			t.member("q-0", 0).koordinator("name", "q", "min-available", "2"), t.member("q-1", 0).koordinator("name", "q", "min-available", "2").label(apis.QueueLabel, "another"),
			t.member("r-0", 0).koordinator("name", "r", "min-available", "none"),
		)
		t.expectTold(ctx, "Pod", "p-0", "of the gang have different values of annotation gang.scheduling.koordinator.sh/min-available")
		t.expectTold(ctx, "Pod", "q-1", "different values of label kueue.x-k8s.io/queue-name")
		t.expectTold(ctx, "Pod", "r-0", `is "none": set a number of pods`)
		By("removing the invalid one")
		Expect(env.Admin.Delete(ctx, t.member("p-1", 0).Pod)).To(Succeed())
		create(ctx, t.member("p-2", 0).koordinator("name", "p", "min-available", "2"))
		t.expectPods(ctx, "", "p-0=running", "p-2=running", "q-0=gated", "q-1=gated", "r-0=gated")
	}, SpecTimeout(specTimeout))

	It("more pods than any quota allows, and more different pods than a quota Workload can carry", func(ctx SpecContext) {
		t := newTeam(ctx, "4", "0")
		group := t.podGroup(ctx, coscheduling, "huge", map[string]any{"minMember": int64(5)}, nil)
		for _, name := range []string{"p-0", "p-1", "p-2", "p-3", "p-4"} {
			create(ctx, t.member(name, 0).label(apis.CoschedulingLabel, "huge"))
		}
		expectNoted(ctx, group, "can never fit")
		t.expectTold(ctx, "PodGroup", "huge", "can never fit")
		t.expectTold(ctx, "Pod", "p-0", "can never fit")
		for _, name := range []string{"q-1", "q-2", "q-3", "q-4", "q-5", "q-6", "q-7", "q-8", "q-9"} {
			p := t.member(name, 0).koordinator("name", "many", "min-available", "9")
			p.Spec.NodeSelector = map[string]string{"shape": name}
			create(ctx, p)
		}
		t.expectTold(ctx, "Pod", "q-1", "9 different combinations")
		create(ctx, t.member("r-0", 0).koordinator("name", "one", "min-available", "1"))
		t.expectPods(ctx, "r-", "r-0=running")
		t.expectUsage(ctx, "cpu", 1)
	}, SpecTimeout(specTimeout))
})

// annotate sets an annotation of a PodGroup, or removes it.
func annotate(ctx SpecContext, group client.Object, key, value string) {
	GinkgoHelper()
	quoted := "null"
	if value != "" {
		quoted = quote(value)
	}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+key+`":`+quoted+`}}}`))
	Expect(env.Admin.Patch(ctx, group, patch)).To(Succeed())
}
