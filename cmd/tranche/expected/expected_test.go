package expected_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tranche-dev/tranche/cmd/tranche/expected"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstatus"
	"github.com/tranche-dev/tranche/simulator"
	"github.com/tranche-dev/tranche/snapshot"
	"github.com/tranche-dev/tranche/test/sample"
)

func TestWritten(t *testing.T) {
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for want, e := range map[string]jobsetstatus.ExpectedStart{
		"by 2026-01-01 12:00:00Z": {Certainty: jobsetstatus.StartBy, By: noon},
		"about 2026-01-01 12:00:00Z, from the last 3 runs of a; by 2026-01-01 13:00:00Z if all run to their limits": {
			Certainty: jobsetstatus.StartBy, By: noon.Add(time.Hour), About: noon, Basis: "from the last 3 runs of a",
		},
		"about 2026-01-01 12:00:00Z, from the last 3 runs of a":   {Certainty: jobsetstatus.StartAbout, About: noon, Basis: "from the last 3 runs of a"},
		"unknown: no maximum execution time: Workload ml/endless": {Certainty: jobsetstatus.StartUnknown, Basis: "no maximum execution time: Workload ml/endless"},
		"not predicted: there are too many":                       {Certainty: jobsetstatus.StartNotPredicted, Basis: "there are too many"},
	} {
		if got := expected.Written(&e).Text; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestInterrupted: a start that was not determined is not one after the end of the simulation.
func TestInterrupted(t *testing.T) {
	p := &simulator.Prediction{Until: time.Unix(3600, 0), Interrupted: errors.New("the simulation was stopped after 7 decisions")}
	want := "not predicted: the simulation was stopped after 7 decisions"
	if got := expected.Of(&simulator.Start{}, p).Text; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	known := expected.Of(&simulator.Start{By: time.Unix(60, 0)}, p).Text
	if !strings.HasPrefix(known, "by 1970-01-01 00:01:00Z") {
		t.Errorf("a known start is %q", known)
	}
}

// TestNow predicts the same start from two snapshots, the second one a minute later: the text stays the same.
func TestNow(t *testing.T) {
	s, err := snapshot.ReadStream("queues", strings.NewReader(sample.OneQueue+sample.Pending("first", "2026-01-01T10:10:00Z", "")))
	if err != nil {
		t.Fatal(err)
	}
	for minute := range 2 {
		s.TakenAt = time.Date(2026, 1, 1, 11, minute, 0, 0, time.UTC)
		p, err := simulator.Forecast(s, &simulator.Durations{}, s.TakenAt.Add(24*time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		if text := expected.Now(&p.Starts[0], p).Text; text != "by 2026-01-01 12:00:00Z" {
			t.Errorf("after %d minutes: %s", minute, text)
		}
	}
}
