package stages

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
	"github.com/tranche-dev/tranche/lifecycle/quotastep"
)

func TestDesiredOfSucceededJobs(t *testing.T) {
	cases := map[string]struct {
		world world
		// policy is the success policy, or nil.
		policy *jobset.SuccessPolicy
		want   []string
	}{
		"a Job that has succeeded and was recreated stays held while a later stage runs": {
			world: world{started: true, workloads: map[string]string{"init": "finished", "train": "admitted"}, jobs: map[string]string{"init": "held", "train": "running"}},
		},
		"it is skipped when all others have succeeded": {
			world: world{started: true, workloads: map[string]string{"init": "finished", "train": "admitted"}, jobs: map[string]string{"init": "held", "train": "complete"}},
			want:  []string{"skip init-0", "finish train=Succeeded, the last"},
		},
		"it is skipped when the JobSet controller creates Jobs of an open stage only after it": {
			world: world{started: true, workloads: map[string]string{"init": "finished", "train": "waiting"}, jobs: map[string]string{"init": "held"}},
			want:  []string{"skip init-0"},
		},
		"it is not skipped while its JobSet is suspended": {
			world: world{started: true, suspended: true, workloads: map[string]string{"init": "finished", "train": "suspended"}, jobs: map[string]string{"init": "held"}},
		},
		"a restart runs it again": {
			world: world{started: true, restarts: 1, workloads: map[string]string{"init": "finished attempt0", "train": "closed"}, jobs: map[string]string{"init": "held", "train": "held"}},
			want:  []string{"remove init"},
		},
		"a stage records which of its Jobs have succeeded": {
			world: world{started: true, workloads: map[string]string{"init": "admitted", "train": "closed"}, jobs: map[string]string{"init": "complete/running", "train": "held"}},
			want:  []string{"record init init=0", "reclaim init init=1"},
		},
		"one of them that was recreated stays held, and its quota reclaimed": {
			world: world{started: true, workloads: map[string]string{"init": "admitted succeeded:0 reclaimed1", "train": "closed"}, jobs: map[string]string{"init": "held/running", "train": "held"}},
		},
		"one that is being deleted counts": {
			world: world{started: true, workloads: map[string]string{"init": "admitted", "train": "closed"}, jobs: map[string]string{"init": "complete deleted/complete", "train": "held"}},
			want:  []string{"open train", "finish init=Succeeded"},
		},
		"a restart forgets what is recorded": {
			world: world{started: true, restarts: 1, workloads: map[string]string{"init": "admitted attempt0 succeeded:0", "train": "closed"}, jobs: map[string]string{"init": "held/held", "train": "held"}},
			want:  []string{"record init "},
		},
		"an evicted gang forgets what is recorded": {
			world: world{started: true, gang: true, ready: true, workloads: map[string]string{"init": "admitted evicted succeeded:0", "train": "closed"}, jobs: map[string]string{"init": "held/held", "train": "held"}},
			want:  []string{"record init ", "give back init"},
		},
		"a quota Workload that was deleted with its finished Job is finished again, because a later stage was opened": {
			world: world{started: true, workloads: map[string]string{"init": "waiting", "train": "admitted"}, jobs: map[string]string{"init": "held", "train": "running"}},
			want:  []string{"finish init=Succeeded"},
		},
		"a satisfied success policy opens nothing": {
			world:  world{started: true, workloads: map[string]string{"init": "admitted", "train": "closed"}, jobs: map[string]string{"init": "complete", "train": "held"}},
			policy: &jobset.SuccessPolicy{Operator: jobset.OperatorAny},
			want:   []string{"finish init=Succeeded, the last"},
		},
		"nor does one that names its targets": {
			world:  world{started: true, workloads: map[string]string{"init": "admitted", "train": "closed"}, jobs: map[string]string{"init": "complete", "train": "held"}},
			policy: &jobset.SuccessPolicy{Operator: jobset.OperatorAll, TargetReplicatedJobs: []string{"init"}},
			want:   []string{"finish init=Succeeded, the last"},
		},
		"and closes what waits": {
			world:  world{started: true, ready: true, workloads: map[string]string{"init": "admitted", "train": "waiting"}, jobs: map[string]string{"init": "complete/running", "train": "held"}},
			policy: &jobset.SuccessPolicy{Operator: jobset.OperatorAny},
			want:   []string{"record init init=0", "gate train=tranche.dev/stage", "reclaim init init=1"},
		},
		"and releases nothing": {
			world:  world{started: true, ready: true, workloads: map[string]string{"init": "admitted", "train": "admitted"}, jobs: map[string]string{"init": "complete/running", "train": "held"}},
			policy: &jobset.SuccessPolicy{Operator: jobset.OperatorAny},
			want:   []string{"record init init=0", "gate train=tranche.dev/stage", "reclaim init init=1"},
		},
		"a success policy of other targets opens what comes next": {
			world:  world{started: true, workloads: map[string]string{"init": "admitted", "train": "closed"}, jobs: map[string]string{"init": "complete", "train": "held"}},
			policy: &jobset.SuccessPolicy{Operator: jobset.OperatorAny, TargetReplicatedJobs: []string{"train"}},
			want:   []string{"open train", "finish init=Succeeded"},
		},
		"a Job that has failed closes what waits": {
			world: world{started: true, ready: true, workloads: map[string]string{"init": "admitted", "train": "waiting"}, jobs: map[string]string{"init": "failed", "train": "held"}},
			want:  []string{"gate train=tranche.dev/stage"},
		},
		"so does one that is about to fail": {
			world: world{started: true, ready: true, workloads: map[string]string{"init": "admitted", "train": "waiting"}, jobs: map[string]string{"init": "failing started", "train": "held"}},
			want:  []string{"gate train=tranche.dev/stage"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := c.world.build(t)
			s.JobSet.Spec.SuccessPolicy = c.policy
			w := Next(s)
			var lines []string
			for _, x := range w.Of(quotastep.Change) {
				if isRecord(x) {
					lines = append(lines, fmt.Sprintf("record %s %s", x.After.Name, x.After.Annotations[apis.SucceededJobsAnnotation]))
				}
			}
			if diff := cmp.Diff(c.want, append(lines, render(w)...)); diff != "" {
				t.Errorf("writes differ (-want +got):\n%s", diff)
			}
		})
	}
}

