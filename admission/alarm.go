package admission

import (
	"container/heap"
	"time"
)

// alarms has the stages that may join their line again at some time, each once.
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

// An alarm says when to look at a stage, and where that stands among alarms. Its zero value is none.
type alarm struct {
	at    time.Time
	index int
}

// setAlarm makes sure that a stage that must wait until some time is looked at then, and not before.
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

// dropAlarm takes the alarm of a stage away, if there is one.
func (e *Engine) dropAlarm(s *stage) {
	if !s.alarm.at.IsZero() {
		heap.Remove(&e.alarms, s.alarm.index)
		s.alarm = alarm{}
	}
}

// ring looks at the stages whose time has come.
func (e *Engine) ring() {
	for len(e.alarms) > 0 && !e.alarms[0].alarm.at.After(e.now) {
		s := e.alarms[0]
		e.dropAlarm(s)
		e.account(s)
	}
}

// Advance tells the Engine the time where nothing is decided: stages whose back-off is over by now wait again.
func (e *Engine) Advance(now time.Time) {
	if now.After(e.now) {
		e.now = now
		e.ring()
	}
}

// NextTime returns when Decide has to be called again even if nothing is observed before.
func (e *Engine) NextTime() (at time.Time, ok bool) {
	if len(e.alarms) > 0 {
		at, ok = e.alarms[0].alarm.at, true
	}
	if e.decay != nil && (!ok || e.nextSample.Before(at)) {
		at, ok = e.nextSample, true
	}
	return at, ok
}
