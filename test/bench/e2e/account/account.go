// Package account adds up the accelerators that JobSets hold and use over time, and how long they wait. Its inputs are the states of JobSets
// and their times.
package account

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// A State is the state of a JobSet from one observation to the next.
type State struct {
	// Held is how many accelerators it holds quota for, and Used how many its running pods have.
	Held, Used int64
	// Waits is true if a part of it could start, but lacks quota.
	Waits bool
	// Admitted is true if a part of it was admitted, and Finished if it has finished.
	Admitted, Finished bool
}

// A Book keeps one run. The zero value is an empty one.
type Book struct {
	now     time.Duration
	entries map[string]*entry
	total   Step
	curve   []Step
}

// An entry is one JobSet.
type entry struct {
	JobSet
	state State
}

// A JobSet is the record of one JobSet at the end of a run. Times count from the beginning of the run, all in seconds.
type JobSet struct {
	Name string `json:"name"`
	// Submitted, Admitted and Finished are the times at which it was first observed, at which its first part was observed admitted, and at
	// which it was observed to have finished.
	Submitted float64 `json:"submitted"`
	Admitted  float64 `json:"admitted"`
	Finished  float64 `json:"finished"`
	// Waited is the total time in which a part of it could have started, but lacked quota.
	Waited float64 `json:"waited"`
	// Held is accelerators times the seconds for which quota was held for them, Idle the part of it in which no running pod had them.
	Held float64 `json:"held"`
	Idle float64 `json:"idle"`
}

// A Step is what all JobSets together hold and use from a time on, in seconds.
type Step struct {
	At   float64 `json:"at"`
	Held int64   `json:"held"`
	Used int64   `json:"used"`
}

// See records a new state of a JobSet. Time does not go back: a late observation counts from the latest time.
func (b *Book) See(now time.Duration, jobSet string, s State) {
	b.advance(max(now, b.now))
	e := b.entries[jobSet]
	if e == nil {
		if b.entries == nil {
			b.entries = map[string]*entry{}
		}
		e = &entry{JobSet: JobSet{Name: jobSet, Submitted: b.now.Seconds()}}
		b.entries[jobSet] = e
	}
	if s.Admitted && !e.state.Admitted && e.Admitted == 0 {
		e.Admitted = b.now.Seconds()
	}
	if s.Finished && !e.state.Finished {
		e.Finished = b.now.Seconds()
	}
	b.total.Held += s.Held - e.state.Held
	b.total.Used += s.Used - e.state.Used
	e.state = s
	b.draw()
}

// advance charges the time since the last observation.
func (b *Book) advance(now time.Duration) {
	seconds := (now - b.now).Seconds()
	b.now = now
	for _, e := range b.entries {
		e.Held += float64(e.state.Held) * seconds
		e.Idle += float64(max(e.state.Held-e.state.Used, 0)) * seconds
		if e.state.Waits {
			e.Waited += seconds
		}
	}
}

// draw adds a step to the curve, if its value changes.
func (b *Book) draw() {
	step := b.total
	step.At = rounded(b.now.Seconds())
	last := len(b.curve) - 1
	switch {
	case last >= 0 && b.curve[last].Held == step.Held && b.curve[last].Used == step.Used:
	case last >= 0 && b.curve[last].At == step.At:
		b.curve[last] = step
	default:
		b.curve = append(b.curve, step)
	}
}

// Over returns how many JobSets have finished and no longer hold quota.
func (b *Book) Over() int {
	n := 0
	for _, e := range b.entries {
		if e.state.Finished && e.state.Held == 0 {
			n++
		}
	}
	return n
}

// Run returns the records, in the order of submission.
func (b *Book) Run() *Run {
	r := &Run{Curve: slices.Clone(b.curve)}
	for _, e := range b.entries {
		js := e.JobSet
		for _, value := range []*float64{&js.Submitted, &js.Admitted, &js.Finished, &js.Waited, &js.Held, &js.Idle} {
			*value = rounded(*value)
		}
		r.JobSets = append(r.JobSets, js)
	}
	slices.SortFunc(r.JobSets, func(a, b JobSet) int {
		return cmp.Or(cmp.Compare(a.Submitted, b.Submitted), cmp.Compare(a.Name, b.Name))
	})
	return r
}

// rounded drops digits below the precision of the measurement.
func rounded(seconds float64) float64 { return math.Round(seconds*1000) / 1000 }
