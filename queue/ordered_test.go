package queue_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/tranche-dev/tranche/queue"
)

// TestWalkIsTheOrderOfTheLine compares a walk with the order in which stages are offered when all are awake, and the ranks with the walk.
func TestWalkIsTheOrderOfTheLine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newLine()
		leads := map[string]float64{"a": 1, "b": 1, "c": 0}
		if rapid.Bool().Draw(t, "usage counts") {
			p.SetLead(func(shape string) float64 { return leads[shape] })
		}
		elements := map[string]*queue.Element[string, string, string]{}
		for i := range rapid.IntRange(0, 20).Draw(t, "size") {
			name := fmt.Sprintf("%02d", i)
			it := queue.Item[string, string]{Member: name, Shape: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "shape"), Position: queue.Position{
				Priority: int32(rapid.IntRange(0, 2).Draw(t, "priority")),
				Standing: queue.Standing(rapid.IntRange(0, 1).Draw(t, "standing")),
				Since:    time.Unix(int64(rapid.IntRange(0, 3).Draw(t, "since")), 0), UID: types.UID(name),
			}}
			elements[name] = p.Add(it)
		}
		of := rapid.SampledFrom([]func(string) bool{nil, func(shape string) bool { return shape != "b" }}).Draw(t, "of")
		walk := slices.Collect(p.Ordered(of))
		whole := slices.Collect(p.Ordered(nil))
		page := []*queue.Element[string, string, string]{}
		var wantRanks []int
		for i, name := range whole {
			if i > 0 && elements[name].Precedes(elements[whole[i-1]]) {
				t.Fatalf("%s comes after %s in %v", name, whole[i-1], whole)
			}
			if rapid.Bool().Draw(t, "on the page") {
				page = append(page, elements[name])
				before := 0
				for _, other := range walk {
					if elements[other].Precedes(elements[name]) {
						before++
					}
				}
				wantRanks = append(wantRanks, before)
			}
		}
		if got := p.Ranks(page, of); !slices.Equal(got, wantRanks) {
			t.Fatalf("ranks are %v, want %v", got, wantRanks)
		}
		var offered []string
		for p.Next() != nil {
			if of == nil || of(p.Next().Shape()) {
				offered = append(offered, p.Next().Member)
			}
			p.Remove(p.Next())
		}
		if !slices.Equal(walk, offered) {
			t.Fatalf("the walk is %v, offered are %v", walk, offered)
		}
	})
}

// TestWalkStops: a caller that stops after two members gets no more, and the line is unchanged.
func TestWalkStops(t *testing.T) {
	p := newLine()
	for i, name := range []string{"a", "b", "c", "d"} {
		p.Add(item(name, "same", int64(i)))
	}
	var got []string
	for name := range p.Ordered(nil) {
		if got = append(got, name); len(got) == 2 {
			break
		}
	}
	if !slices.Equal(got, []string{"a", "b"}) || next(p) != "a" || p.Len() != 4 {
		t.Errorf("got %v; next is %s of %d", got, next(p), p.Len())
	}
}

// TestContenders: a stage that is parked for a reason of its own is passed over, but not the blocker, nor those behind it.
func TestContenders(t *testing.T) {
	p := newLine()
	p.SetStrategy(queue.Strict)
	elements := map[string]*queue.Element[string, string, string]{}
	for i, name := range []string{"parked", "blocker", "behind", "awake"} {
		elements[name] = p.Add(item(name, name, int64(i)))
	}
	p.Park(elements["parked"], []queue.Wait[string]{{Topic: "quota"}})
	p.Block(elements["blocker"], nil)
	p.ParkBehind(elements["behind"])
	if got := slices.Collect(p.Contenders()); !slices.Equal(got, []string{"blocker", "behind", "awake"}) {
		t.Errorf("got %v", got)
	}
	if p.Wake("quota", 0); !slices.Contains(slices.Collect(p.Contenders()), "parked") {
		t.Error("one that is awake again is passed over")
	}
}