// TestDesiredOfStageTogether starts from one stage of two ReplicatedJobs under InOrder, followed by a third.
func TestDesiredOfStageTogether(t *testing.T) {
	cases := map[string]struct {
		started bool
		jobs    []string
		states  []string
		want    []string
	}{
		"a JobSet starts only when all Jobs of the stage are there":   {false, []string{"left"}, []string{"held"}, nil},
		"it starts when they are":                                     {false, []string{"left", "right"}, []string{"held", "held"}, []string{"start", "release left-0 node=a100", "release right-0 node=a100"}},
		"one whose Jobs were recreated is paused until all are there": {true, []string{"left"}, []string{"held"}, []string{"pause for left.right"}},
		"one of which a Job runs is not":                              {true, []string{"left"}, []string{"running"}, nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := together(t, c.started)
			for i, name := range c.jobs {
				s.Owned.Jobs = append(s.Owned.Jobs, world{}.job(name+"-0", name, strings.Fields(c.states[i])))
			}
			if diff := cmp.Diff(c.want, render(Next(s))); diff != "" {
				t.Errorf("writes differ (-want +got):\n%s", diff)
			}
		})
	}
}

func together(t *testing.T, started bool) *jobsetstate.Snapshot {
	t.Helper()
	s := world{started: started}.build(t)
	js := s.JobSet
	js.Spec.ReplicatedJobs[0].Name, js.Spec.ReplicatedJobs[1].Name = "left", "right"
	js.Spec.ReplicatedJobs = append(js.Spec.ReplicatedJobs, *js.Spec.ReplicatedJobs[1].DeepCopy())
	js.Spec.ReplicatedJobs[2].Name = "eval"
	js.Spec.StartupPolicy.Rules = []jobsetapi.StartupPolicyRule{
		{TargetReplicatedJobs: []string{"left", "right"}, WaitForReplicatedJobsStatus: jobsetapi.ReadyStatus},
	}
	s.Plan = planOf(t, js)
	w := world{}
	s.Owned.Workloads = append(s.Owned.Workloads, w.workload(s, 0, []string{"admitted"}), w.workload(s, 1, []string{"closed"}))
	assignments := &s.Owned.Workloads[0].Status.Admission.PodSetAssignments
	*assignments = slices.Concat(*assignments, *assignments)
	(*assignments)[0].Name, (*assignments)[1].Name = "left", "right"
	return s
}
