package integration_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/cert"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/dashboard"
	"github.com/tranche-dev/tranche/dashboard/access"
	"github.com/tranche-dev/tranche/test/testenv"
)

// A visitor sends requests to a dashboard with a bearer token.
type visitor struct{ address, token string }

// insecure does not verify certificates: those of the tests are self-signed.
var insecure = &http.Client{
	Transport:     &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// get returns the status and the body of an answer.
func (v visitor) get(ctx context.Context, g Gomega, path string) (status int, body string) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+v.address+path, http.NoBody)
	g.Expect(err).NotTo(HaveOccurred())
	if v.token != "" {
		request.Header.Set("Authorization", "Bearer "+v.token)
	}
	response, err := insecure.Do(request)
	g.Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close() //nolint:errcheck // it was only read
	data, err := io.ReadAll(response.Body)
	g.Expect(err).NotTo(HaveOccurred())
	return response.StatusCode, string(data)
}

// mayLook binds the role of readers of the dashboard to a ServiceAccount of namespace default, in a namespace or everywhere.
func mayLook(ctx context.Context, account, namespace string) client.Object {
	GinkgoHelper()
	role := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "tranche-dashboard-viewer"}
	subjects := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: metav1.NamespaceDefault, Name: account}}
	var binding client.Object = &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: account}, RoleRef: role, Subjects: subjects}
	if namespace == "" {
		binding = &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: account}, RoleRef: role, Subjects: subjects}
	}
	Expect(env.adminClient.Create(ctx, binding)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) {
		Expect(client.IgnoreNotFound(env.adminClient.Delete(ctx, binding))).To(Succeed())
	})
	return binding
}

// newNeighbour makes a namespace with a LocalQueue that leads to the ClusterQueue of a tenant.
func (t *tenant) newNeighbour(ctx context.Context) string {
	GinkgoHelper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "neighbour-"}}
	Expect(env.adminClient.Create(ctx, namespace)).To(Succeed())
	Expect(env.adminClient.Create(ctx, &kueue.LocalQueue{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: "queue"},
		Spec:       kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(t.clusterQueue.Name)},
	})).To(Succeed())
	return namespace.Name
}

