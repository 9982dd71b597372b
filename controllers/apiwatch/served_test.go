package apiwatch_test

import (
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tranche-dev/tranche/controllers/apiwatch"
)

const version = "scheduling.x-k8s.io/v1alpha1"

// A server serves these resources of the one version; nil means that it does not serve the version, isStale that it does not know whether it does, and isMute
// that it does not answer.
type server struct {
	names           []string
	isStale, isMute bool
}

//nolint:revive // as client-go has it
func (s *server) GroupsAndMaybeResources() (*metav1.APIGroupList, map[schema.GroupVersion]*metav1.APIResourceList, map[schema.GroupVersion]error, error) {
	if s.isMute {
		return nil, nil, nil, errors.New("no answer")
	}
	all, failed := map[schema.GroupVersion]*metav1.APIResourceList{}, map[schema.GroupVersion]error{}
	gv, err := schema.ParseGroupVersion(version)
	switch {
	case err != nil:
		return nil, nil, nil, err
	case s.isStale:
		failed[gv] = errors.New("stale")
	case s.names != nil:
		all[gv] = &metav1.APIResourceList{}
		for _, name := range s.names {
			all[gv].APIResources = append(all[gv].APIResources, metav1.APIResource{Name: name})
		}
	}
	return nil, all, failed, nil
}

// TestCheck: only a difference that is the same in two checks counts as a change.
func TestCheck(t *testing.T) {
	const starts = "the API server serves other resources than when the manager started; the manager exits, and watches them after its restart: " + version
	none, quotas, both := server{}, server{names: []string{"elasticquotas"}}, server{names: []string{"podgroups", "elasticquotas"}}
	turned := server{names: []string{"elasticquotas", "podgroups"}}
	mute, stale := server{isMute: true}, server{isStale: true}
	cases := map[string]struct {
		servers []server
		want    string
	}{
		"never there":               {servers: []server{none, none, none}},
		"always there":              {servers: []server{both, turned, both, turned}},
		"installed":                 {servers: []server{none, both, both}, want: starts + " now has elasticquotas, podgroups, and had nothing"},
		"removed":                   {servers: []server{both, none, none}, want: starts + " now has nothing, and had elasticquotas, podgroups"},
		"not there for a moment":    {servers: []server{both, none, both, none, both}},
		"installed one by one":      {servers: []server{none, quotas, both}},
		"all of it, one by one":     {servers: []server{none, quotas, both, both}, want: starts + " now has elasticquotas, podgroups, and had nothing"},
		"does not answer":           {servers: []server{both, mute, mute, mute}},
		"does not know":             {servers: []server{both, stale, stale, stale}},
		"does not answer meanwhile": {servers: []server{both, none, mute, none}, want: starts + " now has nothing, and had elasticquotas, podgroups"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			now := c.servers[0]
			w := apiwatch.New(&now)
			if _, err := w.ServerResourcesForGroupVersion(version); err != nil && !apierrors.IsNotFound(err) {
				t.Fatal(err)
			}
			var got string
			for i, s := range c.servers[1:] {
				now = s
				if err := w.Check(); err != nil {
					got = err.Error()
					if i < len(c.servers)-2 {
						t.Fatalf("too early, after %d looks: %v", i+1, err)
					}
				}
			}
			if got != c.want {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
		})
	}
}

// TestFailedRequestIsNotRemembered: only requested versions count, with their first answers, and a failed request is reported to the caller.
func TestFailedRequestIsNotRemembered(t *testing.T) {
	s := &server{isMute: true}
	w := apiwatch.New(s)
	if _, err := w.ServerResourcesForGroupVersion(version); err == nil {
		t.Error("no error where there is no answer")
	}
	*s = server{isStale: true}
	if _, err := w.ServerResourcesForGroupVersion(version); err == nil {
		t.Error("no error where the version is not known")
	}
	*s = server{}
	for range 2 {
		if err := w.Check(); err != nil {
			t.Errorf("nothing has been answered, and %v", err)
		}
	}
	for _, s.names = range [][]string{{"podgroups"}, {"podgroups", "podgroups/status"}} {
		if _, err := w.ServerResourcesForGroupVersion(version); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Check(), w.Check()); err == nil {
		t.Error("the first answer no longer holds, and Check returned no error")
	}
}
