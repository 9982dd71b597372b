// Package account adds up what JobSets hold and use of their accelerators over time, and for how long they wait. It knows only what it
// is told they do from when on.
package account

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// A State is what is true of a JobSet from one observation to the next.
type State struct {
	// Held is how many accelerators it holds quota for, and Used how many its running pods have.
	Held, Used int64
	// Waits tells whether something of it could start, but for want of quota.
	Waits bool
	// Admitted tells whether any of it was admitted, and Finished whether it is over.
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

// A JobSet is what is known of one at the end of a run. Times count from the beginning of the run, all in seconds.
type JobSet struct {
	Name string `json:"name"`
	// Submitted, Admitted and Finished are when it was seen first, when the first of it was seen admitted, and when it was seen to be over.
	Submitted float64 `json:"submitted"`
	Admitted  float64 `json:"admitted"`
	Finished  float64 `json:"finished"`
	// Waited is for how long, all in all, something of it could have started but for want of quota.
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

// See notes that from now on a state is that of a JobSet. Time does not go back: what is told late counts from the latest time.
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

// draw adds a step to the curve, if it goes elsewhere.
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

// Over tells how many JobSets are over and hold nothing any more.
func (b *Book) Over() int {
	n := 0
	for _, e := range b.entries {
		if e.state.Finished && e.state.Held == 0 {
			n++
		}
	}
	return n
}

// Run returns what was noted, in the order of submission.
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

// rounded cuts what is finer than anybody can measure here.
func rounded(seconds float64) float64 { return math.Round(seconds*1000) / 1000 }
