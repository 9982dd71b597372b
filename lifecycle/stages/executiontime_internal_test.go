package stages

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/quotastep"
)

// A user who suspends a JobSet may change its maximum execution time. What has started keeps the time that it had.
func TestMaximumExecutionTime(t *testing.T) {
	for name, c := range map[string]struct {
		world world
		// limits has the new limits of quota Workloads, and want other writes.
		limits map[string]int32
		want   []string
	}{
		"without quota": {
			world: world{workloads: map[string]string{"init": "", "train": "closed"}, jobs: map[string]string{"init": "held"}}, limits: map[string]int32{"init": 60, "train": 60},
		},
		"with quota, before the start": {
			world:  world{workloads: map[string]string{"init": "admitted", "train": "closed"}, jobs: map[string]string{"init": "held"}},
			limits: map[string]int32{"train": 60}, want: []string{"remove init"},
		},
		"while a stage runs": {
			world:  world{started: true, workloads: map[string]string{"init": "admitted pinned", "train": "closed"}, jobs: map[string]string{"init": "running"}},
			limits: map[string]int32{"train": 60},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := c.world.build(t)
			s.JobSet.Labels[apis.MaxExecTimeLabel] = "60"
			step := Next(s)
			limits := map[string]int32{}
			for _, x := range step.Of(quotastep.Change) {
				if limit := x.After.Spec.MaximumExecutionTimeSeconds; limit != nil {
					limits[x.After.Name] = *limit
				}
			}
			step.Writes = slices.DeleteFunc(step.Writes, func(w quotastep.Write) bool { return w.Kind == quotastep.Change })
			if diff := cmp.Diff(c.limits, limits); diff != "" {
				t.Errorf("limits differ (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.want, render(step)); diff != "" {
				t.Errorf("writes differ (-want +got):\n%s", diff)
			}
		})
	}
}