var _ = Describe("The dashboard of the manager", Ordered, func() {
	var (
		t                *tenant
		address, mine    string
		admin, ada, eve  visitor
		audienceOfOthers string
	)

	BeforeAll(func(ctx SpecContext) {
		address = freeAddress()
		Expect(env.Kubectl(ctx, "apply", "--server-side", "-k", filepath.Join(env.Root, "config/dashboard"))).To(Succeed())
		startManager(ctx, map[string]any{"dashboard": map[string]any{"enable": true, "bindAddress": address}})
		t = newQueue(ctx)
		t.onlyOnDemand(ctx, "4", func(*kueue.ClusterQueueSpec) {})
		expect(ctx, create(ctx, t.workload("confidential", "3")), "Admitted=True Admitted")
		mine = t.newNeighbour(ctx)
		js := (&tenant{namespace: mine}).twoStages("fine-tune", "1")
		js.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("2")
		Expect(env.adminClient.Create(ctx, js)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(env.adminClient.Delete(ctx, js)).To(Succeed()) })
		admin, ada, eve = visitor{address, tokenOf(ctx, "looks-everywhere")}, visitor{address, tokenOf(ctx, "looks-here")}, visitor{address, tokenOf(ctx, "looks-nowhere")}
		mayLook(ctx, "looks-everywhere", "")
		mayLook(ctx, "looks-here", mine)
		c, err := kubernetes.NewForConfig(env.Plane.AdminConfig())
		Expect(err).NotTo(HaveOccurred())
		request, err := c.CoreV1().ServiceAccounts(metav1.NamespaceDefault).CreateToken(ctx, "looks-everywhere",
			&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{"elsewhere"}}}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		audienceOfOthers = request.Status.Token
	}, NodeTimeout(2*patience))

	It("shows an administrator everything", func(ctx SpecContext) {
		Eventually(func(g Gomega) {
			_, body := admin.get(ctx, g, "/api/v1/about")
			g.Expect(body).To(And(ContainSubstring(`"user":"system:serviceaccount:default:looks-everywhere"`), ContainSubstring(`"synced":true`)))
			_, body = admin.get(ctx, g, "/api/v1/queues/"+t.clusterQueue.Name+"/workloads?list=holding")
			g.Expect(body).To(ContainSubstring(`"name":"confidential"`))
			_, body = admin.get(ctx, g, "/api/v1/jobsets/"+mine+"/fine-tune")
			g.Expect(body).To(And(ContainSubstring(`"state":"Pending"`), ContainSubstring(`"explanation":{`)))
			g.Expect(body).To(ContainSubstring(`"name":"confidential"`), "the holder of the missing quota")
			g.Expect(body).To(ContainSubstring("Workload "+t.namespace+"/confidential ends ("), "what would let it in")
		}).WithContext(ctx).Should(Succeed())
	}, SpecTimeout(patience))

	It("shows a user of one namespace counts of the others", func(ctx SpecContext) {
		Eventually(func(g Gomega) {
			status, body := ada.get(ctx, g, "/api/v1/jobsets/"+mine+"/fine-tune")
			g.Expect(status).To(Equal(http.StatusOK))
			g.Expect(body).To(And(ContainSubstring(`"explanation":{`), ContainSubstring(`"holders":[{"kind":"Workload"`), Not(ContainSubstring("confidential"))))
			g.Expect(body).To(And(ContainSubstring("in a ClusterQueue that you may not read, from 4 to 5"), ContainSubstring(`"a quota Workload of another namespace ends"`)))
			_, body = ada.get(ctx, g, "/api/v1/jobsets")
			g.Expect(body).To(And(ContainSubstring("fine-tune"), ContainSubstring(`"total":1`)))
		}).WithContext(ctx).Should(Succeed())
		var namespaces dashboard.Page[dashboard.NamespaceRow]
		_, body := ada.get(ctx, Default, "/api/v1/namespaces")
		Expect(json.Unmarshal([]byte(body), &namespaces)).To(Succeed())
		Expect(namespaces.Items).To(ConsistOf(HaveField("Name", mine)))
		for path, want := range map[string]int{
			"queues": http.StatusOK, "queues/" + t.clusterQueue.Name: http.StatusNotFound, "search?text=conf": http.StatusOK,
			"queues/" + t.clusterQueue.Name + "/workloads?list=holding": http.StatusNotFound,
		} {
			status, body := ada.get(ctx, Default, "/api/v1/"+path)
			Expect(status).To(Equal(want), path)
			Expect(body).NotTo(ContainSubstring("confidential"), path)
		}
	}, SpecTimeout(patience))

	It("reads pods, Events and YAML only for a user who may read them", func(ctx SpecContext) {
		role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: mine, Name: "looks-at-jobsets"}, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"kueue.x-k8s.io"}, Resources: []string{"workloads"}, Verbs: []string{"list"}},
			{APIGroups: []string{"jobset.x-k8s.io"}, Resources: []string{"jobsets"}, Verbs: []string{"get", "list"}},
		}}
		Expect(env.adminClient.Create(ctx, role)).To(Succeed())
		bea := visitor{address, tokenOf(ctx, "looks-at-jobsets")}
		Expect(env.adminClient.Create(ctx, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: mine, Name: "looks-at-jobsets"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: metav1.NamespaceDefault, Name: "looks-at-jobsets"}},
		})).To(Succeed())
		Eventually(func(g Gomega) {
			as, err := env.As("system:serviceaccount:default:looks-at-jobsets")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(as.Get(ctx, types.NamespacedName{Namespace: mine, Name: "fine-tune"}, &jobsetapi.JobSet{})).To(Succeed())
		}).WithContext(ctx).Should(Succeed())
		for path, parts := range map[string][4]string{
			"jobsets/" + mine + "/fine-tune/yaml":         {"kind: JobSet", "kind: JobSet", "kind: JobSet", "not found"},
			"jobsets/" + mine + "/fine-tune/pods":         {`"counts":[]}`, `"counts":[]}`, "Pods are not shown: user", "not found"},
			"jobsets/" + mine + "/fine-tune/events":       {`"kind":"JobSet"`, `"kind":"JobSet"`, "Events about a JobSet are not shown: user", "not found"},
			"localqueues/" + mine + "/queue/settings":     {"kind: LocalQueue", "kind: LocalQueue", "not found", "not found"},
			"queues/" + t.clusterQueue.Name + "/settings": {"kind: ClusterQueue", "not found", "not found", "not found"},
		} {
			for i, v := range []visitor{admin, ada, bea, eve} {
				Eventually(func(g Gomega) {
					_, body := v.get(ctx, g, "/api/v1/"+path)
					g.Expect(body).To(ContainSubstring(parts[i]), "%s for user %d", path, i)
				}).WithContext(ctx).Should(Succeed())
			}
		}
	}, SpecTimeout(patience))

	It("names a ClusterQueue to a user who may get it, and hides its quota Workloads", func(ctx SpecContext) {
		role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "looks-at-a-queue"}, Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{"kueue.x-k8s.io"}, Resources: []string{"clusterqueues"}, ResourceNames: []string{t.clusterQueue.Name}, Verbs: []string{"get"},
		}}}
		Expect(env.adminClient.Create(ctx, role)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(env.adminClient.Delete(ctx, role)).To(Succeed()) })
		reader := visitor{address, tokenOf(ctx, "looks-at-a-queue")}
		binding := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "looks-at-a-queue"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: metav1.NamespaceDefault, Name: "looks-at-a-queue"}},
		}
		Expect(env.adminClient.Create(ctx, binding)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(env.adminClient.Delete(ctx, binding)).To(Succeed()) })
		// The authorizer of the API server has the binding before the first question: denials are kept.
		Eventually(func(g Gomega) {
			as, err := env.As("system:serviceaccount:default:looks-at-a-queue")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(as.Get(ctx, client.ObjectKeyFromObject(t.clusterQueue), &kueue.ClusterQueue{})).To(Succeed())
		}).WithContext(ctx).Should(Succeed())
		_, body := reader.get(ctx, Default, "/api/v1/queues")
		Expect(body).To(And(ContainSubstring(`"name":"`+t.clusterQueue.Name+`"`), ContainSubstring(`"total":1`)))
		_, body = reader.get(ctx, Default, "/api/v1/queues/"+t.clusterQueue.Name+"/workloads?list=holding")
		Expect(body).To(And(ContainSubstring(`"hidden":true,"state":"Starting"`), Not(ContainSubstring("confidential"))))
		_, body = reader.get(ctx, Default, "/api/v1/jobsets")
		Expect(body).To(And(ContainSubstring(`"total":0`), ContainSubstring(`"hidden":`)))
	}, SpecTimeout(patience))

	It("shows a user without rights nothing, and others only the page to sign in", func(ctx SpecContext) {
		for path, want := range map[string]string{"queues": `"total":0`, "jobsets": `"total":0`, "search?text=e": `"items":[]`, "namespaces": `"items":[]`} {
			status, body := eve.get(ctx, Default, "/api/v1/"+path)
			Expect(status).To(Equal(http.StatusOK))
			Expect(body).To(ContainSubstring(want), path)
		}
		for name, token := range map[string]string{"no token": "", "a wrong token": "wrong", "a token for another audience": audienceOfOthers} {
			stranger := visitor{address, token}
			for _, path := range []string{"/api/v1/about", "/api/v1/events", "/app.js"} {
				status, body := stranger.get(ctx, Default, path)
				Expect(status).To(Equal(http.StatusUnauthorized), name+" "+path+" "+body)
			}
			status, _ := stranger.get(ctx, Default, "/")
			Expect(status).To(Equal(http.StatusSeeOther), name)
			_, body := stranger.get(ctx, Default, "/sign-in")
			Expect(body).To(ContainSubstring("Bearer token"), name)
		}
	}, SpecTimeout(patience))

	It("signs a browser in by a cookie", func(ctx SpecContext) {
		send := func(path string, cookies []*http.Cookie, form url.Values) *http.Response {
			GinkgoHelper()
			request, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+address+path, strings.NewReader(form.Encode()))
			Expect(err).NotTo(HaveOccurred())
			request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			if form == nil {
				request.Method = http.MethodGet
			}
			for _, cookie := range cookies {
				request.AddCookie(cookie)
			}
			response, err := insecure.Do(request)
			Expect(err).NotTo(HaveOccurred())
			Expect(response.Body.Close()).To(Succeed())
			return response
		}
		Expect(send("/sign-in", nil, url.Values{"token": {"wrong"}}).StatusCode).To(Equal(http.StatusUnauthorized))
		in := send("/sign-in", nil, url.Values{"token": {ada.token}})
		Expect(in.StatusCode).To(Equal(http.StatusSeeOther))
		Expect(send("/app.js", in.Cookies(), nil).StatusCode).To(Equal(http.StatusOK))
		Expect(send("/api/v1/jobsets/"+mine+"/fine-tune", in.Cookies(), nil).StatusCode).To(Equal(http.StatusOK))
	}, SpecTimeout(patience))

	// The time of the Gate is that of the test, so that the spec need not wait for the end of what is kept.
	It("sees tokens and rights that the API server no longer accepts", func(ctx SpecContext) {
		token, binding := tokenOf(ctx, "looks-for-now"), mayLook(ctx, "looks-for-now", mine)
		now := clocktesting.NewFakeClock(time.Now())
		config := &access.Config{OnError: func(err error) { GinkgoWriter.Println(err) }, Clock: now}
		Expect(config.Connect(env.Plane.AdminConfig())).To(Succeed())
		gate := access.New(config)
		sees := func(g Gomega) bool {
			now.Step(2*time.Minute + time.Second)
			session, err := gate.Open(ctx, token)
			g.Expect(err).NotTo(HaveOccurred())
			session.Viewer().Namespace(mine)
			_, err = session.Learn(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			v := session.Viewer()
			g.Expect(v.Namespace(t.namespace)).To(BeFalse())
			may, err := session.MayGetJobSet(ctx, types.NamespacedName{Namespace: mine, Name: "fine-tune"})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(may).To(Equal(v.Namespace(mine)))
			return v.Namespace(mine)
		}
		Eventually(sees).WithContext(ctx).Should(BeTrue())
		Expect(env.adminClient.Delete(ctx, binding)).To(Succeed())
		Eventually(sees).WithContext(ctx).Should(BeFalse())
		Expect(env.adminClient.Delete(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "looks-for-now"}})).To(Succeed())
		Eventually(func() bool {
			now.Step(20 * time.Second)
			_, err := gate.Open(ctx, token)
			return apierrors.IsUnauthorized(err)
		}).WithContext(ctx).Should(BeTrue())
	}, SpecTimeout(patience))
})

