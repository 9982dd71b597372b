package cluster

import (
	"slices"
	"time"
)

// A Behavior is how pods behave that are not stopped: after which time they are ready and end, and whether they fail then.
type Behavior struct {
	ReadyAfter, Runs   time.Duration
	GetsReady, Ends    bool
	Fails              bool
	Changed, HasFailed func()
}

// StartPods starts pods, and plans their readiness and end.
func (cl *Cluster) StartPods(p *PodSet, count int32, c Behavior) {
	b := &Batch{Count: count}
	p.Batches = append(p.Batches, b)
	later := func(after time.Duration, f func()) {
		cl.Events.Add(cl.Now+after, func() {
			if slices.Contains(p.Batches, b) && !b.HasSucceeded {
				f()
			}
		})
	}
	if c.GetsReady {
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
