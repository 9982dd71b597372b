package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
)

// A cluster without the kinds is told how each mode gets them, and one with an older Kueue, which serves another version, too.
func TestMissingCRDs(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/apis/jobset.x-k8s.io/v1alpha2" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "jobset.x-k8s.io/v1alpha2", "resources": [{"name": "jobsets"}]}`))
	}))
	defer server.Close()
	for mode, want := range map[configapi.Mode]string{
		configapi.ModeInstead: "workloads.kueue.x-k8s.io: apply config/crd",
		configapi.ModeBeside:  "workloads.kueue.x-k8s.io: install Kueue 0.19 or later",
	} {
		check, err := newCRDCheck(&rest.Config{Host: server.URL}, mode)
		if err != nil {
			t.Fatal(err)
		}
		if err := check.missing(); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "jobsets.") {
			t.Errorf("%s: the error is %v, want %q", mode, err, want)
		}
	}
}
