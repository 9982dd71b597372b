package server_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/dashboard"
	"github.com/tranche-dev/tranche/dashboard/access"
	"github.com/tranche-dev/tranche/dashboard/detail"
	"github.com/tranche-dev/tranche/dashboard/server"
)

// A shelf has the objects that the site reads: no pods and no Events.
type shelf struct{ detail.Fixed }

func newShelf(t *testing.T) *shelf {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, batchv1.AddToScheme, kueue.AddToScheme, jobsetapi.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	s := &shelf{detail.Fixed{Scheme: scheme}}
	s.Objects = append(s.Objects, &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "q"}, Spec: kueue.ClusterQueueSpec{CohortName: "research"}})
	for _, namespace := range []string{"team", "other"} {
		js := &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: namespace + "-js", UID: "uid"}}
		js.Spec.ReplicatedJobs = []jobsetapi.ReplicatedJob{{ReplicatedJob: jobset.ReplicatedJob{Name: "train"}}}
		lq := &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "lq"}, Spec: kueue.LocalQueueSpec{ClusterQueue: "q"}}
		s.Objects = append(s.Objects, js, lq)
	}
	return s
}

func (s *shelf) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

func (s *shelf) GroupVersionKindFor(object runtime.Object) (schema.GroupVersionKind, error) {
	return apiutil.GVKForObject(object, s.Scheme)
}

func (s *shelf) RESTMapper() apimeta.RESTMapper {
	mapper := apimeta.NewDefaultRESTMapper(nil)
	for _, kind := range []string{"ClusterQueue", "LocalQueue"} {
		mapper.Add(kueue.SchemeGroupVersion.WithKind(kind), apimeta.RESTScopeNamespace)
	}
	mapper.Add(jobset.GroupVersion.WithKind("JobSet"), apimeta.RESTScopeNamespace)
	for _, gvk := range []schema.GroupVersionKind{corev1.SchemeGroupVersion.WithKind("Pod"), corev1.SchemeGroupVersion.WithKind("Event"), batchv1.SchemeGroupVersion.WithKind("Job")} {
		mapper.Add(gvk, apimeta.RESTScopeNamespace)
	}
	return mapper
}

// detailStore has what the shelf has.
func detailStore(t *testing.T) *server.Store {
	t.Helper()
	store := teamStore()
	store.Use(func(m *dashboard.Model) {
		for _, object := range newShelf(t).Objects {
			m.Observe(object)
		}
	})
	return store
}

// A user reads the objects that the API server lets them get. Others look as if they did not exist.
func TestDetailsOfOneNamespace(t *testing.T) {
	s := startSite(t, detailStore(t))
	for path, want := range map[string]struct{ ada, root string }{
		"queues/q/settings":                         {ada: "not found", root: `"field":"spec.cohortName","value":"research"`},
		"queues/none/settings":                      {ada: "not found", root: "not found"},
		"localqueues/team/lq/settings":              {ada: `"yaml":"apiVersion: kueue.x-k8s.io/v1beta2\nkind: LocalQueue`, root: "spec.clusterQueue"},
		"localqueues/other/lq/settings":             {ada: "not found", root: "spec.clusterQueue"},
		"localqueues/team/none/settings":            {ada: "not found", root: "not found"},
		"localqueues/team/%2E%2E/settings":          {ada: "not found", root: "not found"},
		"jobsets/team/team-js/yaml":                 {ada: "kind: JobSet", root: "kind: JobSet"},
		"jobsets/other/other-js/yaml":               {ada: "not found", root: "kind: JobSet"},
		"jobsets/team/team-js/pods":                 {ada: `"total":0,"offset":0,"items":[],"counts":[]}`, root: `"total":0`},
		"jobsets/other/other-js/pods":               {ada: "not found", root: `"total":0`},
		"jobsets/team/team-js/pods?stage=none":      {ada: `stage is \"none\": JobSet team/team-js has no such stage`, root: "no such stage"},
		"jobsets/team/team-js/pods?namespace=other": {ada: `\"namespace\" is not a parameter of this path`, root: "is not a parameter"},
		"jobsets/team/team-js/events":               {ada: `"total":0,"offset":0,"items":[],"types":{}}`, root: `"total":0`},
		"jobsets/team/team-js/events?type=Other":    {ada: `type is \"Other\": it must be one of`, root: "it must be one of"},
		"jobsets/other/other-js/events":             {ada: "not found", root: `"total":0`},
	} {
		for user, part := range map[string]string{"ada": want.ada, "root": want.root, "eve": "not found"} {
			if user == "eve" && strings.Contains(path, "?") {
				continue // parameters are checked first
			}
			if _, body := s.do(t, http.MethodGet, "/api/v1/"+path, user, nil); !strings.Contains(body, part) {
				t.Errorf("%s for %s: %s", path, user, body)
			}
		}
	}
}

// Without the right to pods or Events the answer names it.
func TestDetailsWithoutARight(t *testing.T) {
	for lacks, want := range map[string]map[string]string{
		"list pods":       {"pods": `Pods are not shown: user \"ada\" may not list pods in namespace \"team\"; the ClusterRole tranche-dashboard-viewer allows it`, "events": `"types":{}}`},
		"list jobs":       {"pods": `may not list jobs.batch`, "events": `"types":{}}`},
		"list events":     {"pods": `"counts":[]}`, "events": `Events about a JobSet are not shown: user \"ada\" may not list events`},
		"get jobsets":     {"pods": "not found", "events": "not found", "yaml": "not found"},
		"list workloads":  {"pods": "not found", "events": "not found", "yaml": "not found"},
		"get localqueues": {"settings": "not found"},
	} {
		s := startSite(t, detailStore(t))
		s.lacks = lacks
		for path, part := range want {
			of := map[bool]string{true: "localqueues/team/lq/", false: "jobsets/team/team-js/"}[path == "settings"]
			if _, body := s.do(t, http.MethodGet, "/api/v1/"+of+path, "ada", nil); !strings.Contains(body, part) {
				t.Errorf("%s without %s: %s", path, lacks, body)
			}
		}
	}
}

// Names that no object has cost no reviews.
func TestDetailsOfNothing(t *testing.T) {
	s := startSite(t, detailStore(t))
	s.do(t, http.MethodGet, "/api/v1/queues/q/settings", "eve", nil)
	before := s.reviews.Load()
	for _, path := range []string{"queues/none/settings", "localqueues/team/none/settings", "jobsets/team/none/yaml", "jobsets/team/none/pods", "jobsets/team/none/events"} {
		s.do(t, http.MethodGet, "/api/v1/"+path, "eve", nil)
	}
	if n := s.reviews.Load() - before; n != 0 {
		t.Errorf("%d reviews", n)
	}
}

// With a kubeconfig the API server decides, and its errors are the answer.
func TestDetailsOfAKubeconfig(t *testing.T) {
	url := start(t, detailStore(t), func(c *server.Config) {
		c.Reader = func(*access.Session) client.Reader { return &newShelf(t).Fixed }
	})
	for path, want := range map[string]string{
		"queues/q/settings": "cohortName: research", "queues/none/settings": `\"none\" not found`, "jobsets/team/team-js/pods": "Pods are not shown: a snapshot has none",
		"jobsets/team/team-js/events": "a snapshot has none",
	} {
		if _, body, _ := get(t, url+"/api/v1/"+path); !strings.Contains(body, want) {
			t.Errorf("%s: %s", path, body)
		}
	}
}
