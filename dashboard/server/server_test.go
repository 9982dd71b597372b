package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/dashboard"
	"github.com/tranche-dev/tranche/dashboard/server"
)

// start serves a Store on loopback, after a change of the configuration, and returns the URL.
func start(t *testing.T, store *server.Store, change func(c *server.Config)) string {
	t.Helper()
	config := &server.Config{
		Store: store, Page: fstest.MapFS{"index.html": {Data: []byte("<!doctype html>the page")}},
		About: func() server.About { return server.About{Version: "v1", IsSynced: true} },
		JobSet: func(_ context.Context, key types.NamespacedName) (*dashboard.JobSetObjects, error) {
			if key.Name != "js" {
				return nil, apierrors.NewNotFound(jobset.Resource("jobsets"), key.Name)
			}
			return &dashboard.JobSetObjects{JobSet: &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}}, nil
		},
	}
	if change != nil {
		change(config)
	}
	s := httptest.NewServer(server.New(config))
	t.Cleanup(s.Close)
	return s.URL
}

// get returns the status, the body and the headers of an answer.
func get(t *testing.T, url string) (status int, body string, header http.Header) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close() //nolint:errcheck // it was only read
	data, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(data), response.Header
}

// pendingStore has quota Workloads that wait in one ClusterQueue.
func pendingStore(count int) *server.Store {
	store := server.NewStore()
	store.Use(func(m *dashboard.Model) {
		m.Observe(&kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "q"}})
		m.Observe(&kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "lq"}, Spec: kueue.LocalQueueSpec{ClusterQueue: "q"}})
		for i := range count {
			m.Observe(&kueue.Workload{
				ObjectMeta: metav1.ObjectMeta{
					Namespace: "team", Name: fmt.Sprintf("w-%05d", i), UID: types.UID(fmt.Sprint(i)), CreationTimestamp: metav1.NewTime(time.Unix(int64(i), 0)),
				},
				Spec: kueue.WorkloadSpec{QueueName: "lq"},
			})
		}
	})
	return store
}

// The page shows a snapshot as of the time when it was taken.
func TestSnapshot(t *testing.T) {
	taken := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	url := start(t, pendingStore(1), func(c *server.Config) {
		c.Now = func() time.Time { return taken }
		c.About = func() server.About { return server.About{TakenAt: taken, IsSynced: true} }
	})
	for path, want := range map[string]string{
		"about": `"takenAt":"2026-03-01T12:00:00Z"`, "queues/q": fmt.Sprintf(`"times":[%d]`, taken.Unix()), "jobsets/team/js": `"now":"2026-03-01T12:00:00Z"`,
	} {
		if status, body, _ := get(t, url+"/api/v1/"+path); status != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s: status %d, %s, want %s", path, status, body, want)
		}
	}
}

// A browser gets pages of ten thousand pending quota Workloads, never all.
func TestTenThousandPending(t *testing.T) {
	const count = 10_000
	url := start(t, pendingStore(count), nil)
	for offset, want := range map[int]int{0: 50, 4970: 50, 9970: 30, 20_000: 0} {
		status, body, _ := get(t, fmt.Sprintf("%s/api/v1/queues/q/workloads?offset=%d", url, offset))
		var page dashboard.Page[dashboard.WorkloadRow]
		if err := json.Unmarshal([]byte(body), &page); err != nil || status != http.StatusOK {
			t.Fatalf("status %d, %v: %s", status, err, body)
		}
		if page.Total != count || len(page.Items) != want || want > 0 && (*page.Items[0].Position != offset || page.Items[0].Name != fmt.Sprintf("w-%05d", offset)) {
			t.Errorf("at %d: total %d, %d items", offset, page.Total, len(page.Items))
		}
		if len(body) > 64<<10 {
			t.Errorf("at %d: the page has %d bytes", offset, len(body))
		}
	}
}

