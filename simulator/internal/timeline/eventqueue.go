package timeline

import (
	"slices"
	"time"
)

// An EventQueue is the event queue of a run. It is ordered by time, and by insertion where times are equal.
type EventQueue struct {
	// IsHeld is true while no event happens, whatever is due: what is planned meanwhile waits, too.
	IsHeld          bool
	events, reports []timedEvent
}

type timedEvent struct {
	at time.Duration
	do func()
}

// Add plans an event.
func (e *EventQueue) Add(at time.Duration, do func()) {
	e.events = insert(e.events, timedEvent{at, do})
}

// AddReport plans a report, which runs after all other events of that time.
func (e *EventQueue) AddReport(at time.Duration, do func()) {
	e.reports = insert(e.reports, timedEvent{at, do})
}

func insert(list []timedEvent, one timedEvent) []timedEvent {
	i := len(list)
	for i > 0 && list[i-1].at > one.at {
		i--
	}
	return slices.Insert(list, i, one)
}

// Due removes and returns the next event that should have happened by now, or returns nil.
func (e *EventQueue) Due(now time.Duration) func() {
	if e.IsHeld {
		return nil
	}
	return take(&e.events, now)
}

// Report removes and returns the next report that should have been made by now, or returns nil.
func (e *EventQueue) Report(now time.Duration) func() { return take(&e.reports, now) }

func take(list *[]timedEvent, now time.Duration) func() {
	if len(*list) == 0 || (*list)[0].at > now {
		return nil
	}
	first := (*list)[0]
	*list = (*list)[1:]
	return first.do
}

// IsDue reports whether an event should have happened by now.
func (e *EventQueue) IsDue(now time.Duration) bool {
	return !e.IsHeld && len(e.events) > 0 && e.events[0].at <= now
}

// Next returns the time of the next event or report.
func (e *EventQueue) Next() (time.Duration, bool) {
	switch {
	case len(e.events) == 0 && len(e.reports) == 0:
		return 0, false
	case len(e.events) == 0:
		return e.reports[0].at, true
	case len(e.reports) == 0:
		return e.events[0].at, true
	}
	return min(e.events[0].at, e.reports[0].at), true
}
