package integration_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/test/testenv"
)

// refuseFinalizers makes the API server refuse finalizers that the manager adds to ClusterQueues, until allow is called.
func refuseFinalizers(ctx context.Context) (allow func(context.Context)) {
	GinkgoHelper()
	const name = "refuse-finalizers"
	policy := &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Update},
					Rule:       admissionv1.Rule{APIGroups: []string{kueue.SchemeGroupVersion.Group}, APIVersions: []string{"*"}, Resources: []string{"clusterqueues"}},
				},
			}}},
			Validations: []admissionv1.Validation{{
				Expression: "request.userInfo.username != '" + testenv.ManagerUser + "' || !has(object.metadata.finalizers) || has(oldObject.metadata.finalizers)",
			}},
		},
	}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		},
	}
	Expect(env.adminClient.Create(ctx, policy)).To(Succeed())
	Expect(env.adminClient.Create(ctx, binding)).To(Succeed())
	allow = func(ctx context.Context) {
		for _, object := range []client.Object{binding, policy} {
			Expect(client.IgnoreNotFound(env.adminClient.Delete(ctx, object))).To(Succeed())
		}
	}
	DeferCleanup(func(ctx SpecContext) { allow(ctx) })

	probe := newQueue(ctx).clusterQueue
	Eventually(func(g Gomega) {
		var q kueue.ClusterQueue
		g.Expect(env.adminClient.Get(ctx, client.ObjectKeyFromObject(probe), &q)).To(Succeed())
		q.Finalizers = nil
		g.Expect(env.adminClient.Update(ctx, &q)).To(Succeed())
		q.Finalizers = []string{kueue.ResourceInUseFinalizerName}
		g.Expect(env.clientAs(testenv.ManagerUser, "system:masters").Update(ctx, &q, client.DryRunAll)).To(MatchError(ContainSubstring(name)))
	}).WithContext(ctx).Should(Succeed())
	return allow
}
