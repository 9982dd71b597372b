package trace

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/simulator/replay"
	"github.com/tranche-dev/tranche/test/sample"
)

// The JobSet is evicted at 10 minutes and runs again from 20 on: then the leader waits for the workers of that run. Each of the two Jobs of workers has its
// own part of their GPUs.
func TestUsageOfJobsThatRunAgain(t *testing.T) {
	a := &replay.Arrival{JobSet: &jobsetapi.JobSet{}}
	a.JobSet.Spec.ReplicatedJobs = []jobsetapi.ReplicatedJob{
		sample.ReplicatedJob("leader", 1, sample.Amounts("nvidia.com/gpu", "1"), nil), sample.ReplicatedJob("workers", 2, sample.Amounts("nvidia.com/gpu", "4"), nil),
	}
	a.JobSet.Spec.ReplicatedJobs[1].Replicas = 2
	a.JobSet.Spec.ReplicatedJobs[1].DependsOn = []jobset.DependsOn{{Name: "leader", Status: jobset.DependencyReady}}
	minute := func(n int) time.Time { return begin.Add(time.Duration(n) * time.Minute) }
	execution := func(name string, index, started, ready, ended int) replay.Execution {
		return replay.Execution{Job: replay.Job{ReplicatedJob: name, Index: index}, Started: minute(started), Ready: minute(ready), Ended: minute(ended)}
	}
	u := usage{begin: begin, resource: "nvidia.com/gpu"}
	u.add(&replay.Result{Arrival: a, Executions: []replay.Execution{
		execution("leader", 0, 0, 1, 10), execution("workers", 0, 5, 5, 10), execution("workers", 1, 5, 6, 10),
		execution("leader", 0, 20, 21, 40), execution("workers", 0, 25, 25, 30), execution("workers", 1, 25, 25, 40),
	}})
	used, want := (5.0+15)+8*(5+4+5+15), Idle{NotReady: 60 * (1 + 1 + 8*1), WaitsForStage: 60 * (4 + 4)}
	if diff := cmp.Diff(want, u.idle); diff != "" || u.used != 60*used {
		t.Errorf("used %v, want %v; idle: -want +got\n%s", u.used/60, used, diff)
	}
	if held, used := Mean([]Step{{0, 8, 4}, {10, 2, 2}, {20, 0, 0}}, 5, 25); held != 3 || used != 2 {
		t.Errorf("held %v and used %v in the mean", held, used)
	}
}
