package kueue_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/test/controlplane"
	"github.com/tranche-dev/tranche/test/testenv"
)

var _ = Describe("The manager beside Kueue", Ordered, func() {
	BeforeAll(startBeside, NodeTimeout(patience))

	It("reports a version of Kueue that was not tested", func(ctx SpecContext) {
		killBeside()
		later := kueueDeployment("v0.20.0")
		Expect(env.Admin.Create(ctx, later)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(env.Admin.Delete(ctx, later)).To(Succeed()) }, NodeTimeout(patience))
		startBeside(ctx)
		awaitReport(ctx, "KueueUntested", "Kueue's manager has version v0.20.0")
	}, SpecTimeout(patience))

	It("reports that Kueue was uninstalled, goes on, and does not start again", func(ctx SpecContext) {
		webhooks := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "kueue-validating-webhook-configuration"}}
		Expect(env.Admin.Get(ctx, client.ObjectKeyFromObject(webhooks), webhooks)).To(Succeed())
		Expect(env.Admin.Delete(ctx, webhooks.DeepCopy())).To(Succeed())
		DeferCleanup(func(ctx SpecContext) {
			webhooks.ObjectMeta = metav1.ObjectMeta{Name: webhooks.Name}
			Expect(env.Admin.Create(ctx, webhooks)).To(Succeed())
		}, NodeTimeout(patience))
		awaitReport(ctx, "KueueMissing", "install config/default with mode Instead")
		Expect(shared.manager.WaitReady(ctx)).To(Succeed())
		killBeside()
		_, err := env.StartManager(ctx, testenv.ManagerOptions{Settings: map[string]any{"mode": "Beside"}})
		Expect(err).To(MatchError(ContainSubstring("no ValidatingWebhookConfiguration is that of Kueue's manager")))
	}, SpecTimeout(patience))
})

// awaitReport waits for an Event about Kueue's manager.
func awaitReport(ctx context.Context, reason, text string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		var list eventsv1.EventList
		g.Expect(env.Admin.List(ctx, &list, client.InNamespace(apis.SystemNamespace))).To(Succeed())
		g.Expect(list.Items).To(ContainElement(And(HaveField("Regarding.Name", apis.GuardsConfigMap), HaveField("Reason", reason), HaveField("Note", ContainSubstring(text)))))
	}).WithContext(ctx).Should(Succeed())
}

// kueueDeployment returns a Deployment without pods whose image has a version of Kueue's manager.
func kueueDeployment(version string) *appsv1.Deployment {
	labels := map[string]string{"control-plane": "controller-manager"}
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: controlplane.KueueNamespace, Name: "kueue-controller-manager"}, Spec: appsv1.DeploymentSpec{
		Replicas: new(int32(0)), Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
			ServiceAccountName: "kueue-controller-manager", Containers: []corev1.Container{{Name: "manager", Image: "registry.k8s.io/kueue/kueue:" + version}},
		}},
	}}
}
