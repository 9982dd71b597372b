package admission

import (
	"container/heap"
	"time"
)

// timers is a heap of the stages that back off, ordered by the time at which they may be pending again. Each stage is in it once.
type timers []*stage //nolint:recvcheck // heap.Interface asks for both

func (a timers) Len() int           { return len(a) }
func (a timers) Less(i, j int) bool { return a[i].timer.at.Before(a[j].timer.at) }

func (a timers) Swap(i, j int) {
	a[i], a[j] = a[j], a[i]
	a[i].timer.index, a[j].timer.index = i, j
}

func (a *timers) Push(x any) {
	if s, ok := x.(*stage); ok {
		s.timer.index = len(*a)
		*a = append(*a, s)
	}
}

func (a *timers) Pop() any {
	last := len(*a) - 1
	popped := (*a)[last]
	(*a)[last] = nil
	*a = (*a)[:last]
	return popped
}

// A timer is the time at which a stage may be pending again, and the index of the stage in timers. The zero value means none.
type timer struct {
	at    time.Time
	index int
}

// setTimer sets the timer of a stage to its requeueAt, or removes it if that time has passed.
func (e *Engine) setTimer(s *stage) {
	if s.timer.at.Equal(s.requeueAt) {
		return
	}
	e.dropTimer(s)
	if s.requeueAt.After(e.now) {
		s.timer.at = s.requeueAt
		heap.Push(&e.timers, s)
	}
}

func (e *Engine) dropTimer(s *stage) {
	if !s.timer.at.IsZero() {
		heap.Remove(&e.timers, s.timer.index)
		s.timer = timer{}
	}
}

// fireTimers updates the stages whose back-off has expired.
func (e *Engine) fireTimers() {
	for len(e.timers) > 0 && !e.timers[0].timer.at.After(e.now) {
		s := e.timers[0]
		e.dropTimer(s)
		e.refresh(s)
	}
}

// Advance sets the time of the Engine without a decision: stages whose back-off has expired by now wait again.
func (e *Engine) Advance(now time.Time) {
	if now.After(e.now) {
		e.now = now
		e.fireTimers()
	}
}

// NextTime returns the time at which Decide has to be called again even if nothing is observed before.
func (e *Engine) NextTime() (at time.Time, ok bool) {
	if len(e.timers) > 0 {
		at, ok = e.timers[0].timer.at, true
	}
	if e.decay != nil && (!ok || e.nextSample.Before(at)) {
		at, ok = e.nextSample, true
	}
	return at, ok
}
