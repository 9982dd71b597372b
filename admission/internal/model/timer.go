package model

import (
	"container/heap"
	"time"
)

// timers is a heap of the stages that back off, ordered by the time at which they may be pending again. Each stage is in it once.
type timers []*Stage //nolint:recvcheck // heap.Interface asks for both

func (a timers) Len() int { return len(a) }

func (a timers) Less(i, j int) bool { return a[i].Timer.At.Before(a[j].Timer.At) }

func (a timers) Swap(i, j int) {
	a[i], a[j] = a[j], a[i]
	a[i].Timer.index, a[j].Timer.index = i, j
}

func (a *timers) Push(x any) {
	if s, ok := x.(*Stage); ok {
		s.Timer.index = len(*a)
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
	At    time.Time
	index int
}

// setTimer sets the timer of a stage to its RequeueAt, or removes it if that time has passed.
func (m *Model) setTimer(s *Stage) {
	if s.Timer.At.Equal(s.RequeueAt) {
		return
	}
	m.DropTimer(s)
	if s.RequeueAt.After(m.Now) {
		s.Timer.At = s.RequeueAt
		heap.Push(&m.Timers, s)
	}
}

// DropTimer removes the timer of a stage, if it has one.
func (m *Model) DropTimer(s *Stage) {
	if !s.Timer.At.IsZero() {
		heap.Remove(&m.Timers, s.Timer.index)
		s.Timer = timer{}
	}
}

// FireTimers updates the stages whose back-off has expired.
func (m *Model) FireTimers() {
	for len(m.Timers) > 0 && !m.Timers[0].Timer.At.After(m.Now) {
		s := m.Timers[0]
		m.DropTimer(s)
		m.Refresh(s)
	}
}
