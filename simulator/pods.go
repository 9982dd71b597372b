package simulator

import (
	"slices"
	"time"
)

// pods are the pods of a ReplicatedJob whose Job runs, or has succeeded. They are nil while it is held.
type pods struct {
	// batches of pods were started one after the other.
	batches []*batch
	// lingering is how many pods may still exist while the pods removed from the Job terminate, and cuts counts how often the Job was made
	// smaller.
	lingering int32
	cuts      int
}

// batch is a set of pods that were started together. One that has succeeded also counts as ready.
type batch struct {
	count                 int32
	isReady, hasSucceeded bool
}

// count returns the number of pods of the Job.
func (p *pods) count() int32 {
	sum := int32(0)
	if p != nil {
		for _, b := range p.batches {
			sum += b.count
		}
	}
	return sum
}

// most returns the largest number of pods that may exist at the moment.
func (p *pods) most() int32 {
	switch {
	case p == nil:
		return 0
	case p.haveSucceeded():
		return p.lingering
	}
	return max(p.count(), p.lingering)
}

// ready returns how many pods are ready or have succeeded.
func (p *pods) ready() int32 {
	sum := int32(0)
	if p != nil {
		for _, b := range p.batches {
			if b.isReady {
				sum += b.count
			}
		}
	}
	return sum
}

func (p *pods) areReady() bool {
	return p != nil && !slices.ContainsFunc(p.batches, func(b *batch) bool { return !b.isReady })
}

func (p *pods) haveSucceeded() bool {
	return p != nil && !slices.ContainsFunc(p.batches, func(b *batch) bool { return !b.hasSucceeded })
}

// cut keeps the given number of pods, those that were started first.
func (p *pods) cut(left int32) {
	p.lingering = p.most()
	p.cuts++
	for i, b := range p.batches {
		if b.count > left {
			b.count = left
			p.batches = p.batches[:i+min(int(left), 1)]
			return
		}
		left -= b.count
	}
}

// begin starts pods of a ReplicatedJob, and plans their readiness and end.
func (s *simulation) begin(j *job, st *stage, name string, count int32) {
	b := &batch{count: count}
	p, start := j.pods[name], st.starts
	p.batches = append(p.batches, b)
	later := func(after time.Duration, f func()) {
		s.eventQueue.add(s.now+after, func() {
			if st.starts == start && st.isReleased && slices.Contains(p.batches, b) && !b.hasSucceeded {
				f()
			}
		})
	}
	if after, ok := j.ReadyAfter(name); ok {
		later(after, func() {
			b.isReady = true
			s.reconcileJob(j)
		})
	}
	if after, ok := j.RunTime(name); ok {
		later(after, func() {
			if j.Fails(name, j.attempt) {
				s.failJob(j, st)
				return
			}
			b.isReady, b.hasSucceeded = true, true
			s.reconcileJob(j)
		})
	}
}
