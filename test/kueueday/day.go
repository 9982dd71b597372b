// Package kueueday plays a day of a cluster that Kueue manages, for tests of what reads the objects of such a cluster. It shares no code with the engine:
// one ClusterQueue admits JobSets as a whole, in the order in which they arrived, each as soon as it fits, and releases the quota of each Job that has
// succeeded.
package kueueday

import (
	"cmp"
	"slices"
	"time"
)

// A Day is what arrives.
type Day struct {
	Begin time.Time
	// GPUs is the quota.
	GPUs int
	// Jobs are the JobSets. Their names differ.
	Jobs []Job
}

// A Job is a JobSet.
type Job struct {
	Name string
	// At is how long after the begin it arrives, in whole seconds.
	At time.Duration
	// Stages are its ReplicatedJobs. Each but the first one waits for the one before it.
	Stages []Stage
}

// A Stage is a ReplicatedJob of one Job whose pods have one GPU each.
type Stage struct {
	Name string
	Pods int
	// Ready and Run are how long after its start it is ready and has succeeded, in whole seconds.
	Ready, Run time.Duration
	// AfterReady is true if it starts when the one before it is ready. Otherwise that has to have succeeded.
	AfterReady bool
}

// A Played is what happened to a Job. Times are since the begin of the day.
type Played struct {
	*Job

	Admitted, Finished time.Duration
	// Starts are those of the stages.
	Starts []time.Duration
}

// Play returns what happens to all Jobs, in the order of their arrival. A Job that asks for more than the quota is not admitted: its Admitted is -1.
func (d *Day) Play() []Played {
	pending := make([]Played, len(d.Jobs))
	for i := range d.Jobs {
		pending[i] = Played{Job: &d.Jobs[i], Admitted: -1}
	}
	slices.SortStableFunc(pending, func(a, b Played) int { return cmp.Compare(a.At, b.At) })
	all := make([]Played, 0, len(pending))
	free := d.GPUs
	// releases has how many GPUs are released at which times.
	releases := map[time.Duration]int{}
	for len(pending) > 0 {
		now, isPast := d.nextTime(pending, releases)
		if isPast {
			break
		}
		free += releases[now]
		delete(releases, now)
		pending = slices.DeleteFunc(pending, func(p Played) bool {
			if p.At > now || p.gpus() > free {
				return false
			}
			free -= p.gpus()
			p.start(now)
			for i := range p.Stages {
				releases[p.Starts[i]+p.Stages[i].Run] += p.Stages[i].Pods
			}
			all = append(all, p)
			return true
		})
		for i := range pending {
			pending[i].isSeen(now)
		}
	}
	all = append(all, pending...)
	slices.SortStableFunc(all, func(a, b Played) int { return cmp.Compare(a.At, b.At) })
	return all
}

// nextTime returns the next arrival that was not looked at, or release. isPast is true if there is none.
func (d *Day) nextTime(pending []Played, releases map[time.Duration]int) (next time.Duration, isPast bool) {
	isPast = true
	note := func(at time.Duration) {
		if isPast || at < next {
			next, isPast = at, false
		}
	}
	for i := range pending {
		if pending[i].Finished == 0 {
			note(pending[i].At)
		}
	}
	for at := range releases {
		note(at)
	}
	return next, isPast
}

// isSeen notes that a Job has arrived.
func (p *Played) isSeen(now time.Duration) {
	if p.At <= now {
		p.Finished = -1
	}
}

func (p *Played) gpus() int {
	sum := 0
	for i := range p.Stages {
		sum += p.Stages[i].Pods
	}
	return sum
}

// start admits a Job.
func (p *Played) start(now time.Duration) {
	p.Admitted, p.Finished = now, now
	at := now
	for i := range p.Stages {
		if i > 0 {
			before := &p.Stages[i-1]
			if at += before.Run; p.Stages[i].AfterReady {
				at += before.Ready - before.Run
			}
		}
		p.Starts = append(p.Starts, at)
		p.Finished = max(p.Finished, at+p.Stages[i].Run)
	}
}
