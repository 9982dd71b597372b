package main

import (
	"slices"
	"sync"
	"time"
)

// A lag collects how late the driver was with work that was due at a fixed time.
type lag struct {
	mu   sync.Mutex
	late []time.Duration
}

func (l *lag) note(late time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.late = append(l.late, max(late, 0))
}

func (l *lag) sorted() []time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Sorted(slices.Values(l.late))
}
