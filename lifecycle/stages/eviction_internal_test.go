package stages

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
)

func TestEviction(t *testing.T) {
	const closes = "gate train=tranche.dev/stage"
	two := func(init, train string) map[string]string { return map[string]string{"init": init, "train": train} }
	cases := map[string]struct {
		world world
		want  []string
	}{
		"the Jobs of an evicted stage are held, and it is no longer ready": {
			world: world{started: true, workloads: two("admitted evicted ready", "closed"), jobs: two("running", "held")},
			want:  []string{"hold init-0", "ready init=False"},
		},
		"a Job is held only after the Job controller has noticed its release": {
			world: world{started: true, workloads: two("admitted evicted", "closed"), jobs: two("released", "held")},
		},
		"nothing is given back before the Job controller knows that the Job is held": {
			world: world{started: true, workloads: two("admitted evicted", "closed"), jobs: two("stopping", "held")},
		},
		"nothing is given back while a pod is not terminal": {
			world: world{started: true, workloads: two("admitted evicted", "closed"), jobs: two("held", "held"), pods: []string{"init"}},
		},
		"a Job that has lost its start time to the JobSet controller may end, which it could not while it is held": {
			world: world{started: true, workloads: two("admitted evicted", "closed"), jobs: two("stopping succeeding", "held")},
			want:  []string{"conclude init-0"},
		},
		"so may one that is about to fail, and that the Job controller had held": {
			world: world{started: true, workloads: two("admitted evicted", "closed"), jobs: two("held failing flavored", "held")},
			want:  []string{"conclude init-0"},
		},
		"a held Job that has its start time ends by itself": {
			world: world{started: true, workloads: two("admitted evicted", "closed"), jobs: two("held started progress succeeding", "held")},
		},
		"a Job that is about to end is not held": {
			world: world{started: true, workloads: two("admitted evicted", "closed"), jobs: two("running succeeding", "held")},
		},
		"a Job that is about to end, and is being deleted, keeps no quota: a finalizer may keep it indefinitely": {
			world: world{started: true, workloads: two("admitted evicted", "closed"), jobs: two("held deleted failing progress", "held")},
			want:  []string{"give back init"},
		},
		"a Job goes back to what it was before its admission": {
			world: world{started: true, workloads: two("admitted evicted", "closed"), jobs: two("held flavored", "held")},
			want:  []string{"restore init-0"},
		},
		"a Job with partial completions is recreated": {
			world: world{started: true, workloads: two("admitted evicted", "closed"), jobs: two("held progress flavored", "held")},
			want:  []string{"remake init-0"},
		},
		"a Job with partial completions is not deleted while it has pods": {
			world: world{started: true, workloads: two("admitted evicted", "closed"), jobs: two("stopping progress", "held")},
		},
		"without pods the quota is given back": {
			world: world{started: true, workloads: two("admitted evicted", "closed"), jobs: two("held", "held")},
			want:  []string{"give back init"},
		},
		"an evicted stage whose Job is being recreated releases its quota": {
			world: world{started: true, workloads: two("admitted evicted", "closed")},
			want:  []string{"give back init"},
		},
		"an evicted stage that holds nothing waits like any other": {
			world: world{started: true, workloads: two("evicted", "closed"), jobs: two("held", "held")},
		},
		"the other stages that hold quota are evicted, too, and closed": {
			world: world{started: true, ready: true, workloads: two("admitted evicted ready", "admitted ready"), jobs: two("running up", "running up")},
			want:  []string{"evict train", closes, "hold init-0", "hold train-0", "ready init=False", "ready train=False"},
		},
		"an earlier stage is evicted with a later one, and stays open": {
			world: world{started: true, ready: true, workloads: two("admitted ready", "admitted evicted"), jobs: two("running up", "running up")},
			want:  []string{"evict init", closes, "hold init-0", "hold train-0", "ready init=False"},
		},
		"a stage that waits for its quota is closed when the one before it goes": {
			world: world{started: true, ready: true, workloads: two("admitted evicted", "waiting"), jobs: two("held", "held")},
			want:  []string{closes, "give back init"},
		},
		"no stage gives back before all can": {
			world: world{started: true, ready: true, workloads: two("admitted evicted", "admitted evicted closed"), jobs: two("held", "stopping")},
		},
		"the last stage gives back first": {
			world: world{started: true, ready: true, workloads: two("admitted evicted", "admitted evicted closed"), jobs: two("held", "held")},
			want:  []string{"give back train", "give back init"},
		},
		"a stage admitted while the other gives back is evicted again": {
			world: world{started: true, ready: true, workloads: two("admitted evicted", "admitted closed"), jobs: two("held", "held")},
			want:  []string{"evict train"},
		},
		"finished stages stay finished": {
			world: world{started: true, workloads: two("finished", "admitted evicted"), jobs: two("complete", "running")},
			want:  []string{"hold train-0"},
		},
		"a finished stage stays finished and the next one open when the quota goes": {
			world: world{started: true, workloads: two("finished", "admitted evicted"), jobs: two("complete", "held")},
			want:  []string{"give back train"},
		},
		"a stage that has succeeded meanwhile finishes, and opens the next": {
			world: world{started: true, workloads: two("admitted evicted", "closed"), jobs: two("complete", "held")},
			want:  []string{"open train", "finish init=Succeeded"},
		},
		"the others go back though the stage that was evicted has succeeded meanwhile": {
			world: world{started: true, ready: true, workloads: two("admitted evicted", "admitted"), jobs: two("complete", "running")},
			want:  []string{"evict train", "hold train-0", "finish init=Succeeded"},
		},
		"a stage that has succeeded finishes while the one before it goes back": {
			world: world{started: true, ready: true, workloads: two("admitted evicted", "admitted"), jobs: two("running", "complete")},
			want:  []string{"hold init-0", "finish train=Succeeded"},
		},
		"so does one that has succeeded after it was closed": {
			world: world{started: true, ready: true, workloads: two("admitted evicted", "admitted evicted closed"), jobs: two("running", "complete")},
			want:  []string{"hold init-0", "finish train=Succeeded"},
		},
		"so does one that has succeeded after it was closed, when the one before it waits": {
			world: world{started: true, ready: true, workloads: two("waiting", "admitted evicted closed"), jobs: two("held", "complete")},
			want:  []string{"finish train=Succeeded"},
		},
		"a Job that has succeeded stays so while the rest of its stage goes back": {
			world: world{started: true, workloads: two("admitted evicted", "closed"), jobs: two("complete / held", "held")},
			want:  []string{"give back init"},
		},
		"a Job of a gang is run again though it has succeeded": {
			world: world{started: true, gang: true, workloads: two("admitted evicted", "closed"), jobs: two("complete / held", "held")},
			want:  []string{"remake init-0"},
		},
		"a JobSet that has failed meanwhile finishes": {
			world: world{started: true, over: jobset.JobSetFailed, workloads: two("admitted evicted", "closed"), jobs: two("failed", "held")},
			want:  []string{"finish init=Failed", "finish train=Failed"},
		},
		"a JobSet that has succeeded meanwhile finishes once its pods have terminated": {
			world: world{started: true, over: jobset.JobSetCompleted, workloads: two("finished", "admitted evicted"), jobs: two("complete", "complete"), pods: []string{"train"}},
		},
		"a JobSet that is suspended meanwhile is gated, and releases its quota when its pods have terminated": {
			world: world{started: true, suspended: true, workloads: two("admitted evicted suspended", "closed suspended"), jobs: two("held", "held")},
			want:  []string{"give back init"},
		},
		"a suspension during an eviction is seen": {
			world: world{started: true, suspended: true, workloads: two("admitted evicted", "closed"), jobs: two("stopping", "held")},
			want:  []string{"gate init=tranche.dev/suspended", "gate train=tranche.dev/stage,tranche.dev/suspended"},
		},
		"an evicted stage that was not released yet gives back and does not start the JobSet": {
			world: world{workloads: two("admitted evicted", "closed"), jobs: two("held", "held")},
			want:  []string{"give back init"},
		},
		"a restart during an eviction changes nothing about it": {
			world: world{started: true, restarts: 1, workloads: two("finished attempt0", "admitted evicted attempt0"), jobs: two("held", "held")},
			want:  []string{"gate train=tranche.dev/stage", "give back train", "remove init"},
		},
		"a deleted Workload of an evicted JobSet goes, and then the others give back": {
			world: world{started: true, ready: true, workloads: two("admitted evicted", "admitted evicted closed deleted pinned"), jobs: two("held", "held")},
			want:  []string{"unpin train"},
		},
		"a deactivated stage stays held, and the others are shut": {
			world: world{started: true, ready: true, workloads: two("waiting", "evicted inactive closed"), jobs: two("held", "held")},
			want:  []string{"gate init=tranche.dev/deactivated"},
		},
		"a stage that is deactivated before it holds quota gates no other": {
			world: world{started: true, workloads: two("admitted", "closed inactive"), jobs: two("held", "held")},
			want:  []string{"release init-0 node=a100"},
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

func TestEvictionIsReported(t *testing.T) {
	cases := map[string]struct {
		world world
		want  string
	}{
		"while pods stop":                 {world{started: true, workloads: map[string]string{"init": "admitted evicted", "train": "closed"}, jobs: map[string]string{"init": "stopping"}}, "EvictedDueToPreempted"},
		"not once the quota is back":      {world{started: true, workloads: map[string]string{"init": "evicted", "train": "closed"}, jobs: map[string]string{"init": "held"}}, "PendingEvaluation"},
		"not of a stage that has it made": {world{started: true, workloads: map[string]string{"init": "admitted evicted", "train": "closed"}, jobs: map[string]string{"init": "complete"}}, "Preempted"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := Next(c.world.build(t)).Conditions[0].Reason; got != c.want {
				t.Errorf("reason of StageAdmitted = %q, want %q", got, c.want)
			}
		})
	}
}
