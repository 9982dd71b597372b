package stageplan_test

import (
	"fmt"
	"strings"
	"testing"

	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/tranche-dev/tranche/admission/stageplan"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
)

func chain(n int, status jobset.DependsOnStatus) *jobsetapi.JobSetSpec {
	spec := &jobsetapi.JobSetSpec{}
	for i := range n {
		job := jobsetapi.ReplicatedJob{}
		job.Name, job.Replicas = fmt.Sprintf("j%d", i), 1
		if i > 0 {
			job.DependsOn = []jobset.DependsOn{{Name: fmt.Sprintf("j%d", i-1), Status: status}}
		}
		spec.ReplicatedJobs = append(spec.ReplicatedJobs, job)
	}
	return spec
}

func TestWhole(t *testing.T) {
	for _, tt := range []struct {
		n               int
		status          jobset.DependsOnStatus
		holds           bool
		wantName, wantE string
	}{
		{3, jobset.DependencyReady, true, "j0.j1.j2", ""},
		{3, jobset.DependencyComplete, false, "j0.j1.j2", ""},
		{19, jobset.DependencyReady, true, "", "has 19 entries, and at most 18 can be admitted together"},
	} {
		plan, err := stageplan.New(chain(tt.n, tt.status))
		if err != nil {
			t.Fatal(err)
		}
		if plan.HoldsAndWaits() != tt.holds {
			t.Errorf("%s holds and waits: %t", plan, plan.HoldsAndWaits())
		}
		whole, err := stageplan.Whole(plan)
		if tt.wantE != "" {
			if err == nil || !strings.Contains(err.Error(), tt.wantE) {
				t.Errorf("%s: error %v, want %q", plan, err, tt.wantE)
			}
			continue
		}
		if err != nil || len(whole.Stages) != 1 || whole.Stages[0].Name != tt.wantName || len(whole.Stages[0].PodSets) != tt.n || whole.HoldsAndWaits() {
			t.Errorf("%s as a whole is %v, %v", plan, whole, err)
		}
	}
}
