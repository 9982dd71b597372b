package server_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/dashboard"
	"github.com/tranche-dev/tranche/dashboard/access"
	"github.com/tranche-dev/tranche/dashboard/server"
)

// A site is a dashboard whose users have tokens of their names: root sees everything, ada the namespace team without one right, others nothing.
type site struct {
	*httptest.Server
	client *http.Client
	// lacks is the resource that ada may not read.
	lacks string
	// reviews counts the reviews of rights.
	reviews atomic.Int64
	// isRevoked is true if no token is accepted any longer.
	isRevoked atomic.Bool
}

func startSite(t *testing.T, store *server.Store) *site {
	t.Helper()
	s := &site{}
	s.Server = httptest.NewTLSServer(s.handler(t, store))
	t.Cleanup(s.Close)
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	s.client = s.Client()
	s.client.Jar = jar
	s.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return s
}

func (s *site) handler(t *testing.T, store *server.Store) http.Handler {
	t.Helper()
	gate := access.New(&access.Config{
		ReviewToken: func(_ context.Context, token string) (*authenticationv1.UserInfo, error) {
			if s.isRevoked.Load() || !strings.Contains(" root ada eve ", " "+token+" ") {
				return nil, nil //nolint:nilnil // a token of no user is no error
			}
			return &authenticationv1.UserInfo{Username: token}, nil
		},
		ReviewAccess: func(_ context.Context, spec *authorizationv1.SubjectAccessReviewSpec) (bool, error) {
			r := spec.ResourceAttributes
			s.reviews.Add(1)
			return spec.User == "root" || spec.User == "ada" && r.Namespace == "team" && r.Verb+" "+r.Resource != s.lacks, nil
		},
		OnError: func(err error) { t.Error(err) },
	})
	return server.New(&server.Config{
		Store: store, Gate: gate, Page: fstest.MapFS{"index.html": {Data: []byte("the page")}, "app.js": {Data: []byte("the script")}},
		About:  func() server.About { return server.About{Version: "v1"} },
		Reader: func(session *access.Session) client.Reader { return session.Reader(newShelf(t)) },
		JobSet: func(_ context.Context, key types.NamespacedName) (*dashboard.JobSetObjects, error) {
			return &dashboard.JobSetObjects{JobSet: &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}}, nil
		},
	})
}

// do sends a request, with a token in the header unless that is empty.
func (s *site) do(t *testing.T, method, path, token string, change func(r *http.Request)) (r *http.Response, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	if change != nil {
		change(request)
	}
	r, err = s.client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close() //nolint:errcheck // it was only read
	data, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r, string(data)
}

func (s *site) signIn(t *testing.T, token string) (r *http.Response, body string) {
	t.Helper()
	return s.do(t, http.MethodPost, "/sign-in", "", func(r *http.Request) {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Body = io.NopCloser(strings.NewReader(url.Values{"token": {token}}.Encode()))
	})
}

// teamStore has a JobSet and a quota Workload in the namespaces team and other.
func teamStore() *server.Store {
	store := pendingStore(1)
	store.Use(func(m *dashboard.Model) {
		for _, namespace := range []string{"team", "other"} {
			m.Observe(&jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: namespace + "-js", UID: types.UID(namespace)}})
		}
	})
	return store
}

// Without a token there is nothing but the page to sign in.
func TestWithoutToken(t *testing.T) {
	s := startSite(t, teamStore())
	for _, path := range []string{
		"/app.js", "/index.html", "/api/v1/about", "/api/v1/namespaces", "/api/v1/queues", "/api/v1/queues/q", "/api/v1/queues/q/workloads", "/api/v1/jobsets",
		"/api/v1/jobsets/team/team-js", "/api/v1/search?text=q", "/api/v1/overview", "/api/v1/localqueues", "/api/v1/localqueues/team/lq", "/api/v1/events", "/api/none", "/healthz", "/metrics", "/debug/pprof/",
	} {
		for _, token := range []string{"", "wrong"} {
			r, body := s.do(t, http.MethodGet, path, token, nil)
			if r.StatusCode != http.StatusUnauthorized || !strings.Contains(body, `"signIn":true`) || strings.Contains(body, "team") {
				t.Errorf("%s with token %q: %s %s", path, token, r.Status, body)
			}
		}
	}
	if r, body := s.do(t, http.MethodGet, "/", "", nil); r.StatusCode != http.StatusSeeOther || r.Header.Get("Location") != "sign-in" || body != "" {
		t.Errorf("the page: %s to %q", r.Status, r.Header.Get("Location"))
	}
	r, body := s.do(t, http.MethodGet, "/sign-in", "", nil)
	policy := r.Header.Get("Content-Security-Policy")
	if r.StatusCode != http.StatusOK || !strings.Contains(body, "Bearer token") || !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") {
		t.Errorf("the sign-in page: %s with policy %q: %s", r.Status, policy, body)
	}
	for path, want := range map[string]int{"/api/v1/about": http.StatusMethodNotAllowed, "/": http.StatusMethodNotAllowed} {
		if r, _ := s.do(t, http.MethodPost, path, "root", nil); r.StatusCode != want {
			t.Errorf("POST %s: %s", path, r.Status)
		}
	}
}

