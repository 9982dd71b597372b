package admission_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
)

func withWeight(weight string) func(*kueue.ClusterQueue) {
	return func(q *kueue.ClusterQueue) {
		w := resource.MustParse(weight)
		q.Spec.FairSharing = &kueue.FairSharing{Weight: &w}
	}
}

// TestFairSharing: two queues borrow from a third, which owns 6 and uses none.
func TestFairSharing(t *testing.T) {
	for name, tc := range map[string]struct {
		config    admission.Config
		weight    string
		want      []string
		wantShare int64
	}{
		"first come, first served": {want: []string{"p1", "p2", "p3"}},
		"equal shares":             {config: admission.Config{FairSharing: true}, weight: "1", want: []string{"p1", "q1", "p2"}, wantShare: 667},
		"twice the weight":         {config: admission.Config{FairSharing: true}, weight: "2", want: []string{"q1", "p1", "q2"}, wantShare: 334},
		"no weight":                {config: admission.Config{FairSharing: true}, weight: "0", want: []string{"p1", "p2", "p3"}, wantShare: 1000},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, tc.config)
			if tc.weight == "" {
				tc.weight = "1"
			}
			w.queue("owner", "a100: gpu=6", inCohort("c"))
			w.queue("p", "a100: gpu=0", inCohort("c"))
			w.queue("q", "a100: gpu=0", inCohort("c"), withWeight(tc.weight))
			for _, name := range []string{"p1", "p2", "p3", "q1", "q2"} {
				w.lone(name[:1], name, "gpu=2")
			}
			w.wantAdmitted(tc.want...)
			heaviest := int64(0)
			for _, name := range []string{"p", "q"} {
				if view, _ := w.engine.ClusterQueue(name); view.FairSharing != nil {
					heaviest = max(heaviest, view.FairSharing.WeightedShare)
				}
			}
			if heaviest != tc.wantShare {
				t.Errorf("the largest share is %d, want %d", heaviest, tc.wantShare)
			}
		})
	}
}
