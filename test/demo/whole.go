package main

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/tranche-dev/tranche/admission/stageplan"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
)

// A course is the demand of one JobSet that is admitted as a whole: the sum of all parts at first, and each part until its end.
type course struct {
	parts           []part
	sum, held, used float64
}

// A part is the GPUs of one ReplicatedJob, and when it ends.
type part struct {
	gpus float64
	end  time.Duration
}

// wholeJobSets computes the cost of admitting each JobSet once, with the sum of its stages, of which each releases its part at its end, as
// Kueue does: first come, first served where it fits, per team. Each stage takes as long as it took when it was admitted by itself.
func (s *script) wholeJobSets(o *observer) (figures, error) {
	var total figures
	for _, team := range s.teams {
		var queue []course
		for i := range s.jobSets {
			if s.jobSets[i].Namespace != team {
				continue
			}
			c, err := courseOf(&s.jobSets[i], o)
			if err != nil {
				return total, err
			}
			queue = append(queue, c)
		}
		f := drain(queue, float64(s.quota[team]))
		total.makespan = max(total.makespan, f.makespan)
		total.held += f.held
		total.idle += f.idle
		total.never += f.never
	}
	return total, nil
}

// drain runs a queue on a quota.
func drain(queue []course, quota float64) figures {
	var now time.Duration
	var active []part
	var f figures
	queue = slices.DeleteFunc(queue, func(c course) bool {
		if c.sum > quota {
			f.never++
		}
		return c.sum > quota
	})
	free := quota
	for len(queue) > 0 || len(active) > 0 {
		queue = slices.DeleteFunc(queue, func(c course) bool {
			if c.sum > free {
				return false
			}
			free -= c.sum
			for _, p := range c.parts {
				active = append(active, part{p.gpus, now + p.end})
			}
			f.held += c.held
			f.idle += c.held - c.used
			return true
		})
		now = slices.MinFunc(active, func(a, b part) int { return cmp.Compare(a.end, b.end) }).end
		active = slices.DeleteFunc(active, func(p part) bool {
			if p.end > now {
				return false
			}
			free += p.gpus
			return true
		})
	}
	f.makespan = now
	return f
}

// courseOf follows the plan of a JobSet when nothing makes it wait.
func courseOf(js *jobsetapi.JobSet, o *observer) (course, error) {
	plan, err := stageplan.New(&js.Spec)
	if err != nil {
		return course{}, fmt.Errorf("plan JobSet %s: %w", js.Name, err)
	}
	var c course
	ready, ends := map[string]time.Duration{}, map[string]time.Duration{}
	for _, stage := range plan.Stages {
		var start time.Duration
		for _, condition := range stage.After {
			for _, target := range condition.Targets {
				if condition.Status == stageplan.Succeeded {
					start = max(start, ends[target])
				} else {
					start = max(start, ready[target])
				}
			}
		}
		wait, length := o.lengths(stageID{js.Namespace + "/" + js.Name, stage.Name})
		for i := range stage.PodSets {
			podSet := &stage.PodSets[i]
			gpus := float64(podSet.Requests.Name(gpu, "").Value()) * float64(podSet.Count)
			ready[podSet.Name], ends[podSet.Name] = start+wait, start+length
			c.parts = append(c.parts, part{gpus, start + length})
			c.sum += gpus
			c.held += gpus * (start + length).Seconds()
			c.used += gpus * (length - wait).Seconds()
		}
	}
	return c, nil
}
