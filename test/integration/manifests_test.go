package integration_test

import (
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/apis"
)

var _ = Describe("The manifests", func() {
	apply := func(ctx SpecContext, overlay string, flags ...string) {
		GinkgoHelper()
		args := append([]string{"apply", "--server-side", "--force-conflicts", "-k", filepath.Join(env.Root, overlay)}, flags...)
		Expect(env.Kubectl(ctx, args...)).To(Succeed())
	}

	It("install a manager whose pods pass the Pod Security Standard of its namespace", func(ctx SpecContext) {
		apply(ctx, "config/default")
		deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: apis.SystemNamespace, Name: "tranche-manager"}}
		DeferCleanup(func(ctx SpecContext) { Expect(env.adminClient.Delete(ctx, deployment)).To(Succeed()) }, NodeTimeout(patience))
		Eventually(func(g Gomega) { g.Expect(get(ctx, deployment).Status.ReadyReplicas).To(BeEquivalentTo(2)) }).
			WithContext(ctx).Should(Succeed())
	}, SpecTimeout(patience))

	It("contain samples that the API server accepts", func(ctx SpecContext) {
		apply(ctx, "config/samples")
		apply(ctx, "config/samples/jobsets", "--dry-run=server")
		apply(ctx, "config/samples/demo/jobsets", "--dry-run=server")
	}, SpecTimeout(patience))

	// The API server accepts an expression that names a field which does not exist, and notes it in the status.
	It("contain policies whose expressions type-check", func(ctx SpecContext) {
		Eventually(func(g Gomega) {
			var policies admissionv1.ValidatingAdmissionPolicyList
			g.Expect(env.adminClient.List(ctx, &policies)).To(Succeed())
			g.Expect(policies.Items).NotTo(BeEmpty())
			for i := range policies.Items {
				policy := &policies.Items[i]
				g.Expect(policy.Status.ObservedGeneration).To(Equal(policy.Generation), policy.Name)
				g.Expect(policy.Status.TypeChecking).NotTo(BeNil(), policy.Name)
				g.Expect(policy.Status.TypeChecking.ExpressionWarnings).To(BeEmpty(), policy.Name)
			}
		}).WithContext(ctx).Should(Succeed())
	}, SpecTimeout(patience))
})
