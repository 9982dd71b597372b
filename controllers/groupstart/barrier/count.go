package barrier

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// fresh is how long a count may be reused: all pods of a group may ask at the same time.
const fresh = time.Second

// counts caches the last count of each group.
type counts struct {
	counter Counter
	mu      sync.Mutex
	last    map[types.NamespacedName]*counted
}

// counted is the last count of one group.
type counted struct {
	mu            sync.Mutex
	at            time.Time
	started, pods int
}

func newCounts(counter Counter) *counts {
	return &counts{counter: counter, last: map[types.NamespacedName]*counted{}}
}

// count counts a group, unless it did so a moment ago. The group must exist, or any client could fill the memory.
func (c *counts) count(ctx context.Context, group types.NamespacedName) (started, pods int, err error) {
	last := c.of(group)
	last.mu.Lock()
	defer last.mu.Unlock()
	if time.Since(last.at) < fresh {
		return last.started, last.pods, nil
	}
	if started, pods, err = c.counter.Count(ctx, group); err != nil {
		return 0, 0, err
	}
	last.at, last.started, last.pods = time.Now(), started, pods
	return started, pods, nil
}

// of returns the last count of a group, and removes groups that no pod has asked about for a long time.
func (c *counts) of(group types.NamespacedName) *counted {
	c.mu.Lock()
	defer c.mu.Unlock()
	if last := c.last[group]; last != nil {
		return last
	}
	for old, last := range c.last {
		// A group that is being counted is kept.
		if last.mu.TryLock() {
			if time.Since(last.at) > longestWait {
				delete(c.last, old)
			}
			last.mu.Unlock()
		}
	}
	last := &counted{at: time.Now().Add(-fresh)}
	c.last[group] = last
	return last
}
