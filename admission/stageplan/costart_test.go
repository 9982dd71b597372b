package stageplan_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tranche-dev/tranche/admission/stageplan"
)

func TestStartedBy(t *testing.T) {
	ready := func(stage int) stageplan.Condition {
		return stageplan.Condition{Stage: stage, Targets: []string{"job"}, Status: stageplan.Ready}
	}
	succeeded := func(stage int) stageplan.Condition {
		return stageplan.Condition{Stage: stage, Targets: []string{"job"}, Status: stageplan.Succeeded}
	}
	chain := [][]stageplan.Condition{nil, {ready(0)}, {ready(1)}, {succeeded(2)}}
	tests := map[string]struct {
		after                        [][]stageplan.Condition
		launchers, running, finished []int
		want                         []int
	}{
		"a chain":                          {after: chain, launchers: []int{0}, want: []int{1, 2}},
		"its middle":                       {after: chain, launchers: []int{1}, running: []int{0, 1}, want: []int{2}},
		"its end":                          {after: chain, launchers: []int{2}, running: []int{0, 1, 2}},
		"what runs is left out":            {after: chain, launchers: []int{0}, running: []int{0, 1}},
		"two launchers":                    {after: chain, launchers: []int{0, 1}, running: []int{0, 1}, want: []int{2}},
		"what has finished is left out":    {after: chain, launchers: []int{0}, finished: []int{1}},
		"of two conditions one is missing": {after: [][]stageplan.Condition{nil, nil, {ready(0), ready(1)}}, launchers: []int{0}},
		"the other one runs":               {after: [][]stageplan.Condition{nil, nil, {ready(0), ready(1)}}, launchers: []int{0}, running: []int{1}, want: []int{2}},
		"the other one has finished":       {after: [][]stageplan.Condition{nil, nil, {ready(0), succeeded(1)}}, launchers: []int{0}, finished: []int{1}, want: []int{2}},
		"the other one must succeed":       {after: [][]stageplan.Condition{nil, nil, {ready(0), succeeded(1)}}, launchers: []int{0}, running: []int{1}},
		"one of the same stage succeeds":   {after: [][]stageplan.Condition{nil, {ready(0), succeeded(0)}}, launchers: []int{0}},
		"without a launcher":               {after: [][]stageplan.Condition{nil, nil, {ready(1)}}, launchers: []int{0}, running: []int{1}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			plan := &stageplan.Plan{}
			for _, conditions := range tt.after {
				plan.Stages = append(plan.Stages, stageplan.Stage{ReplicatedJobs: []string{"job"}, After: conditions})
			}
			set := func(stages []int) []bool {
				values := make([]bool, len(plan.Stages))
				for _, s := range stages {
					values[s] = true
				}
				return values
			}
			got := plan.StartedBy(set(tt.launchers), set(tt.running), set(tt.finished))
			if diff := cmp.Diff(slices.Concat(tt.want), slices.Concat(got)); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}
