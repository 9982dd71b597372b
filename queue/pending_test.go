package queue_test

import (
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/queue"
)

type line = queue.Pending[string, string, string]

func newLine() *line { return queue.NewPending[string, string, string]() }

func item(name, shape string, since int64) queue.Item[string, string] {
	return queue.Item[string, string]{Member: name, Shape: shape, Position: queue.Position{Since: time.Unix(since, 0), UID: types.UID(name)}}
}

func next(p *line) string {
	t := p.Next()
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

func TestOneStagePerDemandIsOffered(t *testing.T) {
	p := newLine()
	p.Add(item("b", "big", 2))
	a := p.Add(item("a", "big", 1))
	c := p.Add(item("c", "small", 3))
	if got := next(p); got != "a" {
		t.Fatalf("next is %q", got)
	}
	if told := p.Park(a, on("gpu", 4)); !slices.Equal(told, []string{"a", "b"}) {
		t.Errorf("told %v", told)
	}
	if got := next(p); got != "c" {
		t.Errorf("next is %q, b should sleep with a", got)
	}
	p.Remove(c)
	p.Wake("cpu", 9)
	p.Wake("gpu", 3)
	if got := next(p); got != "" {
		t.Errorf("%q is awake, and no stage can use 9 cpu or 3 gpu", got)
	}
	p.Wake("gpu", 4)
	p.Remove(a)
	if got := next(p); got != "b" {
		t.Errorf("next is %q", got)
	}
	if told := p.Park(p.Next(), on("gpu", 4)); len(told) != 0 {
		t.Errorf("told again: %v", told)
	}
	p.Add(item("d", "big", 4))
	if told := p.Park(p.Next(), nil); !slices.Equal(told, []string{"d"}) {
		t.Errorf("told %v", told)
	}
	if p.Len() != 2 || p.Sleeps("gpu") {
		t.Errorf("%d pending, a stage is parked on gpu: %v", p.Len(), p.Sleeps("gpu"))
	}
}

// TestRefusalIsAnnouncedOncePerStage: a refusal that was announced before is reported only to stages that were added since.
func TestRefusalIsAnnouncedOncePerStage(t *testing.T) {
	p := newLine()
	a := p.Add(item("a", "big", 1))
	p.Add(item("b", "big", 2))
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
			p.Add(item(step.joins, "big", 3))
		}
		p.WakeAll()
		p.Announce(a, step.reason)
		if told := p.Park(a, nil); !slices.Equal(told, step.want) {
			t.Errorf("told %v of %q, want %v", told, step.reason, step.want)
		}
	}
}

func TestStrictBlocksAllButThoseThatPass(t *testing.T) {
	p := newLine()
	p.SetStrategy(queue.Strict)
	first := p.Add(item("first", "1", 1))
	second := p.Add(item("second", "2", 2))
	late := item("passing", "3", 3)
	late.Passes = true
	p.Block(first, on("gpu", 1))
	if p.Blocker(second) != first {
		t.Fatalf("second is blocked by %v", p.Blocker(second))
	}
	p.ParkBehind(second)
	passing := p.Add(late)
	if p.Next() != passing {
		t.Fatalf("next is %v", next(p))
	}
	if p.Blocker(passing) != nil {
		t.Error("a stage that passes is blocked")
	}
	p.Remove(passing)
	zeroth := p.Add(item("zeroth", "0", 0))
	if p.Next() != zeroth {
		t.Errorf("next is %v", next(p))
	} else if p.Blocker(zeroth) != nil {
		t.Error("a stage in front of the blocker is blocked")
	}
	p.Remove(zeroth)
	if got := next(p); got != "" {
		t.Errorf("%q is awake", got)
	}
	p.Remove(first)
	if got := next(p); got != "second" {
		t.Errorf("next is %q after the blocker has gone", got)
	}
}

// TestStageThatPassesBlocksInItsTurn: a stage that passes the blocker and does not fit becomes the blocker when the blocker is removed.
func TestStageThatPassesBlocksInItsTurn(t *testing.T) {
	p := newLine()
	p.SetStrategy(queue.Strict)
	first := p.Add(item("first", "1", 1))
	passing := item("passing", "2", 2)
	passing.Passes = true
	second, third := p.Add(passing), p.Add(item("third", "3", 3))
	p.Block(first, on("gpu", 4))
	p.Block(second, on("gpu", 2))
	if p.Blocker(third) != first {
		t.Fatalf("third is blocked by %v, want the first", p.Blocker(third))
	}
	p.ParkBehind(third)
	p.Remove(first)
	if p.Next() != second {
		t.Fatalf("next is %q, want the one that passed", next(p))
	}
	p.Block(second, on("gpu", 2))
	if p.Next() != third || p.Blocker(third) != second {
		t.Errorf("next is %q, blocked by %v, want the third behind the second", next(p), p.Blocker(third))
	}
}

