package live

import (
	"context"
	"time"

	"github.com/tranche-dev/tranche/dashboard"
	"github.com/tranche-dev/tranche/snapshot/collect"
)

const (
	// leaderInterval is how often the Lease of the manager is read, and leaderTimeout how long the API server may take to answer. A watch of a connection that
	// is lost without a word notices it only after minutes.
	leaderInterval = 5 * time.Second
	leaderTimeout  = 10 * time.Second
)

// watchLeader reads the Lease of the manager until the context is done.
func (f *Feed) watchLeader(ctx context.Context) {
	ticker := time.NewTicker(leaderInterval)
	defer ticker.Stop()
	for ctx.Err() == nil {
		f.readLeader(ctx)
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}

// readLeader reads whether a manager leads, and whether the API server answers.
func (f *Feed) readLeader(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, leaderTimeout)
	defer cancel()
	why, err := collect.WhyNoLeader(limited, f.Client, time.Now())
	f.mu.Lock()
	isChanged := f.isUnanswered != (err != nil)
	f.isUnanswered = err != nil
	if err == nil {
		isChanged = isChanged || f.withoutLeader != why
		f.withoutLeader = why
	}
	f.mu.Unlock()
	if isChanged && ctx.Err() == nil {
		f.store.Use((*dashboard.Model).Touch)
	}
}
