package cluster

import (
	"slices"
	"time"
)

// A Behavior is how pods behave that are not stopped: how long after their start they are ready and end, and whether they fail then.
type Behavior struct {
	ReadyAfter, Runs time.Duration
	GetsReady, Ends  bool
	Fails            bool
	// Rest is how many pods their Job has still to start after them. They succeed together: Runs is the time of the Job as a whole.
	Rest               int32
	Changed, HasFailed func()
}

// StartPods starts pods, and plans their readiness and end.
func (cl *Cluster) StartPods(p *PodSet, count int32, c Behavior) {
	b := &Batch{Count: count, Started: cl.Now}
	p.Batches = append(p.Batches, b)
	cl.PlanPods(p, b, c)
}

// PlanPods plans the readiness and the end of pods.
func (cl *Cluster) PlanPods(p *PodSet, b *Batch, c Behavior) {
	later := func(after time.Duration, f func()) {
		cl.Events.Add(max(cl.Now, b.Started+after), func() {
			if slices.Contains(p.Batches, b) && !b.HasSucceeded {
				f()
			}
		})
	}
	if c.GetsReady && !b.IsReady {
		later(c.ReadyAfter, func() {
			b.IsReady = true
			c.Changed()
		})
	}
	if c.Ends {
		later(c.Runs, func() {
			if c.Fails {
				c.HasFailed()
				return
			}
			b.IsReady, b.HasSucceeded = true, true
			b.Count += c.Rest
			c.Changed()
		})
	}
}

// StopPods stops all pods but the given number, those that were started first. The others take a while to terminate; then changed is called.
func (cl *Cluster) StopPods(p *PodSet, left int32, stopAfter time.Duration, changed func()) {
	before := p.Count(IsRunning)
	var kept []*Batch
	for _, b := range p.Batches {
		if left > 0 {
			b.Count = min(b.Count, left)
			left -= b.Count
			kept = append(kept, b)
		}
	}
	p.Batches = kept
	stopped := before - p.Count(IsRunning)
	if stopped <= 0 {
		return
	}
	p.Terminating += stopped
	p.EndsAt = cl.Now + stopAfter
	cl.PlanTermination(p, changed)
}

// PlanTermination plans the end of the pods that terminate. Pods that are told to stop later delay it.
func (cl *Cluster) PlanTermination(p *PodSet, changed func()) {
	cl.Events.Add(p.EndsAt, func() {
		if p.Terminating > 0 && p.EndsAt <= cl.Now {
			p.Terminating = 0
			changed()
		}
	})
}