// The overview is for users who may read all ClusterQueues, and a LocalQueue for those of its namespace.
func TestOverviewNeedsRights(t *testing.T) {
	s := startSite(t, teamStore())
	for _, want := range []struct {
		token, path string
		status      int
		part        string
	}{
		{"root", "about", http.StatusOK, `"overview":true`},
		{"root", "overview", http.StatusOK, `"accelerators":[]`},
		{"ada", "about", http.StatusOK, `"user":"ada"`},
		{"ada", "overview", http.StatusForbidden, "get clusterqueues.kueue.x-k8s.io, as the ClusterRole tranche-dashboard-viewer grants it"},
		{"ada", "localqueues", http.StatusOK, `"total":1,"offset":0,"items":[{"namespace":"team","name":"lq","pending":1`},
		{"ada", "localqueues/team/lq", http.StatusOK, `"name":"lq"`},
		{"ada", "localqueues/team/lq/workloads", http.StatusOK, `"positionInLocalQueue":0`},
		{"eve", "localqueues", http.StatusOK, `"items":[]`},
		{"eve", "localqueues/team/lq", http.StatusNotFound, "not found"},
		{"eve", "localqueues/team/lq/workloads", http.StatusNotFound, "not found"},
	} {
		r, body := s.do(t, http.MethodGet, "/api/v1/"+want.path, want.token, nil)
		if r.StatusCode != want.status || !strings.Contains(body, want.part) || want.token != "root" && strings.Contains(body, `"overview"`) {
			t.Errorf("%s of %s: %s %s", want.path, want.token, r.Status, body)
		}
	}
}