func TestAnswers(t *testing.T) {
	long := strings.Repeat("x", 10_000)
	url := start(t, pendingStore(1), nil)
	for path, want := range map[string]struct {
		status int
		part   string
	}{
		"/":                                                {http.StatusOK, "the page"},
		"/missing.js":                                      {http.StatusNotFound, ""},
		"/api/v1/about":                                    {http.StatusOK, `"version":"v1","synced":true,"overview":true,`},
		"/api/v1/queues":                                   {http.StatusOK, `"name":"q"`},
		"/api/v1/queues?state=pending":                     {http.StatusOK, `"total":0`},
		"/api/v1/queues?state=wrong":                       {http.StatusBadRequest, `state is \"wrong\": it must be one of`},
		"/api/v1/queues?limit=201":                         {http.StatusBadRequest, `limit is \"201\": it must be a number from 0 to 200`},
		"/api/v1/queues?offset=-1":                         {http.StatusBadRequest, "offset is"},
		"/api/v1/queues?offset=x":                          {http.StatusBadRequest, "offset is"},
		"/api/v1/queues/q":                                 {http.StatusOK, `"states":{"Pending":1}`},
		"/api/v1/queues/none":                              {http.StatusNotFound, `clusterqueues.kueue.x-k8s.io \"none\" not found`},
		"/api/v1/queues/none/workloads":                    {http.StatusNotFound, "not found"},
		"/api/v1/queues/q%2Fworkloads":                     {http.StatusNotFound, `\"q/workloads\" not found`},
		"/api/v1/queues/%3Cscript%3E":                      {http.StatusNotFound, `\"\u003cscript\u003e\" not found`},
		"/api/v1/jobsets/te%2Fam/js":                       {http.StatusNotFound, "not found"},
		"/api/v1/queues/q/workloads":                       {http.StatusOK, `"name":"w-00000"`},
		"/api/v1/queues/q/workloads?list=wrong":            {http.StatusBadRequest, "list is"},
		"/api/v1/queues/q/workloads?state=wrong":           {http.StatusBadRequest, "state is"},
		"/api/v1/jobsets":                                  {http.StatusOK, `"items":[]`},
		"/api/v1/jobsets?text=" + strings.Repeat("x", 254): {http.StatusBadRequest, "text has 254 characters: at most 253 are allowed"},
		"/api/v1/jobsets?state=" + long:                    {http.StatusBadRequest, "state has 10000 characters"},
		"/api/v1/jobsets?offset=" + long:                   {http.StatusBadRequest, "offset has 10000 characters"},
		"/api/v1/jobsets?" + long + "=1":                   {http.StatusBadRequest, `xxx\" is not a parameter of this path`},
		"/api/v1/jobsets?state=waiting":                    {http.StatusBadRequest, `state is \"waiting\": it must be one of`},
		"/api/v1/jobsets?order=age":                        {http.StatusBadRequest, `\"order\" is not a parameter of this path: it must be one of [\"namespace\"`},
		"/api/v1/jobsets?sort=-age":                        {http.StatusOK, `"items":[]`},
		"/api/v1/jobsets?sort=":                            {http.StatusOK, `"items":[]`},
		"/api/v1/jobsets?sort=priority":                    {http.StatusBadRequest, `sort is \"priority\": it must be one of [\"namespace\" \"-namespace\" \"name\"`},
		"/api/v1/jobsets?sort=--age":                       {http.StatusBadRequest, `sort is \"--age\"`},
		"/api/v1/jobsets?namespace=a&namespace=b":          {http.StatusBadRequest, "namespace is given 2 times"},
		"/api/v1/jobsets?text=%zz":                         {http.StatusBadRequest, `the parameters cannot be read: invalid URL escape \"%zz\"`},
		"/api/v1/jobsets?limit=-1":                         {http.StatusBadRequest, "limit is"},
		"/api/v1/jobsets?offset=99999999999999999999":      {http.StatusBadRequest, "offset is"},
		"/api/v1/namespaces":                               {http.StatusOK, `{"total":1,"offset":0,"items":[{"name":"team","objects":1}]}`},
		"/api/v1/namespaces?text=none":                     {http.StatusOK, `{"total":0,"offset":0,"items":[]}`},
		"/api/v1/namespaces?limit=1000":                    {http.StatusBadRequest, "limit is"},
		"/api/v1/jobsets/team/js":                          {http.StatusOK, `"name":"js"`},
		"/api/v1/jobsets/team/none":                        {http.StatusNotFound, "not found"},
		"/api/v1/overview":                                 {http.StatusOK, `"workloads":{"Pending":1}`},
		"/api/v1/localqueues":                              {http.StatusOK, `"items":[{"namespace":"team","name":"lq","clusterQueue":"q","pending":1,"holding":0}]`},
		"/api/v1/localqueues?queue=lq":                     {http.StatusBadRequest, `\"queue\" is not a parameter of this path`},
		"/api/v1/localqueues/team/lq":                      {http.StatusOK, `"name":"lq"`},
		"/api/v1/localqueues/team/none":                    {http.StatusNotFound, `localqueues.kueue.x-k8s.io \"none\" not found`},
		"/api/v1/localqueues/team/lq/workloads":            {http.StatusOK, `"position":0,"positionInLocalQueue":0`},
		"/api/v1/localqueues/team/lq/workloads?list=other": {http.StatusBadRequest, "list is"},
		"/api/v1/localqueues/team/none/workloads":          {http.StatusNotFound, "not found"},
		"/api/v1/search?text=Q":                            {http.StatusOK, `"kind":"ClusterQueue"`},
		"/api/v1/search?name=q":                            {http.StatusBadRequest, `\"name\" is not a parameter of this path: it must be one of [\"text\"]`},
		"/api/v1/none":                                     {http.StatusNotFound, "/api/v1/none is not served"},
	} {
		t.Run(path[:min(len(path), 80)], func(t *testing.T) {
			status, body, header := get(t, url+path)
			if contentType := header.Get("Content-Type"); strings.HasPrefix(path, "/api/") && contentType != "application/json; charset=utf-8" {
				t.Errorf("Content-Type is %q", contentType)
			}
			if status >= http.StatusBadRequest && len(body) > 1000 {
				t.Errorf("an error has %d bytes", len(body))
			}
			if status != want.status || !strings.Contains(body, want.part) {
				t.Errorf("status %d, want %d with %q: %s", status, want.status, want.part, body)
			}
			for name, value := range map[string]string{
				"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "X-Frame-Options": "DENY",
			} {
				if got := header.Get(name); got != value {
					t.Errorf("%s is %q, want %q", name, got, value)
				}
			}
			policy := header.Get("Content-Security-Policy")
			for _, part := range []string{"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'"} {
				if !strings.Contains(policy, part) || strings.Contains(policy, "unsafe") {
					t.Errorf("the policy is %q", policy)
				}
			}
		})
	}
}

