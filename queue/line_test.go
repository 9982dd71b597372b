package queue_test

import (
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/queue"
)

type line = queue.Line[string, string, string]

func newLine() *line { return queue.NewLine[string, string, string]() }

func item(name, shape string, since int64) queue.Item[string, string] {
	return queue.Item[string, string]{Member: name, Shape: shape, Position: queue.Position{Since: time.Unix(since, 0), UID: types.UID(name)}}
}

func next(l *line) string {
	t := l.Next()
	if t == nil {
		return ""
	}
	return t.Member
}

func on(topic string, need int64) []queue.Wait[string] {
	return []queue.Wait[string]{{Topic: topic, Need: need}}
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
	l := newLine()
	l.Add(item("b", "big", 2))
	a := l.Add(item("a", "big", 1))
	c := l.Add(item("c", "small", 3))
	if got := next(l); got != "a" {
		t.Fatalf("next is %q", got)
	}
	if told := l.Park(a, on("gpu", 4)); !slices.Equal(told, []string{"a", "b"}) {
		t.Errorf("told %v", told)
	}
	if got := next(l); got != "c" {
		t.Errorf("next is %q, b should sleep with a", got)
	}
	l.Remove(c)
	l.Wake("cpu", 9)
	l.Wake("gpu", 3)
	if got := next(l); got != "" {
		t.Errorf("%q is awake, and nobody can use 9 cpu or 3 gpu", got)
	}
	l.Wake("gpu", 4)
	l.Remove(a)
	if got := next(l); got != "b" {
		t.Errorf("next is %q", got)
	}
	if told := l.Park(l.Next(), on("gpu", 4)); len(told) != 0 {
		t.Errorf("told again: %v", told)
	}
	l.Add(item("d", "big", 4))
	if told := l.Park(l.Next(), nil); !slices.Equal(told, []string{"d"}) {
		t.Errorf("told %v", told)
	}
	if l.Len() != 2 || l.Sleeps("gpu") {
		t.Errorf("%d in line, somebody sleeps on gpu: %v", l.Len(), l.Sleeps("gpu"))
	}
}

// TestNewsAreForAllOfAShape: a refusal that was announced before is reported only to stages that were added since.
func TestNewsAreForAllOfAShape(t *testing.T) {
	l := newLine()
	a := l.Add(item("a", "big", 1))
	l.Add(item("b", "big", 2))
	for _, step := range []struct {
		reason, joins string
		want          []string
	}{
		{"no quota", "", []string{"a", "b"}},
		{"no quota", "", nil},
		{"no quota", "c", []string{"c"}},
		{"stopped", "d", []string{"a", "b", "c", "d"}},
		{"no quota", "", []string{"a", "b", "c", "d"}},
	} {
		if step.joins != "" {
			l.Add(item(step.joins, "big", 3))
		}
		l.WakeAll()
		l.Announce(a, step.reason)
		if told := l.Park(a, nil); !slices.Equal(told, step.want) {
			t.Errorf("told %v of %q, want %v", told, step.reason, step.want)
		}
	}
}

func TestStrictBlocksAllButThoseThatPass(t *testing.T) {
	l := newLine()
	l.SetStrategy(queue.Strict)
	first := l.Add(item("first", "1", 1))
	second := l.Add(item("second", "2", 2))
	late := item("passing", "3", 3)
	late.Passes = true
	l.Block(first, on("gpu", 1))
	if l.Blocker(second) != first {
		t.Fatalf("second is blocked by %v", l.Blocker(second))
	}
	l.ParkBehind(second)
	passing := l.Add(late)
	if l.Next() != passing {
		t.Fatalf("next is %v", next(l))
	}
	if l.Blocker(passing) != nil {
		t.Error("a stage that passes is blocked")
	}
	l.Remove(passing)
	zeroth := l.Add(item("zeroth", "0", 0))
	if l.Next() != zeroth {
		t.Errorf("next is %v", next(l))
	} else if l.Blocker(zeroth) != nil {
		t.Error("a stage in front of the blocker is blocked")
	}
	l.Remove(zeroth)
	if got := next(l); got != "" {
		t.Errorf("%q is awake", got)
	}
	l.Remove(first)
	if got := next(l); got != "second" {
		t.Errorf("next is %q after the blocker has gone", got)
	}
}

