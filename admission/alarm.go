package admission

import (
	"container/heap"
	"time"
)

// alarms has the stages that may join their line again at some time. An alarm may be out of date: it only says when to look.
type alarms []alarm

type alarm struct {
	at  time.Time
	key StageKey
}

func (a alarms) Len() int           { return len(a) }
func (a alarms) Less(i, j int) bool { return a[i].at.Before(a[j].at) }
func (a alarms) Swap(i, j int)      { a[i], a[j] = a[j], a[i] }

func (a *alarms) Push(x any) {
	if next, ok := x.(alarm); ok {
		*a = append(*a, next)
	}
}

func (a *alarms) Pop() any {
	last := len(*a) - 1
	popped := (*a)[last]
	*a = (*a)[:last]
	return popped
}

// setAlarm makes sure that a stage that must wait until some time is looked at then.
func (e *Engine) setAlarm(s *stage) {
	if s.requeueAt.After(e.now) {
		heap.Push(&e.alarms, alarm{s.requeueAt, s.key})
	}
}

// ring looks at the stages whose time has come.
func (e *Engine) ring() {
	for len(e.alarms) > 0 && !e.alarms[0].at.After(e.now) {
		next, ok := heap.Pop(&e.alarms).(alarm)
		if s := e.stages[next.key]; ok && s != nil {
			e.account(s)
		}
	}
}

// NextTime returns when Decide has to be called again even if nothing is observed before.
func (e *Engine) NextTime() (at time.Time, ok bool) {
	if len(e.alarms) > 0 {
		at, ok = e.alarms[0].at, true
	}
	if e.decay != nil && (!ok || e.nextSample.Before(at)) {
		at, ok = e.nextSample, true
	}
	return at, ok
}
