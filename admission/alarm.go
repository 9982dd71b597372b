package admission

import (
	"container/heap"
	"time"
)

// alarms is a heap of the stages that back off, ordered by the time at which they may be pending again. Each stage is in it once.
type alarms []*stage //nolint:recvcheck // heap.Interface asks for both

func (a alarms) Len() int           { return len(a) }
func (a alarms) Less(i, j int) bool { return a[i].alarm.at.Before(a[j].alarm.at) }

func (a alarms) Swap(i, j int) {
	a[i], a[j] = a[j], a[i]
	a[i].alarm.index, a[j].alarm.index = i, j
}

func (a *alarms) Push(x any) {
	if s, ok := x.(*stage); ok {
		s.alarm.index = len(*a)
		*a = append(*a, s)
	}
}

func (a *alarms) Pop() any {
	last := len(*a) - 1
	popped := (*a)[last]
	(*a)[last] = nil
	*a = (*a)[:last]
	return popped
}

// An alarm is the time at which a stage may be pending again, and the index of the stage in alarms. The zero value means none.
type alarm struct {
	at    time.Time
	index int
}

// setAlarm sets the alarm of a stage to its requeueAt, or removes it if that time has passed.
func (e *Engine) setAlarm(s *stage) {
	if s.alarm.at.Equal(s.requeueAt) {
		return
	}
	e.dropAlarm(s)
	if s.requeueAt.After(e.now) {
		s.alarm.at = s.requeueAt
		heap.Push(&e.alarms, s)
	}
}

func (e *Engine) dropAlarm(s *stage) {
	if !s.alarm.at.IsZero() {
		heap.Remove(&e.alarms, s.alarm.index)
		s.alarm = alarm{}
	}
}

// ring updates the stages whose back-off has expired.
func (e *Engine) ring() {
	for len(e.alarms) > 0 && !e.alarms[0].alarm.at.After(e.now) {
		s := e.alarms[0]
		e.dropAlarm(s)
		e.account(s)
	}
}

// Advance sets the time of the Engine without a decision: stages whose back-off has expired by now wait again.
func (e *Engine) Advance(now time.Time) {
	if now.After(e.now) {
		e.now = now
		e.ring()
	}
}

// NextTime returns the time at which Decide has to be called again even if nothing is observed before.
func (e *Engine) NextTime() (at time.Time, ok bool) {
	if len(e.alarms) > 0 {
		at, ok = e.alarms[0].alarm.at, true
	}
	if e.decay != nil && (!ok || e.nextSample.Before(at)) {
		at, ok = e.nextSample, true
	}
	return at, ok
}
