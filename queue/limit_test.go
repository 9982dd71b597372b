package queue_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tranche-dev/tranche/queue"
)

// limited returns an item with a time limit.
func limited(name, shape string, since, limit int64) queue.Item[string, string] {
	it := item(name, shape, since)
	it.Limit = limit
	return it
}

// A limitWorld admits stages of a shape if some may be, and their limit is not too long. It decides as the engine does, and as one without shapes would.
type limitWorld struct {
	*rapid.T
	line
	waiting map[string]*queue.Element[string, string, string]
	// free is how many of a shape may be admitted, and longest the longest limit with which they may be.
	free    map[string]int
	longest map[string]int64
	told    map[string]string
	reason  string
	checks  int
}

func (w *limitWorld) passes(t *queue.Element[string, string, string]) bool {
	return w.free[t.Shape()] > 0 && t.Item().Limit <= w.longest[t.Shape()]
}

// want returns the stages that have to be admitted: each time the first that passes.
func (w *limitWorld) want() (admitted []string) {
	left := maps.Clone(w.free)
	for name := range w.Ordered(nil) {
		if t := w.waiting[name]; left[t.Shape()] > 0 && w.passes(t) {
			left[t.Shape()]--
			admitted = append(admitted, name)
		}
	}
	return admitted
}

func (w *limitWorld) decide() (admitted []string) {
	for head := w.Next(); head != nil; head = w.Next() {
		shape, checks := head.Shape(), w.checks
		check := func(t *queue.Element[string, string, string]) bool {
			w.checks++
			return w.passes(t)
		}
		switch shortest := head.Shortest(); {
		case check(head):
			w.free[shape]--
			admitted = append(admitted, head.Member)
			w.Remove(head)
			delete(w.waiting, head.Member)
			delete(w.told, head.Member)
		case !head.IsFirst():
			w.OfferFirst(head)
		case w.free[shape] > 0 && shortest.HasShorterLimit(head) && check(shortest):
			w.Offer(head.FirstPassing(check), on(shape, 0))
		default:
			w.Announce(head, w.reason)
			for _, name := range append(w.Park(head, on(shape, 0)), head.Member) {
				w.told[name] = w.reason
			}
		}
		if n := w.checks - checks; n > 2+32 {
			w.Fatalf("%d checks for one stage", n)
		}
	}
	return admitted
}

// TestLimits compares the queue, at random, with one that checks each stage.
func TestLimits(t *testing.T) {
	searches := 0
	rapid.Check(t, func(t *rapid.T) {
		shapes := []string{"a", "b"}
		w := &limitWorld{T: t, line: *newLine(), waiting: map[string]*queue.Element[string, string, string]{}, free: map[string]int{}, longest: map[string]int64{}, told: map[string]string{}}
		limits := rapid.OneOf(rapid.Int64Range(1, 6), rapid.Int64Range(1, 1<<31), rapid.Just[int64](queue.Unlimited))
		for step := range rapid.IntRange(1, 60).Draw(t, "steps") {
			shape := rapid.SampledFrom(shapes).Draw(t, "shape")
			switch rapid.IntRange(0, 5).Draw(t, "event") {
			case 0, 1, 2:
				name := fmt.Sprintf("%02d", step)
				w.waiting[name] = w.Add(limited(name, shape, int64(rapid.IntRange(0, 9).Draw(t, "since")), limits.Draw(t, "limit")))
			case 3:
				if len(w.waiting) > 0 {
					name := rapid.SampledFrom(slices.Sorted(maps.Keys(w.waiting))).Draw(t, "leaves")
					w.Remove(w.waiting[name])
					delete(w.waiting, name)
					delete(w.told, name)
				}
			case 4:
				w.free[shape] = rapid.IntRange(0, 3).Draw(t, "free")
				w.Wake(shape, 0)
			case 5:
				w.longest[shape] = limits.Draw(t, "longest")
				w.Wake(shape, 0)
			}
			w.reason = fmt.Sprint("refused in step ", step/5)
			want, checks := w.want(), w.checks
			if admitted := w.decide(); !slices.Equal(admitted, want) {
				t.Fatalf("step %d admitted %v, want %v", step, admitted, want)
			}
			if w.checks > checks+2 {
				searches++
			}
			for name := range w.waiting {
				if w.told[name] == "" {
					t.Fatalf("%s was not told why it waits", name)
				}
			}
		}
	})
	if searches < 50 {
		t.Errorf("only %d times more than two stages were checked", searches)
	}
}

// TestOfferedUntilWoken wakes a shape of which a later stage is offered: the first is offered again.
func TestOfferedUntilWoken(t *testing.T) {
	p := newLine()
	first := p.Add(limited("first", "big", 1, 50))
	second := p.Add(limited("second", "big", 3, 10))
	p.Add(item("between", "small", 2))
	p.Offer(second, on("due", 0))
	if got := next(p); got != "between" {
		t.Fatalf("next is %q, want the one that comes before what is offered", got)
	}
	p.Wake("due", 0)
	if got := next(p); got != "first" || p.Sleeps("due") {
		t.Errorf("next is %q, and one still sleeps: %t", got, p.Sleeps("due"))
	}
	p.Offer(second, on("due", 0))
	p.Remove(first)
	p.Remove(second)
	if got := next(p); got != "between" || p.Sleeps("due") {
		t.Errorf("next is %q, and one still sleeps: %t", got, p.Sleeps("due"))
	}
}

// TestManyLimits has limits of which each is shorter than all before it: each release costs as many checks as with a few.
func TestManyLimits(t *testing.T) {
	for _, n := range []int64{10, 10_000} {
		p := newLine()
		for i := range n {
			p.Add(limited(fmt.Sprint(i), "big", i, 2*n-i))
		}
		checks := 0
		found := p.Next().FirstPassing(func(t *queue.Element[string, string, string]) bool {
			checks++
			return t.Item().Limit <= n+n/2
		})
		if want := fmt.Sprint(n / 2); found.Member != want || checks > 32 {
			t.Errorf("found %s after %d checks, want %s", found.Member, checks, want)
		}
	}
}
