package watched

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

const oneWorkload = `{"apiVersion":"kueue.x-k8s.io/v1beta2","kind":"Workload","metadata":{"name":"w","resourceVersion":"8"}}`

// newSource returns a source of quota Workloads from a server.
func newSource(t *testing.T, answer http.HandlerFunc) *source {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	d := newDecoder(newScheme(t), kinds()[0], nil)
	api, err := d.client(&rest.Config{Host: server.URL}, server.Client())
	if err != nil {
		t.Fatal(err)
	}
	return &source{api, d}
}

// TestLists: a list has all pages, whatever page an informer asks for: at first, after a watch has failed, and after a page has expired.
func TestLists(t *testing.T) {
	var asked []string
	s := newSource(t, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Method+" "+r.URL.String()+" "+r.Header.Get("Accept-Encoding"))
		next := ""
		if len(asked) < 3 {
			next = fmt.Sprintf(`,"continue":"page-%d","remainingItemCount":%d`, len(asked), 3-len(asked))
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprint(w, `{"metadata":{"resourceVersion":"9"`+next+`},"items":[`+oneWorkload+`]}`)
	})
	const first = "GET /apis/kueue.x-k8s.io/v1beta2/workloads?"
	want := []string{first + "limit=10000 identity", first + "continue=page-1&limit=10000 identity", first + "continue=page-2&limit=10000 identity"}
	for _, options := range []metav1.ListOptions{
		{ResourceVersion: "0", Limit: 500, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan}, {ResourceVersion: "7"}, {}, {Limit: 500, Continue: "next"},
	} {
		asked = nil
		all, _, err := pager.New(pager.SimplePageFunc(func(options metav1.ListOptions) (runtime.Object, error) {
			return s.list(t.Context(), options)
		})).ListWithAlloc(t.Context(), options)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, asked); diff != "" {
			t.Errorf("%v: -want +got\n%s", options, diff)
		}
		items, err := meta.ExtractListWithAlloc(all)
		if err != nil || len(items) != 3 || items[0].(*kueue.Workload).Name != "w" {
			t.Errorf("%v: an informer finds %v, %v", options, items, err)
		}
		if list, err := meta.ListAccessor(all); err != nil || list.GetResourceVersion() != "9" || list.GetContinue() != "" {
			t.Errorf("%v: got %v, %v", options, list, err)
		}
	}
}

// TestExpiredPage: of what changes while it is listed, nothing is returned.
func TestExpiredPage(t *testing.T) {
	s := newSource(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Query().Get("continue") == "" {
			_, _ = fmt.Fprint(w, `{"metadata":{"resourceVersion":"9","continue":"next"},"items":[`+oneWorkload+`]}`)
			return
		}
		w.WriteHeader(http.StatusGone)
		_, _ = fmt.Fprint(w, `{"apiVersion":"v1","kind":"Status","status":"Failure","reason":"Expired","code":410}`)
	})
	all, _, err := pager.New(pager.SimplePageFunc(func(options metav1.ListOptions) (runtime.Object, error) {
		return s.list(t.Context(), options)
	})).ListWithAlloc(t.Context(), metav1.ListOptions{})
	if !apierrors.IsResourceExpired(err) {
		t.Errorf("got %v, %v", all, err)
	}
}

// TestRefusedList: an informer distinguishes why a list is refused.
func TestRefusedList(t *testing.T) {
	s := newSource(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusGone)
		_, _ = fmt.Fprint(w, `{"apiVersion":"v1","kind":"Status","status":"Failure","reason":"Expired","code":410}`)
	})
	if _, err := s.list(t.Context(), metav1.ListOptions{}); !apierrors.IsResourceExpired(err) {
		t.Errorf("got %v", err)
	}
	if _, err := s.watch(t.Context(), metav1.ListOptions{}); !apierrors.IsResourceExpired(err) {
		t.Errorf("got %v from a watch", err)
	}
}

