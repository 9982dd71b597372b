package collect

import (
	"errors"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/snapshot"
)

// A target notes what it gets.
type target struct{ calls []string }

func (*target) Reduce(_ *Source, object snapshot.Object) snapshot.Object { return object }

func (t *target) Observe(_ *Source, object snapshot.Object) {
	t.calls = append(t.calls, "observe "+object.GetName())
}

func (t *target) Forget(_ *Source, object snapshot.Object) {
	t.calls = append(t.calls, "forget "+object.GetName())
}

func (t *target) Retain(_ *Source, uids map[types.NamespacedName]types.UID) {
	for key, uid := range uids {
		t.calls = append(t.calls, "retain "+key.Name+" "+string(uid))
	}
}

// TestFollowerState: a missing right is a Gap with a cure, an API server that does not answer makes what was read stale, and both end. Changes are told once.
func TestFollowerState(t *testing.T) {
	changes := 0
	f := &Follower{Role: "reader", Describe: func(_ *snapshot.Kind, gap *snapshot.Gap) { gap.Reason += " (described)" }, Changed: func() { changes++ }}
	s := &Source{Kind: snapshot.Kinds()[0], Namespace: "ml"}
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "namespaces"}, "", errors.New("no"))
	for _, step := range []struct {
		name    string
		err     error
		gap     string
		isStale bool
		changes int
	}{
		{"forbidden", forbidden, "namespaces in namespace ml: no (described); ask for the right to list and watch namespaces in namespace ml, " +
			"for example by a RoleBinding to the ClusterRole reader", false, 1},
		{"still forbidden", forbidden, "namespaces in namespace ml: no (described); ask for the right to list and watch namespaces in namespace ml, " +
			"for example by a RoleBinding to the ClusterRole reader", false, 1},
		{"no answer", errors.New("refused"), "namespaces in namespace ml: out of date, because the API server does not answer: refused", true, 2},
		{"read again", nil, "", false, 3},
	} {
		f.note(s, step.err)
		state, gap := f.State(), ""
		if len(state.Gaps) > 0 {
			gap = state.Gaps[0].String()
		}
		if gap != step.gap || state.IsStale != step.isStale || changes != step.changes {
			t.Errorf("%s: gap %q, stale %t, told %d times; want %q, %t, %d", step.name, gap, state.IsStale, changes, step.gap, step.isStale, step.changes)
		}
	}
}

// TestStore: a list is observed, and then what else there was is not retained. The first list makes the Source synced.
func TestStore(t *testing.T) {
	to := &target{}
	f := &Follower{Target: to, Changed: func() {}}
	s := &Source{Kind: snapshot.Kinds()[0]}
	f.unsynced = map[*Source]struct{}{s: {}}
	from, object := &store{f, s}, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "u"}}
	for _, err := range []error{from.Replace([]any{object}, ""), from.Update(object), from.Delete(object)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{"observe a", "retain a u", "observe a", "forget a"}; !slices.Equal(to.calls, want) {
		t.Errorf("calls %q, want %q", to.calls, want)
	}
	if !f.State().IsSynced {
		t.Error("it is not synced after its list")
	}
	if from.Add("no object") == nil {
		t.Error("a text is taken for an object")
	}
}
