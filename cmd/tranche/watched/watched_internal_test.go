package watched

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
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

// TestLists: what the first list of an informer asks for, and a later one, which goes on where a page has ended.
func TestLists(t *testing.T) {
	var asked string
	s := newSource(t, func(w http.ResponseWriter, r *http.Request) {
		asked = r.Method + " " + r.URL.String() + " " + r.Header.Get("Accept-Encoding")
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprint(w, `{"metadata":{"resourceVersion":"9"},"items":[`+oneWorkload+`]}`)
	})
	const path = "GET /apis/kueue.x-k8s.io/v1beta2/workloads"
	for _, c := range []struct {
		options metav1.ListOptions
		want    string
	}{
		{metav1.ListOptions{ResourceVersion: "0", Limit: 500, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan}, path + " identity"},
		{metav1.ListOptions{Limit: 500, Continue: "next"}, path + "?continue=next&limit=500 identity"},
	} {
		list, err := s.list(t.Context(), c.options)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, asked); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
		items, err := meta.ExtractListWithAlloc(list)
		if err != nil || len(items) != 1 || items[0].(*kueue.Workload).Name != "w" {
			t.Errorf("an informer finds %v, %v", items, err)
		}
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