func TestLeadComesBeforePosition(t *testing.T) {
	usage := map[string]float64{"light": 1, "heavy": 2}
	p := newLine()
	p.SetLead(func(shape string) float64 { return usage[shape] })
	heavy := p.Add(item("a", "heavy", 1))
	light := p.Add(item("b", "light", 2))
	if p.Next() != light {
		t.Errorf("next is %v", next(p))
	}
	usage["heavy"] = 0
	p.Reorder(nil)
	if p.Next() != heavy {
		t.Errorf("next is %v after the order has changed", next(p))
	}
	p.SetStrategy(queue.Strict)
	p.Block(heavy, nil)
	if p.Blocker(light) != heavy {
		t.Error("light overtakes heavy, which leads")
	}
}

// TestNoStageOvertakesAFormerBlocker: a stage has replaced another as blocker, and is removed.
func TestNoStageOvertakesAFormerBlocker(t *testing.T) {
	for name, shape := range map[string]string{"of its shape": "big", "of another shape": "bigger"} {
		t.Run(name, func(t *testing.T) {
			p := newLine()
			p.SetStrategy(queue.Strict)
			second := p.Add(item("second", "big", 2))
			third := p.Add(item("third", "small", 3))
			p.Block(second, on("gpu", 4))
			p.ParkBehind(third)
			first := p.Add(item("first", shape, 1))
			p.Block(first, on("gpu", 4))
			p.Remove(first)
			if p.Next() != second {
				t.Fatalf("next is %q, want the one that was held up", next(p))
			}
			p.Block(second, on("gpu", 4))
			if p.Next() != third || p.Blocker(third) != second {
				t.Errorf("next is %q, want the third, behind the second", next(p))
			}
		})
	}
}

// TestReorderWakesWhoNowPrecedes: usage has changed which stages have precedence over one that was refused.
func TestReorderWakesWhoNowPrecedes(t *testing.T) {
	usage := map[string]float64{"light": 1, "heavy": 2, "heavier": 3}
	p := newLine()
	p.SetLead(func(shape string) float64 { return usage[shape] })
	first, due, last := p.Add(item("a", "light", 1)), p.Add(item("b", "heavy", 2)), p.Add(item("c", "heavier", 3))
	for _, one := range []*queue.Element[string, string, string]{first, due, last} {
		p.Park(one, on("gpu", 8))
	}
	if p.Reorder(due) || p.Next() != nil {
		t.Errorf("%q is offered, although the order is the same", next(p))
	}
	usage["heavier"] = 0
	if p.Reorder(nil) || p.Next() != nil {
		t.Errorf("%q is offered, although no stage is due", next(p))
	}
	usage["heavier"] = 3
	p.Reorder(nil)
	usage["heavier"] = 0
	if !p.Reorder(due) || p.Next() != last {
		t.Errorf("%q is offered, want the one that now has precedence", next(p))
	}
}

// TestFirstAfterReorderIsOffered: under Strict, usage has changed the order since a stage was parked behind another.
func TestFirstAfterReorderIsOffered(t *testing.T) {
	p := newLine()
	usage := map[string]float64{"heavy": 1, "light": 2}
	p.SetStrategy(queue.Strict)
	p.SetLead(func(shape string) float64 { return usage[shape] })
	blocker, behind := p.Add(item("blocker", "heavy", 1)), p.Add(item("behind", "light", 2))
	p.Block(blocker, on("gpu", 8))
	p.ParkBehind(behind)
	p.Reorder(nil)
	if got := next(p); got != "" || !p.Blocks() {
		t.Fatalf("%q is offered behind the blocker", got)
	}
	usage["heavy"] = 3
	p.Reorder(nil)
	if got := next(p); got != "behind" || p.Blocker(behind) != nil {
		t.Errorf("%q is offered, want who comes before the blocker now", got)
	}
}
