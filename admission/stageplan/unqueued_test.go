package stageplan_test

import (
	"testing"

	"github.com/tranche-dev/tranche/admission/stageplan"
)

func TestNewUnqueuedHasNoLimits(t *testing.T) {
	for name, c := range map[string]struct{ stages, jobs int }{
		"too many ReplicatedJobs for a quota Workload": {2, stageplan.MaxReplicatedJobs + 1},
		"too many stages for the engine":               {stageplan.MaxStages + 1, 1},
	} {
		spec := layered(c.stages, c.jobs)
		if _, err := stageplan.New(spec); err == nil {
			t.Errorf("%s: New accepts it", name)
		}
		plan, err := stageplan.NewUnqueued(spec)
		if err != nil {
			t.Fatalf("%s: NewUnqueued: %v", name, err)
		}
		if len(plan.Stages) != c.stages || len(plan.Stages[0].ReplicatedJobs) != c.jobs {
			t.Errorf("%s: %d stages, the first of %d ReplicatedJobs", name, len(plan.Stages), len(plan.Stages[0].ReplicatedJobs))
		}
	}
	if _, err := stageplan.NewUnqueued(inOrder([]string{"a Ready"}, newJob("b", ""), newJob("c", ""))); err == nil {
		t.Error("NewUnqueued accepts a rule that names no ReplicatedJob of the JobSet")
	}
}
