package integration_test

import (
	"context"
	"crypto/tls"
	"net/http"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/test/testenv"
)

// Metrics name the namespaces and queues of all tenants.
var _ = Describe("The metrics of the manager", func() {
	It("are served over TLS, only to a client with a token and the permission to read them", func(ctx SpecContext) {
		address := freeAddress()
		manager, err := env.StartManager(ctx, testenv.ManagerOptions{Settings: map[string]any{"metrics": map[string]any{"bindAddress": address}}})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(manager.Stop)

		stranger, scraper := tokenOf(ctx, "metrics-stranger"), tokenOf(ctx, "metrics-scraper")
		grant(ctx, "metrics-scraper", "tranche-metrics-reader")
		url := "https://" + address + "/metrics"
		Eventually(func(g Gomega) {
			g.Expect(statusOf(ctx, g, url, "")).To(Equal(http.StatusUnauthorized))
			g.Expect(statusOf(ctx, g, url, scraper)).To(Equal(http.StatusOK))
			g.Expect(statusOf(ctx, g, url, stranger)).To(Equal(http.StatusForbidden))
		}).WithContext(ctx).Should(Succeed())
		response, err := http.Get("http://" + address + "/metrics") //nolint:noctx // a plain request, as any client would send
		Expect(err).NotTo(HaveOccurred())
		Expect(response.Body.Close()).To(Succeed())
		Expect(response.StatusCode).To(Equal(http.StatusBadRequest), "in plain text")
	}, SpecTimeout(patience))

	It("have the profiles of the process beside them, for a client with the permission to get those", func(ctx SpecContext) {
		address, open := freeAddress(), freeAddress()
		for at, isSecure := range map[string]bool{address: true, open: false} {
			manager, err := env.StartManager(ctx, testenv.ManagerOptions{Settings: map[string]any{"metrics": map[string]any{"bindAddress": at, "secure": isSecure}}})
			Expect(err).NotTo(HaveOccurred())
			DeferCleanup(manager.Stop)
		}

		scraper, profiler := tokenOf(ctx, "profiles-scraper"), tokenOf(ctx, "profiles-profiler")
		role := &rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{Name: "profiles-reader"},
			Rules:      []rbacv1.PolicyRule{{NonResourceURLs: []string{"/debug/pprof/*"}, Verbs: []string{"get"}}},
		}
		Expect(env.adminClient.Create(ctx, role)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(env.adminClient.Delete(ctx, role)).To(Succeed()) })
		grant(ctx, "profiles-scraper", "tranche-metrics-reader")
		grant(ctx, "profiles-profiler", role.Name)

		for _, path := range []string{"/debug/pprof/heap", "/debug/pprof/profile?seconds=1", "/debug/pprof/cmdline"} {
			url := "https://" + address + path
			Eventually(func(g Gomega) {
				g.Expect(statusOf(ctx, g, url, "")).To(Equal(http.StatusUnauthorized))
				g.Expect(statusOf(ctx, g, url, scraper)).To(Equal(http.StatusForbidden))
				g.Expect(statusOf(ctx, g, url, profiler)).To(Equal(http.StatusOK))
			}).WithContext(ctx).Should(Succeed(), path)
			Expect(statusOf(ctx, Default, "http://"+open+path, profiler)).To(Equal(http.StatusNotFound), "where no client has to show who it is")
		}
		Expect(statusOf(ctx, Default, "http://"+open+"/metrics", "")).To(Equal(http.StatusOK))
	}, SpecTimeout(patience))

	It("fail the start of the manager if their certificate is missing", func(ctx SpecContext) {
		manager, err := env.LaunchManager(testenv.ManagerOptions{Settings: map[string]any{
			"metrics": map[string]any{"bindAddress": freeAddress(), "certDir": "/nowhere"},
		}})
		Expect(err).NotTo(HaveOccurred())
		Expect(manager.WaitReady(ctx)).To(MatchError(And(ContainSubstring("metrics.certDir"), ContainSubstring("/nowhere/tls.crt"))))
	}, SpecTimeout(patience))
})

// tokenOf returns a token of a new ServiceAccount in namespace default.
func tokenOf(ctx context.Context, name string) string {
	GinkgoHelper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name}}
	Expect(env.adminClient.Create(ctx, account)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) {
		Expect(client.IgnoreNotFound(env.adminClient.Delete(ctx, account))).To(Succeed())
	})
	c, err := kubernetes.NewForConfig(env.Plane.AdminConfig())
	Expect(err).NotTo(HaveOccurred())
	request, err := c.CoreV1().ServiceAccounts(account.Namespace).CreateToken(ctx, name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	return request.Status.Token
}

// grant binds a ClusterRole to a ServiceAccount in namespace default.
func grant(ctx context.Context, account, role string) {
	GinkgoHelper()
	bind(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: account},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: metav1.NamespaceDefault, Name: account}},
	})
}

// statusOf gets a URL of a manager and returns the HTTP status.
func statusOf(ctx context.Context, g Gomega, url, token string) int {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	g.Expect(err).NotTo(HaveOccurred())
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	insecure := &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}}
	defer insecure.CloseIdleConnections()
	response, err := insecure.Do(request)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(response.Body.Close()).To(Succeed())
	return response.StatusCode
}
