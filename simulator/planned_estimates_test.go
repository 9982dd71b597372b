package simulator_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/simulator"
)

// TestPlansWithEstimates plans where a stage without a limit is expected to take as long as earlier ones did. Only times that depend on this are
// estimates: not those in queues that share no quota, and not those that follow the end of a stage by its limit.
func TestPlansWithEstimates(t *testing.T) {
	const text = "# story\nqueue ml gpu=4\nqueue other gpu=4\nqueue third gpu=4\nsubmit train-9 queue=ml stages=train(gpu=4)\nsubmit waits queue=ml pods=gpu:4 at=1m\n" +
		"submit limited queue=other pods=gpu:4 max-time=90m\nsubmit behind queue=other pods=gpu:4 at=1m\n" +
		"submit train-5 queue=third stages=train(gpu=4) max-time=30m\nsubmit last queue=third pods=gpu:4 at=1m\n"
	paused, err := simulator.Pause(text, 5*time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	s := paused.Taken
	begin := s.TakenAt.Add(-5 * time.Minute)
	s.JobSets = append(s.JobSets, ended(t, "train-7", "train", begin.Add(-4*time.Hour), time.Hour), ended(t, "train-8", "train", begin.Add(-2*time.Hour), time.Hour))
	for quotas, want := range map[string][]string{
		"ml/default/gpu=8":    {`Earlier waits 1h0m0s "from the last 2 runs of stage train of JobSet default/train-*" -> 5m0s ""`},
		"other/default/gpu=8": {`Earlier behind 1h30m0s "" -> 5m0s ""`},
		"third/default/gpu=8": {`Earlier last 30m0s "" -> 5m0s ""`},
		"ml/default/gpu=3":    {"NeverFits waits"},
	} {
		t.Run(quotas, func(t *testing.T) {
			quota, err := plan.ParseQuota(quotas)
			if err != nil {
				t.Fatal(err)
			}
			change, err := plan.Quotas(s, []plan.Quota{quota})
			if err != nil {
				t.Fatal(err)
			}
			p, err := plan.New(change, &simulator.Durations{PastRuns: change.PastRuns()}, 24*time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for i := range p.Consequences {
				got = append(got, consequenceLine(&p.Consequences[i], begin))
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// consequenceLine describes a consequence, with times since the beginning.
func consequenceLine(c *plan.Consequence, begin time.Time) string {
	text := fmt.Sprintf("%s %s", c.Kind, c.Workload)
	if c.Before != nil {
		text += fmt.Sprintf(" %s %q -> ", c.Before.Sub(begin), c.BeforeBasis)
		text += fmt.Sprintf("%s %q", c.After.Sub(begin), c.AfterBasis)
	}
	return text
}