// TestStageThatPassesBlocksInItsTurn: a stage that passes the blocker and does not fit becomes the blocker when the blocker is removed.
func TestStageThatPassesBlocksInItsTurn(t *testing.T) {
	l := newLine()
	l.SetStrategy(queue.Strict)
	first := l.Add(item("first", "1", 1))
	passing := item("passing", "2", 2)
	passing.Passes = true
	second, third := l.Add(passing), l.Add(item("third", "3", 3))
	l.Block(first, on("gpu", 4))
	l.Block(second, on("gpu", 2))
	if l.Blocker(third) != first {
		t.Fatalf("third is blocked by %v, want the first", l.Blocker(third))
	}
	l.ParkBehind(third)
	l.Remove(first)
	if l.Next() != second {
		t.Fatalf("next is %q, want the one that passed", next(l))
	}
	l.Block(second, on("gpu", 2))
	if l.Next() != third || l.Blocker(third) != second {
		t.Errorf("next is %q, blocked by %v, want the third behind the second", next(l), l.Blocker(third))
	}
}

func TestLeadComesBeforePosition(t *testing.T) {
	usage := map[string]float64{"light": 1, "heavy": 2}
	l := newLine()
	l.SetLead(func(shape string) float64 { return usage[shape] })
	heavy := l.Add(item("a", "heavy", 1))
	light := l.Add(item("b", "light", 2))
	if l.Next() != light {
		t.Errorf("next is %v", next(l))
	}
	usage["heavy"] = 0
	l.Reorder()
	if l.Next() != heavy {
		t.Errorf("next is %v after the order has changed", next(l))
	}
	l.SetStrategy(queue.Strict)
	l.Block(heavy, nil)
	if l.Blocker(light) != heavy {
		t.Error("light overtakes heavy, which leads")
	}
}

// TestNobodyOvertakesWhoWasABlockerBefore: a stage has replaced another as blocker, and is removed.
func TestNobodyOvertakesWhoWasABlockerBefore(t *testing.T) {
	for name, shape := range map[string]string{"of its shape": "big", "of another shape": "bigger"} {
		t.Run(name, func(t *testing.T) {
			l := newLine()
			l.SetStrategy(queue.Strict)
			second := l.Add(item("second", "big", 2))
			third := l.Add(item("third", "small", 3))
			l.Block(second, on("gpu", 4))
			l.ParkBehind(third)
			first := l.Add(item("first", shape, 1))
			l.Block(first, on("gpu", 4))
			l.Remove(first)
			if l.Next() != second {
				t.Fatalf("next is %q, want the one that was held up", next(l))
			}
			l.Block(second, on("gpu", 4))
			if l.Next() != third || l.Blocker(third) != second {
				t.Errorf("next is %q, want the third, behind the second", next(l))
			}
		})
	}
}

// TestWhoComesFirstNowIsOffered: under Strict, usage has changed the order since a stage was parked behind another.
func TestWhoComesFirstNowIsOffered(t *testing.T) {
	l := newLine()
	usage := map[string]float64{"heavy": 1, "light": 2}
	l.SetStrategy(queue.Strict)
	l.SetLead(func(shape string) float64 { return usage[shape] })
	blocker, behind := l.Add(item("blocker", "heavy", 1)), l.Add(item("behind", "light", 2))
	l.Block(blocker, on("gpu", 8))
	l.ParkBehind(behind)
	l.Reorder()
	if got := next(l); got != "" || !l.Blocks() {
		t.Fatalf("%q is offered behind the blocker", got)
	}
	usage["heavy"] = 3
	l.Reorder()
	if got := next(l); got != "behind" || l.Blocker(behind) != nil {
		t.Errorf("%q is offered, want who comes before the blocker now", got)
	}
}
