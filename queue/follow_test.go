package queue_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tranche-dev/tranche/queue"
)

// follow lets a stage follow, and returns the leader and who was told.
func follow(p *line, t *queue.Element[string, string, string]) (leader string, told []string) {
	first, told := p.Follow(t)
	if first == nil {
		return "", told
	}
	return first.Member, told
}

func TestFollow(t *testing.T) {
	p := newLine()
	a := p.Add(item("a", "big/5", 1))
	b := p.Add(item("b", "big/7", 2))
	c := p.Add(item("c", "big/3", 3))
	p.Add(item("d", "big/7", 4))
	e := p.Add(item("e", "big/4", 5))
	other := p.Add(item("other", "small/9", 6))
	if leader, _ := follow(p, a); leader != "" {
		t.Errorf("the first follows %q", leader)
	}
	p.Announce(a, "full")
	p.Park(a, on("gpu", 4))
	if leader, told := follow(p, b); leader != "a" || !slices.Equal(told, []string{"b", "d"}) {
		t.Errorf("a larger number follows %q, told %v", leader, told)
	}
	if leader, _ := follow(p, c); leader != "" {
		t.Errorf("a smaller number follows %q", leader)
	}
	p.Announce(c, "full")
	p.Park(c, on("gpu", 4))
	if leader, told := follow(p, e); leader != "c" || !slices.Equal(told, []string{"e"}) {
		t.Errorf("it follows %q, told %v; want the one with a smaller number", leader, told)
	}
	if leader, _ := follow(p, other); leader != "" {
		t.Errorf("another kind follows %q", leader)
	}
	p.Park(other, on("gpu", 4))

	// Only leaders wake, and a new reason is told to all.
	p.Wake("gpu", 4)
	if got := next(p); got != "a" {
		t.Fatalf("next is %q", got)
	}
	p.Announce(a, "fuller")
	if told := p.Park(a, on("gpu", 4)); !slices.Equal(told, []string{"a", "b", "d"}) {
		t.Errorf("told %v", told)
	}
	if got := next(p); got != "c" {
		t.Fatalf("next is %q", got)
	}
	p.Park(c, on("gpu", 4))
	if got := next(p); got != "other" {
		t.Fatalf("followers are awake: next is %q", got)
	}
	p.Park(other, on("gpu", 4))

	// Without their leader they are offered again, and one that comes before its leader is.
	p.Remove(a)
	if got := next(p); got != "b" {
		t.Errorf("next is %q", got)
	}
	p.Park(b, on("gpu", 4))
	p.Add(item("f", "big/4", 2))
	if got := next(p); got != "f" {
		t.Errorf("next is %q", got)
	}
}

// TestFollowersOfAFollower: what follows a stage that is offered again, and then follows another one, follows that.
func TestFollowersOfAFollower(t *testing.T) {
	p := newLine()
	b := p.Add(item("b", "big/5", 2))
	c := p.Add(item("c", "big/6", 3))
	p.Announce(b, "full")
	p.Park(b, on("gpu", 4))
	if leader, _ := follow(p, c); leader != "b" {
		t.Fatalf("it follows %q", leader)
	}
	a := p.Add(item("a", "big/4", 1))
	p.Announce(a, "other")
	p.Park(a, on("gpu", 4))
	p.Wake("gpu", 4)
	p.Park(a, on("gpu", 4))
	if leader, told := follow(p, b); leader != "a" || !slices.Equal(told, []string{"b", "c"}) {
		t.Errorf("it follows %q, told %v", leader, told)
	}
	p.Remove(b)
	if got := next(p); got != "" {
		t.Errorf("next is %q", got)
	}
	p.Remove(a)
	if got := next(p); got != "c" {
		t.Errorf("next is %q", got)
	}
}

// TestNoStageFollowsUnderStrict: those behind the blocker are refused because of that.
func TestNoStageFollowsUnderStrict(t *testing.T) {
	p := newLine()
	p.SetStrategy(queue.Strict)
	a, b := p.Add(item("a", "big/1", 1)), p.Add(item("b", "big/2", 2))
	p.Announce(a, "full")
	p.Block(a, on("gpu", 4))
	if leader, _ := follow(p, b); leader != "" {
		t.Errorf("it follows %q", leader)
	}
}

// TestFollowersAreDecidedInTheirTurn compares a queue in which stages follow others with one that checks all stages in order, whenever there is news: the same
// ones are admitted, in the same order, and each of the others has been told why it waits.
func TestFollowersAreDecidedInTheirTurn(t *testing.T) {
	followed := 0
	rapid.Check(t, func(t *rapid.T) {
		p := newLine()
		kinds := []string{"a", "b"}
		type pending struct {
			element *queue.Element[string, string, string]
			kind    string
			number  int
			told    string
		}
		waiting := map[string]*pending{}
		free, most := map[string]int{}, map[string]int{} // how many of a kind may be admitted, and with which numbers
		passes := func(s *pending) bool { return free[s.kind] > 0 && s.number <= most[s.kind] }
		var admitted []string
		decide := func(reason string) {
			for head := p.Next(); head != nil; head = p.Next() {
				s := waiting[head.Member]
				if leader, told := p.Follow(head); leader != nil {
					followed++
					if passes(s) {
						t.Fatalf("%s passes, but follows %s", head.Member, leader.Member)
					}
					for _, name := range told {
						waiting[name].told = waiting[leader.Member].told
					}
					continue
				}
				if passes(s) {
					free[s.kind]--
					admitted = append(admitted, head.Member)
					p.Remove(head)
					delete(waiting, head.Member)
					continue
				}
				p.Announce(head, reason)
				for _, name := range append(p.Park(head, on(s.kind, 0)), head.Member) {
					waiting[name].told = reason
				}
			}
		}
		for step := range rapid.IntRange(1, 40).Draw(t, "steps") {
			kind := rapid.SampledFrom(kinds).Draw(t, "kind")
			switch rapid.IntRange(0, 4).Draw(t, "event") {
			case 0, 1:
				name, number := fmt.Sprintf("%02d", step), rapid.IntRange(0, 5).Draw(t, "number")
				element := p.Add(item(name, fmt.Sprintf("%s/%d", kind, number), int64(rapid.IntRange(0, 9).Draw(t, "since"))))
				waiting[name] = &pending{element: element, kind: kind, number: number}
			case 2:
				if len(waiting) > 0 {
					name := rapid.SampledFrom(slices.Sorted(maps.Keys(waiting))).Draw(t, "leaves")
					p.Remove(waiting[name].element)
					delete(waiting, name)
				}
			case 3:
				free[kind] = rapid.IntRange(0, 3).Draw(t, "free")
				p.Wake(kind, 0)
			case 4:
				most[kind] = rapid.IntRange(-1, 6).Draw(t, "most")
				p.Wake(kind, 0)
			}
			var want []string
			left := map[string]int{"a": free["a"], "b": free["b"]}
			for name := range p.Ordered(nil) {
				if s := waiting[name]; left[s.kind] > 0 && passes(s) {
					left[s.kind]--
					want = append(want, name)
				}
			}
			admitted = nil
			decide(fmt.Sprint("refused in step ", step/5))
			if !slices.Equal(admitted, want) {
				t.Fatalf("step %d admitted %v, want %v", step, admitted, want)
			}
			for name, s := range waiting {
				if s.told == "" {
					t.Fatalf("%s was not told why it waits", name)
				}
			}
		}
	})
	if followed < 100 {
		t.Errorf("only %d stages followed others", followed)
	}
}
