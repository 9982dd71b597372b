package dashboard

import (
	"slices"
	"time"
)

// The kinds of Spans.
const (
	spanWaiting  = "waiting"
	spanReserved = "reserved"
	spanIdle     = "idle"
	spanRunning  = "running"
	spanEvicting = "evicting"
)

// A Span is a time in which a stage did one thing.
type Span struct {
	Kind string    `json:"kind"`
	From time.Time `json:"from"`
	// To is missing if the span lasts.
	To *time.Time `json:"to,omitempty"`
}

// spanMarks are the times at which a hold of quota changed. Zero stands for a time that has not come. NotReady is since when the pods, which were ready,
// have not been ready again.
type spanMarks struct{ Queued, Reserved, Admitted, Ready, NotReady, End time.Time }

// spansBetween returns the spans between marks that are not empty.
func spansBetween(m spanMarks) []Span {
	steps := []Span{{Kind: spanWaiting, From: m.Queued}, {Kind: spanReserved, From: m.Reserved}, {Kind: spanIdle, From: m.Admitted}, {Kind: spanRunning, From: m.Ready}}
	if !m.Ready.IsZero() && m.NotReady.After(m.Ready) {
		steps = append(steps, Span{Kind: spanIdle, From: m.NotReady})
	}
	steps = slices.DeleteFunc(steps, func(s Span) bool { return s.From.IsZero() || !m.End.IsZero() && s.From.After(m.End) })
	var all []Span
	for i, s := range steps {
		switch {
		case i+1 < len(steps):
			s.To = new(steps[i+1].From)
		case !m.End.IsZero():
			s.To = new(m.End)
		}
		if s.To == nil || s.To.After(s.From) {
			all = append(all, s)
		}
	}
	return all
}
