package takeover

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/admission"
)

// TestNext computes the step of a tree of two ClusterQueues from each state that a manager may find after a crash.
func TestNext(t *testing.T) {
	both := []string{"a", "b"}
	asks := admission.Takeover{ClusterQueues: both, Cohorts: []string{"tree"}}
	with := func(change func(*admission.Takeover)) []admission.Takeover {
		tree := asks
		change(&tree)
		return []admission.Takeover{tree}
	}
	isLed := func(tree *admission.Takeover) { tree.Taken = both }
	isBlocked := func(tree *admission.Takeover) { tree.Obstacles = map[string][]string{"b": {"why"}} }
	lock := func(state string) map[string]string {
		return map[string]string{"queue.a": state, "queue.b": state, "cohort.tree": stateLocked}
	}
	for name, c := range map[string]struct {
		held          map[string]string
		trees         []admission.Takeover
		writing       map[string]bool
		want          map[string]string
		takes, moves  bool
		lost, release []string
	}{
		"Kueue has not seen the hold":    {trees: with(func(tree *admission.Takeover) { tree.Unconfirmed = both }), want: map[string]string{}},
		"Kueue has seen the hold":        {trees: with(func(*admission.Takeover) {}), want: lock(stateLocked), takes: true, moves: true},
		"half a tree":                    {trees: with(isBlocked), want: map[string]string{}},
		"locked, and killed":             {held: lock(stateLocked), trees: with(func(tree *admission.Takeover) { tree.Unconfirmed = both }), want: lock(stateLocked), takes: true, moves: true},
		"taken":                          {held: lock(stateLocked), trees: with(isLed), want: lock(stateLed)},
		"led":                            {held: lock(stateLed), trees: with(isLed), want: lock(stateLed)},
		"the lock was deleted":           {trees: with(isLed), want: lock(stateLed), lost: both, takes: true, moves: true},
		"led, and blocked":               {held: lock(stateLed), trees: with(func(tree *admission.Takeover) { isLed(tree); isBlocked(tree) }), want: lock(stateEnding), lost: both, moves: true},
		"handed back, and still writing": {held: lock(stateLed), writing: map[string]bool{"a": true}, want: map[string]string{"queue.a": stateEnding, "cohort.tree": stateLocked}, moves: true, release: []string{"b"}},
		"handed back":                    {held: lock(stateEnding), want: map[string]string{}, release: both},
	} {
		r := &reconciler{users: map[string]string{}}
		got := r.next(&corev1.ConfigMap{Data: c.held}, c.trees, c.writing)
		if diff := cmp.Diff(c.want, got.data); diff != "" {
			t.Errorf("%s: the lock (-want +got):\n%s", name, diff)
		}
		if (len(got.take) > 0) != c.takes || got.isMoving != c.moves || !cmp.Equal(got.lost, c.lost) || !cmp.Equal(got.released, c.release) {
			t.Errorf("%s: the step is %+v, want takes %t, moves %t, lost %v, released %v", name, got, c.takes, c.moves, c.lost, c.release)
		}
	}
}