// The token moves from the URL to a cookie.
func TestToken(t *testing.T) {
	url := start(t, pendingStore(0), func(c *server.Config) { c.Token, c.Cookie = "secret", "dashboard" })
	do := func(path string, cookies ...*http.Cookie) *http.Response {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		for _, cookie := range cookies {
			request.AddCookie(cookie)
		}
		response, err := http.DefaultTransport.RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		if err := response.Body.Close(); err != nil {
			t.Fatal(err)
		}
		return response
	}
	for _, path := range []string{"/", "/?token=wrong", "/api/v1/about", "/api/v1/events"} {
		if r := do(path, &http.Cookie{Name: "dashboard", Value: "wrong"}); r.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s: %s", path, r.Status)
		}
	}
	r := do("//elsewhere.example.com/?token=secret")
	if r.StatusCode != http.StatusSeeOther || r.Header.Get("Location") != "/" || len(r.Cookies()) != 1 {
		t.Fatalf("%s to %q with %v", r.Status, r.Header.Get("Location"), r.Cookies())
	}
	if cookie := r.Cookies()[0]; !cookie.HttpOnly || cookie.SameSite != http.SameSiteStrictMode {
		t.Errorf("the cookie is %v", cookie)
	}
	// A page of another server on the same host may have set a cookie of the same name.
	if r := do("/api/v1/about", &http.Cookie{Name: "dashboard", Value: "wrong"}, r.Cookies()[0]); r.StatusCode != http.StatusOK {
		t.Errorf("with the cookie: %s", r.Status)
	}
}

// However often the Model changes, a stream has at most one event a second.
func TestEvents(t *testing.T) {
	store := pendingStore(0)
	url := start(t, store, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/api/v1/events", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close() //nolint:errcheck // it was only read
	go func() {
		for i := 0; ctx.Err() == nil; i++ {
			store.Use(func(m *dashboard.Model) {
				m.Observe(&kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("q", i%10)}})
			})
		}
	}()
	events := 0
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "data: ") {
			events++
		}
	}
	if err := lines.Err(); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the stream ends with %v", err)
	}
	if events < 1 || events > 3 {
		t.Errorf("%d events in 2.5 seconds", events)
	}
}
