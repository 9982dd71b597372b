package integration_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
)

var _ = Describe("The guards of JobSets with rules", func() {
	It("record the rules of a JobSet, and accept no other record", func(ctx SpecContext) {
		namespace := newTenant(ctx)
		awaitGuards(ctx, namespace)
		tenant := env.clientAs(alice)
		js := newQueued(namespace, "", "prepare", "fetch", "cache", "train")
		js.GenerateName = "rules-"
		js.Spec.StartupPolicy = &jobsetapi.StartupPolicy{StartupPolicyOrder: jobset.InOrder, Rules: []jobsetapi.StartupPolicyRule{
			{TargetReplicatedJobs: []string{"prepare", "fetch"}, WaitForReplicatedJobsStatus: jobsetapi.SucceededStatus}, {TargetReplicatedJobs: []string{"cache"}},
		}}
		unqueued, forged, empty := js.DeepCopy(), js.DeepCopy(), newQueued(namespace, "forged", "a", "b")
		unqueued.Labels = nil
		for _, js := range []*jobsetapi.JobSet{js, unqueued} {
			Expect(tenant.Create(ctx, js, client.DryRunAll)).To(Succeed())
			Expect(js.Annotations).To(HaveKeyWithValue(apis.StartupRulesAnnotation, "prepare,fetch=Succeeded;cache=Ready"))
			Expect(js.Annotations).To(HaveKeyWithValue(apis.StartupRulesAnnotation, stageplan.RulesRecord(&js.Spec)))
		}
		forged.Annotations = map[string]string{apis.StartupRulesAnnotation: "prepare=Ready"}
		Expect(tenant.Create(ctx, forged, client.DryRunAll)).To(Succeed())
		Expect(forged.Annotations).To(HaveKeyWithValue(apis.StartupRulesAnnotation, stageplan.RulesRecord(&js.Spec)))
		empty.Annotations = map[string]string{apis.StartupRulesAnnotation: "a=Ready"}
		Expect(tenant.Create(ctx, empty, client.DryRunAll)).To(MatchError(ContainSubstring("metadata.annotations: only Tranche's manager")))
	}, SpecTimeout(patience))
})
