package stageplan_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/tranche-dev/tranche/admission/stageplan"
)

// FuzzNew feeds JobSets that no API server has validated.
func FuzzNew(f *testing.F) {
	for _, s := range []*spec{
		nil,
		newSpec(newJob("a", "cpu=1 gpu=2"), newJob("b", "gpu=1", after("a Complete"), parallelism(3), completions(2))),
		inOrder([]string{"a b Succeeded", "c Ready"}, newJob("a", "cpu=1"), newJob("b", ""), newJob("c", ""), newJob("d", "memory=5E")),
		inOrder([]string{"a Ready"}, newJob("b", "cpu=-1", replicas(-1)), newJob("", "", after("b Ready"))),
	} {
		seed, err := json.Marshal(s)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var s spec
		if json.Unmarshal(data, &s) != nil {
			return
		}
		p, err := stageplan.New(&s)
		if (p == nil) == (err == nil) {
			t.Fatalf("New: plan %v, error %v", p, err)
		}
		if err != nil {
			if err.Error() == "" || strings.Contains(err.Error(), "\n") {
				t.Fatalf("error %q is not one line", err)
			}
			return
		}
		if wrong := wellFormed(p, s.ReplicatedJobs); wrong != "" {
			t.Fatalf("%s: %s", p, wrong)
		}
		checkTotals(t, p)
	})
}

// checkTotals checks, of each resource, no negative total and most of any stage <= peak <= sum.
func checkTotals(t *testing.T, p *stageplan.Plan) {
	t.Helper()
	sum, peak := p.Sum(), p.Peak()
	for s := range p.Stages {
		for name, q := range p.Stages[s].Requests() {
			if q.Cmp(peak[name]) > 0 {
				t.Fatalf("%s: stage %d holds %s of %s, peak %v", p, s, q.String(), name, peak)
			}
		}
	}
	for name, q := range peak {
		if q.Sign() <= 0 || q.Cmp(sum[name]) > 0 {
			t.Fatalf("%s: peak %v, sum %v", p, peak, sum)
		}
	}
}