// TestWatches: a watch has bookmarks, and its events have objects.
func TestWatches(t *testing.T) {
	var asked string
	s := newSource(t, func(w http.ResponseWriter, r *http.Request) {
		asked = r.URL.RawQuery
		w.Header().Set("Content-Type", "application/json;stream=watch")
		_, _ = fmt.Fprintln(w, `{"type":"ADDED","object":`+oneWorkload+`}`)
	})
	w, err := s.watch(t.Context(), metav1.ListOptions{ResourceVersion: "7"})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if asked != "allowWatchBookmarks=true&resourceVersion=7&watch=true" {
		t.Errorf("asked for %s", asked)
	}
	event := <-w.ResultChan()
	if found, is := event.Object.(*kueue.Workload); event.Type != watch.Added || !is || found.ResourceVersion != "8" {
		t.Errorf("got %v", event)
	}
}

// TestNewCache: informers of the two kinds receive objects by this package, and those of others do not.
func TestNewCache(t *testing.T) {
	asked := make(chan string, 100)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- path.Base(r.URL.Path) + "?" + r.URL.RawQuery
		if r.URL.Query().Get("watch") != "" {
			<-r.Context().Done()
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprint(w, `{"metadata":{"resourceVersion":"9"},"items":[`+oneWorkload+`]}`)
	}))
	defer server.CloseClientConnections()
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, k := range kinds() {
		mapper.Add(k.gvk, meta.RESTScopeNamespace)
	}
	mapper.Add(kueue.SchemeGroupVersion.WithKind("ClusterQueue"), meta.RESTScopeRoot)
	options := cache.Options{Scheme: newScheme(t), Mapper: mapper, HTTPClient: server.Client(), DefaultTransform: func(o any) (any, error) {
		o.(metav1.Object).SetLabels(map[string]string{"is": "transformed"})
		return o, nil
	}}
	c, err := NewCache(&rest.Config{Host: server.URL}, options)
	if err != nil {
		t.Fatal(err)
	}
	inform := func(object client.Object) {
		t.Helper()
		if _, err := c.GetInformer(t.Context(), object, cache.BlockUntilSynced(false)); err != nil {
			t.Fatal(err)
		}
	}
	inform(&kueue.Workload{})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = c.Start(ctx) })
	defer running.Wait()
	defer cancel()
	if !c.WaitForCacheSync(ctx) {
		t.Fatal("the cache has not been filled")
	}
	var all kueue.WorkloadList
	if err := c.List(ctx, &all); err != nil || len(all.Items) != 1 || all.Items[0].Labels["is"] != "transformed" {
		t.Errorf("the cache has %v, %v", all.Items, err)
	}
	if request := <-asked; request != "workloads?limit=10000" {
		t.Errorf("asked for %s", request)
	}
	inform(&kueue.ClusterQueue{})
	request := <-asked
	for strings.HasPrefix(request, "workloads?") {
		request = <-asked
	}
	if strings.Contains(request, "limit=10000") {
		t.Errorf("asked for %s", request)
	}
}

// TestNewCacheRefuses: what the source would ignore.
func TestNewCacheRefuses(t *testing.T) {
	scheme := newScheme(t)
	for name, options := range map[string]cache.Options{
		"no client":   {Scheme: scheme},
		"a selector":  {Scheme: scheme, HTTPClient: http.DefaultClient, DefaultLabelSelector: labels.Nothing()},
		"a namespace": {Scheme: scheme, HTTPClient: http.DefaultClient, DefaultNamespaces: map[string]cache.Config{"ml": {}}},
		"a kind":      {Scheme: scheme, HTTPClient: http.DefaultClient, ByObject: map[client.Object]cache.ByObject{&kueue.Workload{}: {}}},
	} {
		if _, err := NewCache(&rest.Config{Host: "localhost"}, options); err == nil || !strings.HasPrefix(err.Error(), "watched.NewCache ") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
