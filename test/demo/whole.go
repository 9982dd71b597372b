package main

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/admission/stageplan"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/test/controlplane"
)

// A course is what one JobSet needs if it is admitted as a whole.
type course struct {
	sum, used float64
	length    time.Duration
}

// wholeJobSets computes what it costs to admit each JobSet once, with the sum of its stages, until its end: first come first
// served where it fits, per team, with the run times that the samples give their pods and no time lost between stages.
func (s *script) wholeJobSets() (figures, error) {
	var total figures
	for _, team := range s.teams {
		var queue []course
		for i := range s.jobSets {
			if s.jobSets[i].Namespace != team {
				continue
			}
			c, err := courseOf(&s.jobSets[i])
			if err != nil {
				return total, err
			}
			queue = append(queue, c)
		}
		f := drain(queue, float64(s.quota))
		total.makespan = max(total.makespan, f.makespan)
		total.held += f.held
		total.idle += f.idle
	}
	return total, nil
}

// drain runs a queue on a quota.
func drain(queue []course, quota float64) figures {
	type running struct {
		course
		end time.Duration
	}
	var now time.Duration
	var active []running
	var f figures
	free := quota
	for len(queue) > 0 || len(active) > 0 {
		queue = slices.DeleteFunc(queue, func(c course) bool {
			if c.sum > free {
				return false
			}
			free -= c.sum
			active = append(active, running{c, now + c.length})
			return true
		})
		if len(active) == 0 {
			return f
		}
		first := slices.MinFunc(active, func(a, b running) int { return int(a.end - b.end) })
		now = first.end
		active = slices.DeleteFunc(active, func(r running) bool {
			if r.end > now {
				return false
			}
			free += r.sum
			f.held += r.sum * r.length.Seconds()
			f.idle += r.sum*r.length.Seconds() - r.used
			return true
		})
	}
	f.makespan = now
	return f
}

// courseOf follows the plan of a JobSet when nothing makes it wait.
func courseOf(js *jobsetapi.JobSet) (course, error) {
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
		for i := range stage.PodSets {
			podSet := &stage.PodSets[i]
			wait, run := times(podSet.Template)
			gpus := float64(podSet.Requests.Name(gpu, "").Value()) * float64(podSet.Count)
			ready[podSet.Name], ends[podSet.Name] = start+wait, start+wait+run
			c.sum += gpus
			c.used += gpus * (wait + run).Seconds()
			c.length = max(c.length, ends[podSet.Name])
		}
	}
	return c, nil
}

func times(template *corev1.PodTemplateSpec) (wait, run time.Duration) {
	parse := func(key string) time.Duration {
		d, err := time.ParseDuration(template.Annotations[key])
		if err != nil {
			return 0
		}
		return d
	}
	return parse(controlplane.FakeReadyAfter), parse(controlplane.FakeRunTime)
}