// A browser signs in with a token, keeps it in a cookie that scripts cannot read, and signs out.
func TestSignIn(t *testing.T) {
	s := startSite(t, teamStore())
	for token, want := range map[string]string{
		"": "Enter a token.", "wrong": "The API server does not accept the token", "<b>": "The text is not a bearer token", strings.Repeat("x", 3801): "too long for a cookie",
	} {
		if r, body := s.signIn(t, token); r.StatusCode < 400 || !strings.Contains(body, want) || len(r.Cookies()) > 0 {
			t.Errorf("%.20q: %s %s", token, r.Status, body)
		}
	}
	r, _ := s.signIn(t, " ada\n")
	if r.StatusCode != http.StatusSeeOther || r.Header.Get("Location") != "./" || len(r.Cookies()) != 1 {
		t.Fatalf("%s to %q with %v", r.Status, r.Header.Get("Location"), r.Cookies())
	}
	if c := r.Cookies()[0]; !c.HttpOnly || !c.Secure || c.SameSite != http.SameSiteStrictMode || c.Path != "/" || !strings.HasPrefix(c.Name, "__Host-") {
		t.Errorf("the cookie is %v", c)
	}
	if _, body := s.do(t, http.MethodGet, "/", "", nil); body != "the page" {
		t.Errorf("the page: %s", body)
	}
	if _, body := s.do(t, http.MethodGet, "/api/v1/about", "", nil); !strings.Contains(body, `"user":"ada"`) || !strings.Contains(body, `"canSignOut":true`) {
		t.Errorf("about: %s", body)
	}
	// What a proxy sends counts more than the cookie.
	if _, body := s.do(t, http.MethodGet, "/api/v1/about", "root", nil); !strings.Contains(body, `"user":"root"`) || strings.Contains(body, "canSignOut") {
		t.Errorf("about: %s", body)
	}
	r, _ = s.do(t, http.MethodPost, "/sign-out", "", func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") })
	if r.StatusCode != http.StatusForbidden {
		t.Errorf("another site signs out: %s", r.Status)
	}
	if r, _ = s.do(t, http.MethodPost, "/sign-out", "", nil); r.StatusCode != http.StatusSeeOther || r.Header.Get("Location") != "sign-in" {
		t.Errorf("sign out: %s to %q", r.Status, r.Header.Get("Location"))
	}
	if r, _ = s.do(t, http.MethodGet, "/api/v1/about", "", nil); r.StatusCode != http.StatusUnauthorized {
		t.Errorf("after signing out: %s", r.Status)
	}
}

func TestSignInFromAnotherSite(t *testing.T) {
	s := startSite(t, teamStore())
	r, _ := s.do(t, http.MethodPost, "/sign-in", "", func(r *http.Request) {
		r.Header.Set("Origin", "https://elsewhere.example.com")
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Body = io.NopCloser(strings.NewReader("token=ada"))
	})
	if r.StatusCode != http.StatusForbidden || len(r.Cookies()) > 0 {
		t.Errorf("%s with %v", r.Status, r.Cookies())
	}
}

// A user of one namespace sees the others as counts, and a JobSet only with the right to get it. The first answer has all that.
func TestUserOfOneNamespace(t *testing.T) {
	s := startSite(t, teamStore())
	if _, body := s.do(t, http.MethodGet, "/api/v1/jobsets", "ada", nil); !strings.Contains(body, "team-js") || strings.Contains(body, "other") || !strings.Contains(body, `"hidden":1`) {
		t.Errorf("JobSets: %s", body)
	}
	if _, body := s.do(t, http.MethodGet, "/api/v1/namespaces", "ada", nil); body != `{"total":1,"offset":0,"items":[{"name":"team","objects":2}]}`+"\n" {
		t.Errorf("namespaces: %s", body)
	}
	for path, want := range map[string]int{
		"jobsets/team/team-js": http.StatusOK, "jobsets/team/none": http.StatusNotFound, "jobsets/other/other-js": http.StatusNotFound, "queues/q": http.StatusNotFound,
	} {
		if r, body := s.do(t, http.MethodGet, "/api/v1/"+path, "ada", nil); r.StatusCode != want {
			t.Errorf("%s: %s %s", path, r.Status, body)
		}
		if r, body := s.do(t, http.MethodGet, "/api/v1/"+path, "eve", nil); r.StatusCode != http.StatusNotFound {
			t.Errorf("%s for a user without rights: %s %s", path, r.Status, body)
		}
	}
	for path, want := range map[string]string{"jobsets": `"total":0,"offset":0,"items":[],"hidden":2`, "queues": `"total":0`, "search?text=js": `"items":[]`} {
		if _, body := s.do(t, http.MethodGet, "/api/v1/"+path, "eve", nil); !strings.Contains(body, want) {
			t.Errorf("%s for a user without rights: %s", path, body)
		}
	}
	if r, body := s.do(t, http.MethodGet, "/api/v1/queues/q/workloads", "root", nil); r.StatusCode != http.StatusOK || !strings.Contains(body, "w-00000") {
		t.Errorf("the line for the administrator: %s %s", r.Status, body)
	}
}

// Names that no object has cost no reviews, however many of them a user sends.
func TestNamesOfNothing(t *testing.T) {
	s := startSite(t, teamStore())
	read := func(suffix string) int64 {
		before := s.reviews.Load()
		for _, path := range []string{
			"jobsets?namespace=team", "jobsets?queue=lq", "jobsets?clusterQueue=q", "jobsets/team/team-js", "queues?namespace=team", "queues?under=q", "queues/q",
			"queues/q/workloads?namespace=team", "queues/q/workloads?queue=lq", "search?text=team",
		} {
			s.do(t, http.MethodGet, "/api/v1/"+path+suffix, "eve", nil)
		}
		return s.reviews.Load() - before
	}
	if known := read(""); known == 0 {
		t.Error("names of objects are not reviewed")
	}
	if unknown := read("-no"); unknown != 0 {
		t.Errorf("%d reviews for names that no object has", unknown)
	}
}

// A proxy that impersonates a user shows them nothing: what its own token may see is not what they may see.
func TestImpersonation(t *testing.T) {
	s := startSite(t, teamStore())
	for _, header := range []string{"Impersonate-User", "impersonate-group", "Impersonate-Extra-Scopes", "Impersonate-Uid"} {
		for _, path := range []string{"/", "/app.js", "/api/v1/about", "/api/v1/jobsets", "/api/v1/jobsets/team/team-js", "/api/v1/events"} {
			r, body := s.do(t, http.MethodGet, path, "root", func(r *http.Request) { r.Header[header] = []string{"eve"} })
			if r.StatusCode != http.StatusForbidden || !strings.Contains(body, "the header "+http.CanonicalHeaderKey(header)+" is not supported") {
				t.Errorf("%s with %s: %s %s", path, header, r.Status, body)
			}
		}
	}
}

func TestUserWhoMayNotGetJobSets(t *testing.T) {
	for lacks, want := range map[string][2]bool{"get jobsets": {true, false}, "list jobsets": {false, true}, "list workloads": {false, false}} {
		s := startSite(t, teamStore())
		s.lacks = lacks
		_, list := s.do(t, http.MethodGet, "/api/v1/jobsets", "ada", nil)
		view, _ := s.do(t, http.MethodGet, "/api/v1/jobsets/team/team-js", "ada", nil)
		if got := [2]bool{strings.Contains(list, "team-js"), view.StatusCode == http.StatusOK}; got != want {
			t.Errorf("without %s: in the list and in its view: %v, want %v", lacks, got, want)
		}
	}
}

// A stream ends within a minute after its token was revoked.
func TestStreamEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &site{}
		handler := s.handler(t, teamStore())
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		request := httptest.NewRequestWithContext(ctx, http.MethodGet, "/api/v1/events", http.NoBody)
		request.Header.Set("Authorization", "Bearer ada")
		answer := httptest.NewRecorder()
		time.AfterFunc(90*time.Second, func() { s.isRevoked.Store(true) })
		started := time.Now()
		handler.ServeHTTP(answer, request)
		if took := time.Since(started) - 90*time.Second; took < 0 || took > 30*time.Second {
			t.Errorf("it ends %s after the token was revoked", took)
		}
		body := answer.Body.String()
		if !strings.HasPrefix(body, "event: change\n") || strings.Count(body, "event:") != 2 || !strings.HasSuffix(body, "event: end\ndata: sign in again\n\n") {
			t.Errorf("the stream: %s", body)
		}
	})
}

