package dashboard_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/tranche-dev/tranche/test/browser"
)

// tokenOf returns a token of a new ServiceAccount that may look at its namespace.
func tokenOf(ctx context.Context, namespace, name string) string {
	GinkgoHelper()
	meta := metav1.ObjectMeta{Namespace: namespace, Name: name}
	Expect(env.Admin.Create(ctx, &corev1.ServiceAccount{ObjectMeta: meta})).To(Succeed())
	Expect(env.Admin.Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "tranche-dashboard-viewer"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}},
	})).To(Succeed())
	c, err := kubernetes.NewForConfig(env.Plane.AdminConfig())
	Expect(err).NotTo(HaveOccurred())
	request, err := c.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	return request.Status.Token
}

var _ = Describe("The dashboard of the manager", func() {
	It("asks for a token, shows what its user may read, and signs out", func(ctx SpecContext) {
		token := tokenOf(ctx, "team-vision", "grace")
		DeferCleanup(func(ctx SpecContext) { Expect(window.Open(ctx, "about:blank")).To(Succeed()) }, NodeTimeout(patience))
		open(ctx, managerAddress, "jobsets")
		see(ctx, "Bearer token", "kubectl create token")
		Expect(window.Type(ctx, "wrong"+browser.Enter)).To(Succeed())
		see(ctx, "The API server does not accept the token")
		// Browsers log answers with an error status.
		logged, err := window.Errors(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(logged).To(HaveEach(ContainSubstring("401")))

		Expect(window.Type(ctx, token+browser.Enter)).To(Succeed())
		see(ctx, "Sign out", "system:serviceaccount:team-vision:grace", "live")
		open(ctx, managerAddress, "")
		seeView(ctx, "jobsets")
		see(ctx, "fine-tune", "large", "position 0", "live")
		open(ctx, managerAddress, "jobsets/team-vision/large")
		see(ctx, "JobSet large", "WaitingForQuota", "Missing quota", "Any one of these would let it in:",
			"raise nominalQuota of nvidia.com/gpu of flavor a100 in a ClusterQueue that you may not read, from 16 to ", "From a snapshot taken")
		open(ctx, managerAddress, "jobsets/team-vision/fine-tune?list=pods")
		see(ctx, "fine-tune-train-0-0", "Running")
		open(ctx, managerAddress, "jobsets/team-vision/fine-tune?list=events")
		see(ctx, "StageReleased", "Job fine-tune-train-0")
		open(ctx, managerAddress, "jobsets/team-speech/secret-model")
		see(ctx, "not found")
		var cookies, text string
		Expect(window.Run(ctx, "return document.cookie", &cookies)).To(Succeed())
		Expect(cookies).To(BeEmpty(), "scripts do not get the token")
		open(ctx, managerAddress, "jobsets")
		see(ctx, "fine-tune")
		text, err = window.Text(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(text).NotTo(ContainSubstring("secret-model"))

		Expect(window.Click(ctx, "#sign-out")).To(Succeed())
		see(ctx, "Bearer token")
		open(ctx, managerAddress, "queues")
		see(ctx, "Bearer token")
		// The JobSet that may not be seen was not found.
		logged, err = window.Errors(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(logged).To(HaveEach(ContainSubstring("404")))
	}, SpecTimeout(specTimeout))
})
