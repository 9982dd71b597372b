package queue_test

import (
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/queue"
)

func key(name string) types.NamespacedName { return types.NamespacedName{Namespace: "ns", Name: name} }

func item(name, shape string, since int64) queue.Item {
	return queue.Item{Key: key(name), Shape: shape, Position: queue.Position{Since: time.Unix(since, 0), UID: types.UID(name)}}
}

func next(l *queue.Line[string]) string {
	i, ok := l.Next()
	if !ok {
		return ""
	}
	return i.Key.Name
}

func TestPositionOrder(t *testing.T) {
	sorted := []queue.Position{
		{Priority: 2, Since: time.Unix(9, 0), UID: "a"},
		{Priority: 1, Standing: queue.Continuing, Since: time.Unix(8, 0), UID: "b"},
		{Priority: 1, Since: time.Unix(1, 0), UID: "d"},
		{Priority: 1, Since: time.Unix(2, 0), UID: "c"},
		{Priority: 1, Since: time.Unix(2, 0), UID: "e"},
		{Priority: -1, Since: time.Unix(0, 0), UID: "f"},
	}
	for i := range sorted {
		for k := range sorted {
			if got := sorted[i].Compare(sorted[k]); (got < 0) != (i < k) || (got == 0) != (i == k) {
				t.Errorf("Compare(%d, %d) = %d", i, k, got)
			}
		}
	}
}

func TestOneSpeaksForItsShape(t *testing.T) {
	l := queue.NewLine[string]()
	l.Add(item("b", "big", 2))
	l.Add(item("a", "big", 1))
	l.Add(item("c", "small", 3))
	if got := next(l); got != "a" {
		t.Fatalf("next is %q", got)
	}
	if told := l.Park(key("a"), []string{"gpu"}); !slices.Equal(told, []types.NamespacedName{key("a"), key("b")}) {
		t.Errorf("told %v", told)
	}
	if got := next(l); got != "c" {
		t.Errorf("next is %q, b should sleep with a", got)
	}
	l.Remove(key("c"))
	l.Wake("cpu")
	if got := next(l); got != "" {
		t.Errorf("%q is awake, and nobody waits for cpu", got)
	}
	l.Wake("gpu")
	l.Remove(key("a"))
	if got := next(l); got != "b" {
		t.Errorf("next is %q", got)
	}
	if told := l.Park(key("b"), []string{"gpu"}); len(told) != 0 {
		t.Errorf("told again: %v", told)
	}
	l.Add(item("d", "big", 4))
	if told := l.Park(key(next(l)), nil); !slices.Equal(told, []types.NamespacedName{key("d")}) {
		t.Errorf("told %v", told)
	}
	if l.Len() != 2 || !l.Has(key("d")) || l.Has(key("c")) {
		t.Errorf("%d in line", l.Len())
	}
}

func TestStrictLetsOnlyContinuingPass(t *testing.T) {
	l := queue.NewLine[string]()
	l.SetStrategy(queue.Strict)
	l.Add(item("first", "1", 1))
	l.Add(item("second", "2", 2))
	continuing := item("continuing", "3", 3)
	continuing.Standing = queue.Continuing
	l.Block(key("first"), []string{"gpu"})
	second, _ := l.Next()
	if blocker, ok := l.Blocker(second); !ok || blocker.Key != key("first") {
		t.Fatalf("second is held up by %v", blocker)
	}
	l.ParkBehind(key("second"))
	l.Add(continuing)
	if got, _ := l.Next(); got.Key != key("continuing") {
		t.Fatalf("next is %v", got)
	}
	if _, ok := l.Blocker(continuing); ok {
		t.Error("a continuing stage is held up by a new one")
	}
	l.Remove(key("continuing"))
	l.Add(item("zeroth", "0", 0))
	if earlier, _ := l.Next(); earlier.Key != key("zeroth") {
		t.Errorf("next is %v", earlier)
	} else if _, ok := l.Blocker(earlier); ok {
		t.Error("who comes first is held up")
	}
	l.Remove(key("zeroth"))
	if got := next(l); got != "" {
		t.Errorf("%q is awake", got)
	}
	l.Remove(key("first"))
	if got := next(l); got != "second" {
		t.Errorf("next is %q after the blocker has gone", got)
	}
}
