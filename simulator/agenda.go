package simulator

import (
	"slices"
	"time"
)

// agenda is the event queue of a run. It is ordered by time, and by insertion where times are equal.
type agenda struct {
	events, reports []appointment
}

type appointment struct {
	at time.Duration
	do func()
}

// add plans an event.
func (a *agenda) add(at time.Duration, do func()) { a.events = insert(a.events, appointment{at, do}) }

// addReport plans a report, which runs after all other events of that time.
func (a *agenda) addReport(at time.Duration, do func()) {
	a.reports = insert(a.reports, appointment{at, do})
}

func insert(list []appointment, one appointment) []appointment {
	i := len(list)
	for i > 0 && list[i-1].at > one.at {
		i--
	}
	return slices.Insert(list, i, one)
}

// due removes and returns the next event that should have happened by now, or returns nil.
func (a *agenda) due(now time.Duration) func() { return take(&a.events, now) }

// report removes and returns the next report that should have been made by now, or returns nil.
func (a *agenda) report(now time.Duration) func() { return take(&a.reports, now) }

func take(list *[]appointment, now time.Duration) func() {
	if len(*list) == 0 || (*list)[0].at > now {
		return nil
	}
	first := (*list)[0]
	*list = (*list)[1:]
	return first.do
}

func (a *agenda) isDue(now time.Duration) bool { return len(a.events) > 0 && a.events[0].at <= now }

// next returns the time of the next event or report.
func (a *agenda) next() (time.Duration, bool) {
	switch {
	case len(a.events) == 0 && len(a.reports) == 0:
		return 0, false
	case len(a.events) == 0:
		return a.reports[0].at, true
	case len(a.reports) == 0:
		return a.events[0].at, true
	}
	return min(a.events[0].at, a.reports[0].at), true
}
