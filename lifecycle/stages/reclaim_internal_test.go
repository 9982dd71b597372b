package stages

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReclaim(t *testing.T) {
	two := func(init, train string) map[string]string { return map[string]string{"init": init, "train": train} }
	cases := map[string]struct {
		world world
		want  []string
	}{
		"the pods of a Job that has succeeded are reclaimable": {
			world: world{started: true, workloads: two("admitted", "closed"), jobs: two("complete / running", "held")},
			want:  []string{"reclaim init init=1"},
		},
		"what was said is not said again": {
			world: world{started: true, workloads: two("admitted reclaimed1", "closed"), jobs: two("complete / running", "held")},
		},
		"the pods of a Job that goes on are not": {
			world: world{started: true, workloads: two("admitted", "closed"), jobs: two("running progress / running", "held")},
		},
		"a pod that is not terminal keeps its quota": {
			world: world{started: true, workloads: two("admitted", "closed"), jobs: two("complete / running", "held"), pods: []string{"init:init-0"}},
		},
		"the pod of another Job keeps no quota": {
			world: world{started: true, workloads: two("admitted", "closed"), jobs: two("complete / running", "held"), pods: []string{"init:init-1"}},
			want:  []string{"reclaim init init=1"},
		},
		"a gang keeps its quota": {
			world: world{started: true, gang: true, workloads: two("admitted", "closed"), jobs: two("complete / running", "held")},
		},
		"a stage that has succeeded finishes instead": {
			world: world{started: true, workloads: two("admitted reclaimed1", "waiting"), jobs: two("complete / complete", "held")},
			want:  []string{"finish init=Succeeded"},
		},
		"after a restart the stage needs more than it holds, and queues again": {
			world: world{started: true, restarts: 1, workloads: two("admitted reclaimed1 attempt0", "closed"), jobs: two("held / held", "held")},
			want:  []string{"gate init=", "remove init"},
		},
		"a Job that has succeeded and is recreated needs its quota again": {
			world: world{started: true, workloads: two("admitted reclaimed1", "closed"), jobs: two("held / running", "held")},
			want:  []string{"remove init"},
		},
		"a stage that holds nothing just says so": {
			world: world{started: true, workloads: two("waiting reclaimed1", "closed"), jobs: two("held / held", "held")},
			want:  []string{"reclaim init"},
		},
		"an evicted stage keeps saying what stays done": {
			world: world{started: true, workloads: two("admitted evicted reclaimed1", "closed"), jobs: two("complete / held", "held")},
			want:  []string{"give back init"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, render(Next(c.world.build(t)))); diff != "" {
				t.Errorf("writes differ (-want +got):\n%s", diff)
			}
		})
	}
}
