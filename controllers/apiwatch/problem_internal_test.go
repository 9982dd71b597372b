package apiwatch

import (
	"strings"
	"testing"
	"time"

	k8sevents "k8s.io/client-go/tools/events"

	"github.com/tranche-dev/tranche/controllers/events"
)

// TestProblemWatchReports: a problem is reported when it begins and changes, again before its Event has expired, and not after it has ended.
func TestProblemWatchReports(t *testing.T) {
	recorder := k8sevents.NewFakeRecorder(10)
	w := &ProblemWatch{Recorder: recorder}
	begin := time.Date(2026, 1, 2, 15, 0, 0, 0, time.UTC)
	untested, newer := events.KueueUntested("v0.20.0", "v0.19.x"), events.KueueUntested("v0.21.0", "v0.19.x")
	missing, none := events.KueueMissing(), events.Event{}
	for _, step := range []struct {
		after   time.Duration
		problem events.Event
		want    string
	}{
		{0, none, ""},
		{time.Minute, untested, "KueueUntested"},
		{2 * time.Minute, untested, ""},
		{40 * time.Minute, untested, ""},
		{50 * time.Minute, newer, "version v0.21.0"},
		{99 * time.Minute, newer, ""},
		{100 * time.Minute, newer, "version v0.21.0"},
		{101 * time.Minute, missing, "KueueMissing"},
		{102 * time.Minute, none, ""},
		{103 * time.Minute, none, ""},
		{104 * time.Minute, missing, "install config/default"},
	} {
		w.report(step.problem, begin.Add(step.after))
		got := ""
		select {
		case got = <-recorder.Events:
		default:
		}
		if (got == "") != (step.want == "") || !strings.Contains(got, step.want) || got != "" && !strings.HasPrefix(got, "Warning ") {
			t.Errorf("after %s: reported %q, want %q", step.after, got, step.want)
		}
	}
}