// A page of a user whose rights are not all known reads its answers again, though the cluster does not change, but at most every 5 seconds.
func TestStreamOfUnknownRights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := teamStore()
		store.Use(func(m *dashboard.Model) {
			for i := range 500 {
				m.Observe(&jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprint("a", i), Name: "js", UID: types.UID(fmt.Sprint("a", i))}})
			}
		})
		handler := (&site{}).handler(t, store)
		ctx, cancel := context.WithCancel(t.Context())
		get := func(path string) *httptest.ResponseRecorder {
			request := httptest.NewRequestWithContext(ctx, http.MethodGet, "/api/v1/"+path, http.NoBody)
			request.Header.Set("Authorization", "Bearer ada")
			answer := httptest.NewRecorder()
			handler.ServeHTTP(answer, request)
			return answer
		}
		for _, after := range []time.Duration{1500 * time.Millisecond, 2500 * time.Millisecond, 3500 * time.Millisecond} {
			time.AfterFunc(after, func() {
				if body := get("about").Body.String(); !strings.Contains(body, "more namespaces are being read") {
					t.Errorf("about: %s", body)
				}
			})
		}
		time.AfterFunc(8500*time.Millisecond, func() {
			if body := get("about").Body.String(); strings.Contains(body, "gaps") {
				t.Errorf("later about: %s", body)
			}
			if body := get("namespaces").Body.String(); !strings.Contains(body, `[{"name":"team","objects":2}]`) {
				t.Errorf("later namespaces: %s", body)
			}
		})
		time.AfterFunc(10500*time.Millisecond, cancel)
		if got := strings.Count(get("events").Body.String(), "event: change"); got != 2 {
			t.Errorf("%d changes, want one at the start and one 5 seconds later", got)
		}
	})
}
