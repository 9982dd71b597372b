package simulator_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tranche-dev/tranche/simulator"
)

// TestInspectionsAgree compares what a snapshot says about pending quota Workloads of random scenarios with what the engine of the run reports.
func TestInspectionsAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lines := slices.DeleteFunc(randomLines(t), func(line string) bool { return strings.HasPrefix(line, "fail-write") })
		text := strings.Join(lines, "")
		p, err := simulator.Pause(text, time.Duration(rapid.IntRange(0, 1500).Draw(t, "snapshot"))*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range p.Pending() {
			i, err := simulator.Inspect(p.Taken, key)
			if err != nil {
				t.Fatal(err)
			}
			want, isQueued := p.Why(key)
			got, ok := i.Why(key)
			if ok != isQueued {
				t.Fatalf("%s is in a queue: %t, want %t\n%s", key, ok, isQueued, text)
			}
			if diff := gocmp.Diff(want, got); diff != "" {
				t.Fatalf("%s: -live +snapshot\n%s\n%s", key, diff, text)
			}
		}
	})
}
