package simulator

import (
	"slices"
	"time"
)

// pods are the pods of one Job, or of one pod set of a job that is no JobSet.
type pods struct {
	// batches of pods were started one after the other.
	batches []*batch
	// terminating is how many pods have been told to stop and still run, until endsAt.
	terminating int32
	endsAt      time.Duration
}

// batch is a set of pods that were started together. One that has succeeded also counts as ready.
type batch struct {
	count                 int32
	isReady, hasSucceeded bool
}

// A behavior is how pods behave that are not stopped: after which time they are ready and end, and whether they fail then.
type behavior struct {
	readyAfter, runs   time.Duration
	getsReady, ends    bool
	fails              bool
	changed, hasFailed func()
}

// count returns the number of pods, counting those that match, or all.
func (p *pods) count(matches func(*batch) bool) int32 {
	sum := int32(0)
	for _, b := range p.batches {
		if matches(b) {
			sum += b.count
		}
	}
	return sum
}

func isAny(*batch) bool         { return true }
func isRunning(b *batch) bool   { return !b.hasSucceeded && b.count > 0 }
func isReady(b *batch) bool     { return b.isReady && !b.hasSucceeded }
func isSucceeded(b *batch) bool { return b.hasSucceeded }

func (p *pods) areReady() bool {
	return len(p.batches) > 0 && !slices.ContainsFunc(p.batches, func(b *batch) bool { return !b.isReady })
}

func (p *pods) haveSucceeded() bool {
	return len(p.batches) > 0 && !slices.ContainsFunc(p.batches, isRunning)
}

// set makes all pods ready, and succeeded if they finish.
func (p *pods) set(finish bool) {
	for _, b := range p.batches {
		b.isReady, b.hasSucceeded = true, b.hasSucceeded || finish
	}
}

// begin starts pods, and plans their readiness and end.
func (s *simulation) begin(p *pods, count int32, c behavior) {
	b := &batch{count: count}
	p.batches = append(p.batches, b)
	later := func(after time.Duration, f func()) {
		s.eventQueue.add(s.now+after, func() {
			if slices.Contains(p.batches, b) && !b.hasSucceeded {
				f()
			}
		})
	}
	if c.getsReady {
		later(c.readyAfter, func() {
			b.isReady = true
			c.changed()
		})
	}
	if c.ends {
		later(c.runs, func() {
			if c.fails {
				c.hasFailed()
				return
			}
			b.isReady, b.hasSucceeded = true, true
			c.changed()
		})
	}
}

// keep stops all pods but the given number, those that were started first. The others take a while to terminate; then changed is called.
func (s *simulation) keep(p *pods, left int32, stopAfter time.Duration, changed func()) {
	before := p.count(isRunning)
	var kept []*batch
	for _, b := range p.batches {
		if left > 0 {
			b.count = min(b.count, left)
			left -= b.count
			kept = append(kept, b)
		}
	}
	p.batches = kept
	stopped := before - p.count(isRunning)
	if stopped <= 0 {
		return
	}
	p.terminating += stopped
	p.endsAt = s.now + stopAfter
	s.planTermination(p, changed)
}

// planTermination plans the end of the pods that terminate. Pods that are told to stop later delay it.
func (s *simulation) planTermination(p *pods, changed func()) {
	s.eventQueue.add(p.endsAt, func() {
		if p.terminating > 0 && p.endsAt <= s.now {
			p.terminating = 0
			changed()
		}
	})
}
