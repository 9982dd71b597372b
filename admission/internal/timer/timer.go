// Package timer keeps the times at which something has to be considered again.
package timer

import (
	"time"

	"github.com/tranche-dev/tranche/queue/ranking"
)

// A Timer is a time that a Set has for an owner.
type Timer[O any] struct {
	at    time.Time
	owner O
	index int
}

// Precedes compares the times.
func (t *Timer[O]) Precedes(other *Timer[O]) bool { return t.at.Before(other.at) }

// Place is for package ranking.
func (t *Timer[O]) Place() *int { return &t.index }

// At returns the time of a timer, which may be nil.
func (t *Timer[O]) At() (at time.Time, isSet bool) {
	if t == nil {
		return time.Time{}, false
	}
	return t.at, true
}

// A Set has at most one timer for each owner, which keeps it where the functions can change it. The zero Set has none.
type Set[O any] struct{ timers ranking.Ranking[*Timer[O]] }

// Put sets the timer of an owner, and replaces an earlier one. The zero time only removes that.
func (s *Set[O]) Put(timer **Timer[O], at time.Time, owner O) {
	if *timer != nil && (*timer).at.Equal(at) {
		return
	}
	s.Drop(timer)
	if !at.IsZero() {
		*timer = &Timer[O]{at: at, owner: owner}
		s.timers.Push(*timer)
	}
}

// Drop removes the timer of an owner, if it has one.
func (s *Set[O]) Drop(timer **Timer[O]) {
	if *timer != nil {
		s.timers.Drop(*timer)
		*timer = nil
	}
}

// First returns the owner of the earliest timer.
func (s *Set[O]) First() (at time.Time, owner O, ok bool) {
	if s.timers.Len() == 0 {
		return time.Time{}, owner, false
	}
	t := s.timers.First()
	return t.at, t.owner, true
}

// Len returns how many timers there are.
func (s *Set[O]) Len() int { return s.timers.Len() }
