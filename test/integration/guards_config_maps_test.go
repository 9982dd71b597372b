package integration_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/test/testenv"
)

var _ = Describe("The guard of ConfigMaps", func() {
	It("prevents tenants from filling the cache of the manager", func(ctx SpecContext) {
		namespace := newTenant(ctx)
		awaitGuards(ctx, namespace)
		tenant, manager := env.clientAs(alice), env.clientAs(testenv.ManagerUser)
		forged := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: "forged", Labels: map[string]string{apis.JobSetLabel: "js"},
		}}
		expectAnswer(tenant.Create(ctx, forged.DeepCopy()), "only Tranche's manager adds, changes or removes the label tranche.dev/jobset")
		forged.Labels = nil
		expectAnswer(tenant.Create(ctx, forged), allowed)
		expectAnswer(tenant.Patch(ctx, forged.DeepCopy(), mergePatch(`{"metadata":{"labels":{"tranche.dev/jobset":"js"}}}`)),
			"only Tranche's manager adds, changes or removes the label tranche.dev/jobset")
		expectAnswer(tenant.Patch(ctx, forged.DeepCopy(), mergePatch(`{"data":{"a":"b"}}`)), allowed)

		group := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "js-group-scheduling", Labels: map[string]string{apis.JobSetLabel: "js"}},
			Data:       map[string]string{"token": "secret"},
		}
		expectAnswer(manager.Create(ctx, group), allowed)
		for _, who := range []client.Client{tenant, env.adminClient} {
			expectAnswer(who.Patch(ctx, group.DeepCopy(), mergePatch(`{"data":{"released":"all"}}`)), "data: only Tranche's manager writes the ConfigMap of a group that starts together")
			expectAnswer(who.Patch(ctx, group.DeepCopy(), mergePatch(`{"binaryData":{"large":"AAAA"}}`)), "data: only Tranche's manager writes the ConfigMap of a group")
			expectAnswer(who.Patch(ctx, group.DeepCopy(), mergePatch(`{"metadata":{"labels":null}}`)), "only Tranche's manager adds, changes or removes the label")
		}
		expectAnswer(tenant.Patch(ctx, group.DeepCopy(), mergePatch(`{"metadata":{"annotations":{"mine":"yes"}}}`)), allowed)
		current := get(ctx, group)
		current.Data["released"] = "all"
		expectAnswer(manager.Update(ctx, current), allowed)
		Expect(tenant.Delete(ctx, group)).To(Succeed())
	}, SpecTimeout(patience))
})