var _ = Describe("The certificate of the dashboard", func() {
	It("is read again when it changes", func(ctx SpecContext) {
		dir, address := GinkgoT().TempDir(), freeAddress()
		write := func(host string) string {
			GinkgoHelper()
			certificate, key, err := cert.GenerateSelfSignedCertKey(host, nil, nil)
			Expect(err).NotTo(HaveOccurred())
			Expect(os.WriteFile(filepath.Join(dir, "tls.key"), key, 0o600)).To(Succeed())
			Expect(os.WriteFile(filepath.Join(dir, "tls.crt"), certificate, 0o600)).To(Succeed())
			block, _ := pem.Decode(certificate)
			return string(block.Bytes)
		}
		served := func() string {
			connection, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(ctx, "tcp", address)
			if err != nil {
				return err.Error()
			}
			defer connection.Close() //nolint:errcheck // nothing was sent
			return string(connection.(*tls.Conn).ConnectionState().PeerCertificates[0].Raw)
		}
		first := write("first.example.com")
		manager, err := env.StartManager(ctx, testenv.ManagerOptions{Settings: map[string]any{
			"dashboard": map[string]any{"enable": true, "bindAddress": address, "certDir": dir},
		}})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(manager.Stop)
		Eventually(served).WithContext(ctx).Should(Equal(first))
		second := write("second.example.com")
		Eventually(served).WithContext(ctx).Should(Equal(second))
	}, SpecTimeout(patience))

	It("fails the start of the manager if it is missing", func(ctx SpecContext) {
		manager, err := env.LaunchManager(testenv.ManagerOptions{Settings: map[string]any{
			"dashboard": map[string]any{"enable": true, "bindAddress": freeAddress(), "certDir": "/nowhere"},
		}})
		Expect(err).NotTo(HaveOccurred())
		Eventually(manager.Done()).WithContext(ctx).Should(BeClosed())
		log, err := os.ReadFile(manager.Log)
		Expect(err).NotTo(HaveOccurred())
		Expect(string(log)).To(And(ContainSubstring("dashboard.certDir"), ContainSubstring("/nowhere/tls.crt")))
	}, SpecTimeout(patience))
})
