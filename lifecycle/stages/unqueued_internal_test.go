package stages

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
)

func TestFinishedStages(t *testing.T) {
	cases := map[string]struct {
		annotation string
		want       []string
	}{
		"nothing":            {"", nil},
		"of this attempt":    {`{"attempt":2,"stages":["init","launch"]}`, []string{"init", "launch"}},
		"of another attempt": {`{"attempt":1,"stages":["init"]}`, nil},
		"not of the manager": {`{"attempt":"2"`, nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			js := &jobsetapi.JobSet{}
			js.Status.Restarts, js.Annotations = 2, map[string]string{apis.FinishedStagesAnnotation: c.annotation}
			if got := jobsetstate.FinishedStages(js); !slices.Equal(got, c.want) {
				t.Errorf("finishedStages = %q, want %q", got, c.want)
			}
		})
	}
}

// TestUnqueuedTogether starts from a JobSet without a queue whose first stage has two ReplicatedJobs under InOrder, followed by a third.
func TestUnqueuedTogether(t *testing.T) {
	cases := map[string]struct {
		suspended, paused bool
		jobs              map[string]string
		want              []string
	}{
		"no Jobs yet":                 {want: []string{"pause for left.right"}},
		"the first Job":               {jobs: map[string]string{"left": "held"}, want: []string{"pause for left.right"}},
		"paused, one is missing":      {suspended: true, paused: true, jobs: map[string]string{"left": "held"}},
		"paused, all are there":       {suspended: true, paused: true, jobs: map[string]string{"left": "held", "right": "held"}, want: []string{"start"}},
		"resumed by its user":         {paused: true, jobs: map[string]string{"left": "held"}, want: []string{"start"}},
		"resumed":                     {jobs: map[string]string{"left": "held", "right": "held"}, want: []string{"release left-0 node=", "release right-0 node="}},
		"suspended by its user":       {suspended: true, jobs: map[string]string{"left": "held"}},
		"a Job of the attempt runs":   {jobs: map[string]string{"left": "running"}},
		"one Job is restarted alone":  {jobs: map[string]string{"left": "held", "right": "running"}, want: []string{"release left-0 node="}},
		"one waits and the other not": {jobs: map[string]string{"left": "running", "right": "held"}, want: []string{"release right-0 node="}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := together(t, true)
			s.IsUnqueued, s.Owned.Workloads = true, nil
			js := s.JobSet
			js.Labels, js.Annotations, js.Spec.Suspend = nil, map[string]string{}, &c.suspended
			if c.paused {
				js.Annotations[apis.PausedAnnotation] = "true"
			}
			for _, name := range slices.Sorted(maps.Keys(c.jobs)) {
				s.Owned.Jobs = append(s.Owned.Jobs, world{}.job(name+"-0", name, strings.Fields(c.jobs[name])))
			}
			if diff := cmp.Diff(c.want, render(Next(s))); diff != "" {
				t.Errorf("writes differ (-want +got):\n%s", diff)
			}
		})
	}
}
