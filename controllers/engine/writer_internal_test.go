package engine

import (
	"testing"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// An admission must not be written to a quota Workload that has come to ask for more pods, or fewer, since it was decided.
func TestAsksFor(t *testing.T) {
	const given = 4
	cases := map[string]struct {
		asked, reclaimable int32
		least              *int32
		want               bool
	}{
		"what was decided on":             {asked: 4, want: true},
		"more":                            {asked: 8},
		"fewer":                           {asked: 3},
		"some were reclaimable":           {asked: 6, reclaimable: 2, want: true},
		"more than are reclaimable":       {asked: 8, reclaimable: 2},
		"some have become so since":       {asked: 4, reclaimable: 2, want: true},
		"it takes fewer than it asks for": {asked: 8, least: new(int32(2)), want: true},
		"but not that few":                {asked: 8, least: new(int32(5))},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			workload := &kueue.Workload{Spec: kueue.WorkloadSpec{PodSets: []kueue.PodSet{{Name: "main", Count: c.asked, MinCount: c.least}}}}
			workload.Status.ReclaimablePods = []kueue.ReclaimablePod{{Name: "main", Count: c.reclaimable}}
			admission := &kueue.Admission{PodSetAssignments: []kueue.PodSetAssignment{{Name: "main", Count: new(int32(given))}}}
			if got := asksFor(workload, admission); got != c.want {
				t.Errorf("asksFor = %t, want %t", got, c.want)
			}
		})
	}
}
