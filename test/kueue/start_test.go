package kueue_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/test/testenv"
)

var _ = Describe("The manager beside Kueue", Ordered, func() {
	BeforeAll(startBeside, NodeTimeout(patience))

	It("does not start where Kueue is not installed", func(ctx SpecContext) {
		webhooks := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "kueue-validating-webhook-configuration"}}
		Expect(env.Admin.Get(ctx, client.ObjectKeyFromObject(webhooks), webhooks)).To(Succeed())
		killBeside()
		Expect(env.Admin.Delete(ctx, webhooks.DeepCopy())).To(Succeed())
		DeferCleanup(func(ctx SpecContext) {
			webhooks.ObjectMeta = metav1.ObjectMeta{Name: webhooks.Name}
			Expect(env.Admin.Create(ctx, webhooks)).To(Succeed())
		}, NodeTimeout(patience))
		_, err := env.StartManager(ctx, testenv.ManagerOptions{Settings: map[string]any{"mode": "Beside"}})
		Expect(err).To(MatchError(ContainSubstring("no ValidatingWebhookConfiguration is that of Kueue's manager")))
	}, SpecTimeout(patience))
})
