package podgang

import (
	"context"
	"testing"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/lifecycle/podgroup"
)

// A labelled client has one namespace with some labels, and nothing in it.
type labelled struct {
	client.Client
	labels map[string]string
}

func (c labelled) Get(_ context.Context, _ client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	object.SetLabels(c.labels)
	return nil
}

func (c labelled) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

// TestLeave: the memory of a gang is deleted when its namespace is no longer managed.
func TestLeave(t *testing.T) {
	a, b := podgroup.Ref{Kind: podgroup.Lightweight, Namespace: "ml", Name: "a"}, podgroup.Ref{Kind: podgroup.Lightweight, Namespace: "ml", Name: "b"}
	r := &Reconciler{
		client: labelled{labels: map[string]string{"team": "other"}}, gangMemo: map[podgroup.Ref]*gangMemo{}, watchers: map[podgroup.Ref]sets.Set[podgroup.Ref]{},
		config: Config{Namespaces: labels.SelectorFromSet(labels.Set{"team": "ours"})},
	}
	r.watch(a, []podgroup.Ref{b})
	result, err := r.Reconcile(t.Context(), requestOf(a))
	if err != nil || !result.IsZero() || len(r.gangMemo)+len(r.watchers) > 0 {
		t.Errorf("%+v, error %v, memory %v, watchers %v; want nothing", result, err, r.gangMemo, r.watchers)
	}
}

// TestFollow: the end of each plan is reported once.
func TestFollow(t *testing.T) {
	ref := podgroup.Ref{Kind: podgroup.Lightweight, Namespace: "ml", Name: "a"}
	r := &Reconciler{gangMemo: map[podgroup.Ref]*gangMemo{}}
	for _, c := range []struct{ plan, wantEnded types.UID }{{"", ""}, {"1", ""}, {"1", ""}, {"2", "1"}, {"", "2"}, {"", ""}} {
		if ended := r.follow(ref, c.plan); ended != c.wantEnded {
			t.Errorf("with plan %q, %q has ended, want %q", c.plan, ended, c.wantEnded)
		}
	}
}
