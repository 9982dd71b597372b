package stages

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"

	"github.com/tranche-dev/tranche/apis"
)

// The Jobs have one pod each; quota Workloads that say "of3" ask for three, and "for1" were admitted for one.
func TestElastic(t *testing.T) {
	two := func(init, train string) map[string]string { return map[string]string{"init": init, "train": train} }
	cases := map[string]struct {
		world world
		want  []string
	}{
		"a stage that was made smaller gives back what it needs no more": {
			world: world{started: true, workloads: two("admitted of3", "closed"), jobs: two("running", "held"), pods: []string{"init:init-0:0"}},
			want:  []string{"reclaim init init=2"},
		},
		"not before the Job is smaller": {
			world: world{started: true, workloads: two("admitted of3", "closed"), jobs: two("wide running", "held"), pods: []string{"init:init-0:0"}},
		},
		"not before the last pod too many has ended": {
			world: world{started: true, workloads: two("admitted of3", "closed"), jobs: two("running", "held"), pods: []string{"init:init-0:0", "init:init-0:2"}},
		},
		"a stage that holds nothing asks for fewer pods": {
			world: world{started: true, workloads: two("waiting of3", "closed"), jobs: two("held", "held")},
			want:  []string{"resize init=1"},
		},
		"it counts all of its pods before": {
			world: world{started: true, workloads: two("waiting of3 reclaimed2", "closed"), jobs: two("held", "held")},
			want:  []string{"gate init=tranche.dev/resize", "reclaim init"},
		},
		"a stage that has grown while it was being admitted queues for all of it": {
			world: world{started: true, workloads: two("admitted of3 for1", "closed"), jobs: two("held / held / held", "held")},
			want:  []string{"remove init"},
		},
		"it does not start the JobSet on the quota of fewer pods": {
			world: world{workloads: two("admitted of3 for1", "closed"), jobs: two("held / held / held", "held")},
			want:  []string{"remove init"},
		},
		"what was reclaimable when it was admitted does not make a stage short": {
			world: world{started: true, workloads: two("admitted of3 for2 reclaimed1", "closed"), jobs: two("complete / held / held", "held")},
			want:  []string{"release init-1 node=a100", "release init-2 node=a100"},
		},
		"nor what has become reclaimable since": {
			world: world{started: true, workloads: two("admitted of3 for3 reclaimed1", "closed"), jobs: two("complete / held / held", "held")},
			want:  []string{"release init-1 node=a100", "release init-2 node=a100"},
		},
		"a stage that has grown while it was suspended queues for all of it": {
			world: world{started: true, workloads: two("admitted of3", "closed"), jobs: two("held / held / held / held", "held")},
			want:  []string{"remove init"},
		},
	}
	t.Run("a gang is not elastic, however it was asked for", func(t *testing.T) {
		s := world{}.build(t)
		job := &s.JobSet.Spec.ReplicatedJobs[0]
		job.Template.Spec.CompletionMode = new(batchv1.IndexedCompletion)
		if !isElastic(s.JobSet, "init") {
			t.Error("without a gang it is")
		}
		job.Template.Annotations = map[string]string{apis.GangGroupAnnotation: "0"}
		if isElastic(s.JobSet, "init") {
			t.Error("it is")
		}
	})
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, render(Next(c.world.build(t)))); diff != "" {
				t.Errorf("writes differ (-want +got):\n%s", diff)
			}
		})
	}
}
