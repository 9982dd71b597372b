package cluster

import (
	"slices"
	"time"
)

// A PodSet has the pods of one Job, or of one pod set of a job that is no JobSet.
type PodSet struct {
	// Batches of pods were started one after the other.
	Batches []*Batch
	// Terminating is how many pods have been told to stop and still run, until EndsAt.
	Terminating int32
	EndsAt      time.Duration
}

// A Batch is a set of pods that were started together. One that has succeeded also counts as ready.
type Batch struct {
	Count                 int32
	IsReady, HasSucceeded bool
	// Started is when they were started, which may be before the run began.
	Started time.Duration
}

// Count returns the number of pods, counting those that match, or all.
func (p *PodSet) Count(matches func(*Batch) bool) int32 {
	sum := int32(0)
	for _, b := range p.Batches {
		if matches(b) {
			sum += b.Count
		}
	}
	return sum
}

// IsAny matches every batch.
func IsAny(*Batch) bool { return true }

// IsRunning matches the pods that have not terminated.
func IsRunning(b *Batch) bool { return !b.HasSucceeded && b.Count > 0 }

// IsReady matches the pods that are ready and have not terminated.
func IsReady(b *Batch) bool { return b.IsReady && !b.HasSucceeded }

// HasSucceeded matches the pods that have succeeded.
func HasSucceeded(b *Batch) bool { return b.HasSucceeded }

// AreReady reports whether there are pods, and all are ready or have succeeded.
func (p *PodSet) AreReady() bool {
	return len(p.Batches) > 0 && !slices.ContainsFunc(p.Batches, func(b *Batch) bool { return !b.IsReady })
}

// HaveSucceeded reports whether there are pods, and all have succeeded.
func (p *PodSet) HaveSucceeded() bool {
	return len(p.Batches) > 0 && !slices.ContainsFunc(p.Batches, IsRunning)
}

// Set makes all pods ready, and succeeded if they finish.
func (p *PodSet) Set(finish bool) {
	for _, b := range p.Batches {
		b.IsReady, b.HasSucceeded = true, b.HasSucceeded || finish
	}
}
