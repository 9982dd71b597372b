package dashboard

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	visibilityapi "github.com/tranche-dev/tranche/apis/visibility"
	"github.com/tranche-dev/tranche/cmd/tranche/explain"
	"github.com/tranche-dev/tranche/dashboard"
)

// objectsOf returns a JobSet with one quota Workload in a queue, about which the visibility API has not answered.
func objectsOf(name string) *dashboard.JobSetObjects {
	return &dashboard.JobSetObjects{
		JobSet:       &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name}},
		Workloads:    []*kueue.Workload{{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name + "-train"}}},
		Explanations: map[string]*visibilityapi.Explanation{}, LetIn: map[string]*dashboard.LetIn{}, Gap: "the visibility API does not answer",
	}
}

func TestExplainer(t *testing.T) {
	asked, answers, changed := make(chan string), make(chan error), make(chan struct{})
	taken := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	e := newExplainer(func(_ context.Context, key types.NamespacedName) (*explanation, error) {
		asked <- key.Name
		x := &explanation{&explain.Report{Workloads: []explain.Workload{
			{Name: key.Name + "-train", LetIn: &explain.LetIn{Why: "nothing is missing"}, Explanation: &visibilityapi.Explanation{Message: "waits"}, Note: "may differ"},
		}}, taken}
		return x, <-answers
	}, func() { changed <- struct{}{} })
	shown := func(name string) *dashboard.JobSetObjects {
		objects := objectsOf(name)
		e.add(t.Context(), objects)
		return objects
	}

	if first := shown("a"); first.WithoutSets != "it is being computed" {
		t.Errorf("a page that asks first sees %q", first.WithoutSets)
	}
	if name := <-asked; name != "a" {
		t.Errorf("%q is explained", name)
	}
	shown("a")
	shown("b") // one at a time
	answers <- nil
	<-changed
	now := shown("a")
	if x := now.LetIn["a-train"]; x == nil || x.Why != "nothing is missing" || !x.Taken.Equal(taken) {
		t.Errorf("the page shows %+v", x)
	}
	if now.WithoutSets != "" || now.Gap != "" || now.Explanations["a-train"].Message != "waits" || now.Notes["a-train"] != "may differ" {
		t.Errorf("the page shows %q, %q, %+v and %q", now.WithoutSets, now.Gap, now.Explanations, now.Notes)
	}

	shown("b")
	if name := <-asked; name != "b" { // a is not explained again at once
		t.Errorf("%q is explained", name)
	}
	answers <- errors.New("no rights")
	<-changed
	if failed := shown("b"); !strings.Contains(failed.WithoutSets, "no rights") || failed.Gap == "" {
		t.Errorf("the page shows %q and %q", failed.WithoutSets, failed.Gap)
	}

	gated := objectsOf("c")
	gated.Workloads = nil
	if e.add(t.Context(), gated); gated.WithoutSets != "" {
		t.Errorf("a JobSet without stages in a queue shows %q", gated.WithoutSets)
	}
}
