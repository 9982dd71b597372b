// Package spans has what a stage did over time, as the spans of a Gantt chart.
package spans

import (
	"slices"
	"time"
)

// The kinds of Spans.
const (
	Waiting  = "waiting"
	Reserved = "reserved"
	Idle     = "idle"
	Running  = "running"
	Evicting = "evicting"
)

// A Span is a time in which a stage did one thing.
type Span struct {
	Kind string    `json:"kind"`
	From time.Time `json:"from"`
	// To is missing if the span lasts.
	To *time.Time `json:"to,omitempty"`
}

// Marks are the times at which a hold of quota changed. Zero stands for a time that has not come.
type Marks struct{ Queued, Reserved, Admitted, Ready, End time.Time }

// Between returns the spans between marks that are not empty.
func Between(m Marks) []Span {
	steps := []Span{{Kind: Waiting, From: m.Queued}, {Kind: Reserved, From: m.Reserved}, {Kind: Idle, From: m.Admitted}, {Kind: Running, From: m.Ready}}
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
