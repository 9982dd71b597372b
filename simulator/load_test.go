package simulator_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tranche-dev/tranche/simulator"
	"github.com/tranche-dev/tranche/simulator/scenario"
)

// TestSnapshotsChangeNothing goes on from a snapshot at each time at which a scenario has something to report: the rest of the run is the same.
func TestSnapshotsChangeNothing(t *testing.T) {
	t.Parallel()
	for _, path := range scenarios(t) {
		t.Run(strings.TrimPrefix(path, "testdata/"), func(t *testing.T) {
			s := parse(t, path)
			if !simulator.IsReloadable(s) {
				return
			}
			want := withoutCrashes(t, s)
			for _, at := range times(want) {
				d, err := time.ParseDuration(at)
				if err != nil {
					t.Fatal(err)
				}
				if why := reloaded(s, d, want); why != "" {
					t.Errorf("a snapshot at %s: %s", at, why)
				}
			}
		})
	}
}

// TestRandomSnapshots does the same with random scenarios at random times.
func TestRandomSnapshots(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lines := slices.DeleteFunc(randomLines(t), func(line string) bool { return strings.HasPrefix(line, "fail-write") })
		text := strings.Join(lines, "")
		want := play(t, text)
		s, err := scenario.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		at := time.Duration(rapid.IntRange(0, 1500).Draw(t, "snapshot")) * time.Second
		if why := reloaded(s, at, want); why != "" {
			t.Fatalf("a snapshot at %s: %s\n%s", at, why, text)
		}
	})
}

// reloaded says how a run differs that goes on from a snapshot, or returns "". What happens at the same time may happen in another order.
func reloaded(s *scenario.Scenario, at time.Duration, want string) string {
	lines, problems, err := simulator.RunReloaded(s, at)
	if err != nil {
		return err.Error()
	}
	if len(problems) > 0 {
		return strings.Join(problems, "\n")
	}
	if lines == nil {
		return ""
	}
	got := timeline(&simulator.Result{Lines: lines})
	if diff := scenario.Diff(inOrder(want), inOrder(got)); diff != "" {
		return "-want +got\n" + diff
	}
	return ""
}

func inOrder(timeline string) string {
	lines := strings.SplitAfter(timeline, "\n")
	slices.Sort(lines)
	return strings.Join(lines, "")
}
