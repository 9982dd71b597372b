package replay_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/tranche-dev/tranche/simulator/replay"
)

// TestExecutions: the pods of a Job run from the admission of their stage, or from when the stages before them have reached what they wait for, until
// they end or are stopped.
func TestExecutions(t *testing.T) {
	limited, early := pipeline("limited", 0), pipeline("early", 0)
	limited.JobSet.Labels["kueue.x-k8s.io/max-exec-time-seconds"] = "900"
	early.JobSet.Labels["kueue.x-k8s.io/max-exec-time-seconds"] = "300"
	restarted := pipeline("restarted", 0)
	restarted.JobSet.Spec.FailurePolicy = &jobset.FailurePolicy{MaxRestarts: 1}
	restarted.Jobs[replay.Job{ReplicatedJob: "train"}] = replay.Course{Run: 5 * time.Minute, Ready: time.Minute, GetsReady: true, Ends: true, Fails: true}
	restarted.Jobs[replay.Job{ReplicatedJob: "train", Attempt: 1}] = replay.Course{Run: 20 * time.Minute, Ready: time.Minute, GetsReady: true, Ends: true}
	never := pipeline("never", 0)
	never.Jobs[replay.Job{ReplicatedJob: "prepare"}] = replay.Course{GetsReady: true}
	leader, again := pipeline("leader", 0), pipeline("again", 0)
	for _, a := range []*replay.Arrival{leader, again} {
		openByReady(a)
	}
	again.JobSet.Spec.FailurePolicy = restarted.JobSet.Spec.FailurePolicy
	maps.Copy(again.Jobs, map[replay.Job]replay.Course{
		{ReplicatedJob: "train"}:             restarted.Jobs[replay.Job{ReplicatedJob: "train"}],
		{ReplicatedJob: "train", Attempt: 1}: restarted.Jobs[replay.Job{ReplicatedJob: "train", Attempt: 1}],
	})
	for name, c := range map[string]struct {
		arrival       *replay.Arrival
		whole, staged []string
	}{
		"one after the other": {pipeline("a", 0), []string{"prepare 0s 0s 10m0s", "train 10m0s 10m0s 30m0s"}, []string{"prepare 0s 0s 10m0s", "train 10m0s 10m0s 30m0s"}},
		"stopped at the limit of a quota Workload": {
			limited, []string{"prepare 0s 0s 10m0s", "train 10m0s 10m0s 15m0s"}, []string{"prepare 0s 0s 10m0s", "train 10m0s 10m0s 25m0s"},
		},
		"stopped before a stage begins": {early, []string{"prepare 0s 0s 5m0s"}, []string{"prepare 0s 0s 5m0s"}},
		"restarted": {
			restarted,
			[]string{"prepare 0s 0s 10m0s", "prepare 15m0s 15m0s 25m0s", "train 10m0s 11m0s 15m0s", "train 25m0s 26m0s 45m0s"},
			[]string{"prepare 0s 0s 10m0s", "prepare 15m0s 15m0s 25m0s", "train 10m0s 11m0s 15m0s", "train 25m0s 26m0s 45m0s"},
		},
		"without an end": {never, []string{"prepare 0s 0s 2h0m0s"}, []string{"prepare 0s 0s 2h0m0s"}},
		"deleted with the JobSet": {
			leader, []string{"prepare 0s 2m0s 22m0s", "train 2m0s 2m0s 22m0s"}, []string{"prepare 0s 2m0s 22m0s", "train 2m0s 2m0s 22m0s"},
		},
		"deleted by a restart": {
			again,
			[]string{"prepare 0s 2m0s 7m0s", "prepare 7m0s 9m0s 29m0s", "train 2m0s 3m0s 7m0s", "train 9m0s 10m0s 29m0s"},
			[]string{"prepare 0s 2m0s 7m0s", "prepare 7m0s 9m0s 29m0s", "train 2m0s 3m0s 7m0s", "train 9m0s 10m0s 29m0s"},
		},
	} {
		for policy, want := range map[replay.Policy][]string{replay.Whole: c.whole, replay.Staged: c.staged} {
			t.Run(name+", "+string(policy), func(t *testing.T) {
				o, err := replay.Run(input(4, c.arrival), policy)
				if err != nil {
					t.Fatal(err)
				}
				var got []string
				for _, e := range o.Results[0].Executions {
					got = append(got, fmt.Sprint(e.ReplicatedJob, " ", clock(e.Started), " ", clock(e.Ready), " ", clock(e.Ended)))
				}
				slices.Sort(got)
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("-want +got\n%s", diff)
				}
			})
		}
	}
}

// openByReady lets the pods of the first ReplicatedJob run until those of the second one have ended, which start when they are ready, after 2 minutes.
func openByReady(a *replay.Arrival) {
	a.JobSet.Spec.ReplicatedJobs[1].DependsOn[0].Status = jobset.DependencyReady
	a.JobSet.Spec.SuccessPolicy = &jobset.SuccessPolicy{Operator: jobset.OperatorAll, TargetReplicatedJobs: []string{"train"}}
	a.Jobs[replay.Job{ReplicatedJob: "prepare"}] = replay.Course{Ready: 2 * time.Minute, GetsReady: true}
}
