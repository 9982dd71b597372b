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
		agree(t, text)
	})
}

// TestInspectionsAgreeInCohorts does the same where both queues are in one Cohort. Answers about which Unshown warns may differ in what it names. All
// others are those of the engine of the run.
func TestInspectionsAgreeInCohorts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var text strings.Builder
		for _, line := range randomLines(t) {
			switch {
			case strings.HasPrefix(line, "fail-write"):
				continue
			case strings.HasPrefix(line, "queue "):
				line = strings.TrimSuffix(line, "\n") + " cohort=z\n"
				if rapid.Bool().Draw(t, "plain") {
					line = strings.NewReplacer("StrictFIFO", "BestEffortFIFO", "policy=Reserve", "policy=Safe", " within=LowerPriority", "").Replace(line)
				}
			}
			text.WriteString(line)
		}
		agree(t, text.String())
	})
}

// agree takes a snapshot of a scenario at a random time, and compares what it says with what the engine of the run reports.
func agree(t *rapid.T, text string) {
	t.Helper()
	p, err := simulator.Pause(text, time.Duration(rapid.IntRange(0, 1500).Draw(t, "snapshot"))*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range p.Pending() {
		if simulator.Unshown(p.Taken, key) != "" {
			continue
		}
		i, err := simulator.Inspect(p.Taken, key)
		if err != nil {
			t.Fatal(err)
		}
		want, isQueued := p.Why(key)
		got, ok := i.Why(key)
		brief, isListed := i.Summary(key)
		if isListed != ok || ok && (brief.Pending != got.Pending || brief.Reason != got.Reason || brief.Message != got.Message) {
			t.Fatalf("%s: Summary returns %+v, Why %+v\n%s", key, brief, got, text)
		}
		if ok != isQueued {
			t.Fatalf("%s is in a queue: %t, want %t\n%s", key, ok, isQueued, text)
		}
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Fatalf("%s: -live +snapshot\n%s\n%s", key, diff, text)
		}
	}
}
