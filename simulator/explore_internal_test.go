package simulator

import (
	"flag"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/simulator/scenario"
)

var isLarge = flag.Bool("explore", false, "explore large worlds too, which takes minutes")

// TestExploreWorlds visits every state of small worlds: two JobSets that compete, and one kind of adverse event. With the flag explore it visits
// larger worlds, too.
func TestExploreWorlds(t *testing.T) {
	worlds := slices.Concat(smallWorlds(), streamWorlds())
	if *isLarge {
		worlds = slices.Concat(worlds, laggingWorlds(), gangWorlds(), largeWorlds())
	}
	for _, w := range worlds {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			exploreWorld(t, w)
		})
	}
}

// TestExploreFindsDeadlock shows that the exploration finds a run that cannot end, and that it prints the shortest.
func TestExploreFindsDeadlock(t *testing.T) {
	text := "config stage-admission=Greedy\nqueue ml gpu=3\nsubmit a queue=ml stages=ps(gpu=1)=Ready=>train(gpu=2) success=train\n"
	late := "submit b queue=ml stages=ps(gpu=1)=Ready=>train(gpu=2) success=train"
	e, err := explore(&world{name: "two JobSets that need each other's quota", text: text, later: []string{late}, servers: []string{"ps"}})
	if err != nil {
		t.Fatal(err)
	}
	want := "# I3: from here the run cannot end\nconfig reservation.after=Never\n" + text + late + "\n"
	if diff := cmp.Diff(want, e.counterexample()); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// TestExploreFindsStarvation shows that the exploration finds a run in which small jobs overtake a large JobSet without end.
func TestExploreFindsStarvation(t *testing.T) {
	for _, w := range streamWorlds() {
		w.reserveAfter = apis.Never
		e, err := explore(w)
		if err != nil {
			t.Fatal(err)
		}
		if want := "I3: from here the run may come back to this state without an end:\n"; !strings.HasPrefix(e.problem, want) {
			t.Errorf("%s: the problem is %q, want one that begins with %q", w.name, e.problem, want)
		}
	}
}

// exploreWorld reports the shortest run that breaks an invariant, or that can no longer end.
func exploreWorld(t *testing.T, w *world) {
	t.Helper()
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	begin := time.Now() //nolint:forbidigo // the duration is printed, and decides nothing
	e, err := explore(w)
	if err != nil {
		t.Fatal(err)
	}
	took := time.Since(begin) //nolint:forbidigo // see above
	t.Logf("%d states, %d moves, depth %d, %s", len(e.parents), e.moves, slices.Max(e.depths), took.Round(time.Millisecond))
	if e.problem != "" {
		t.Fatalf("after %d moves:\n%s", e.depths[e.at], e.counterexample())
	}
	if !w.steps && len(w.stream) == 0 {
		replay(t, e)
	}
}

// replay runs the scenario that the exploration prints for the last state in which the controllers are idle. It must lead to that state.
func replay(t *testing.T, e *exploration) {
	t.Helper()
	text := e.world.story() + e.script(e.last)
	script, err := scenario.Parse(text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	s := newSimulation()
	if _, err := s.run(script, nil); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if got := s.state(); got != e.lastState {
		t.Errorf("the scenario leads to another state: -want +got\n%s\n%s", scenario.Diff(e.lastState, got), text)
	}
}
