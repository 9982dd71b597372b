// Package timeline holds virtual time, the events that are planned for it, and the transcript of a run.
package timeline

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// defaultStart is the time at which virtual time begins unless a Timeline has another. Its date has no meaning.
func defaultStart() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }

// A Timeline is the time of one run: what has happened, and what is planned.
type Timeline struct {
	// Begin is the time at which virtual time begins. If it is zero, that is a fixed date.
	Begin time.Time
	// Now is virtual time since the start.
	Now    time.Duration
	Events EventQueue
	// IsSilent is true if the run has no transcript and no hash.
	IsSilent bool
	// Lines are the transcript, and Violations its lines that report broken invariants.
	Lines, Violations []string
	// Problem is the first error that occurred while time passed.
	Problem error
	// details are the decisions in full, which have to be the same in each run.
	details strings.Builder
}

// Time returns the current time.
func (t *Timeline) Time() time.Time { return t.Beginning().Add(t.Now) }

// Beginning returns the time at which virtual time begins.
func (t *Timeline) Beginning() time.Time {
	if t.Begin.IsZero() {
		return defaultStart()
	}
	return t.Begin
}

// Fail ends the run with an error.
func (t *Timeline) Fail(err error) {
	if t.Problem == nil {
		t.Problem = err
	}
}

// Log writes a line of the transcript.
func (t *Timeline) Log(format string, args ...any) {
	if !t.IsSilent {
		t.Lines = append(t.Lines, t.line(format, args...))
	}
}

func (t *Timeline) line(format string, args ...any) string {
	return Clock(t.Now) + " " + fmt.Sprintf(format, args...)
}

// ReportViolation reports that an invariant does not hold.
func (t *Timeline) ReportViolation(format string, args ...any) {
	line := t.line("violation "+format, args...)
	t.Lines, t.Violations = append(t.Lines, line), append(t.Violations, line)
}

// Detail adds text to the hash, but not to the transcript.
func (t *Timeline) Detail(format string, args ...any) {
	if !t.IsSilent {
		fmt.Fprintf(&t.details, format+"\n", args...)
	}
}

// Object adds all fields of an object to the hash.
func (t *Timeline) Object(o any) {
	if t.IsSilent {
		return
	}
	text, err := json.Marshal(o)
	t.Detail("%s %v", text, err)
}

// Sum returns the hash of the transcript and all details.
func (t *Timeline) Sum() string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(strings.Join(t.Lines, "\n") + t.details.String()))
	return fmt.Sprintf("%08x", h.Sum32())
}

// Clock formats a time as a scenario does: 0m, 90s as 1m30s, 1h.
func Clock(d time.Duration) string {
	if d == 0 {
		return "0m"
	}
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// Timestamp returns the current time in the precision of objects: in whole seconds.
func (t *Timeline) Timestamp() metav1.Time { return metav1.NewTime(t.Time().Truncate(time.Second)) }
