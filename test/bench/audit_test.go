package bench_test

import (
	"fmt"
	"testing"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
)

// BenchmarkAudit measures one audit of the engine with a ClusterQueue and a LocalQueue for each 4 JobSets, each of which has three stages.
func BenchmarkAudit(b *testing.B) {
	for _, holders := range []int{100, 1000, 10000} {
		b.Run(fmt.Sprintf("holders=%d", holders), func(b *testing.B) {
			y := newYard(b, holders/4, 18*int64(holders), kueue.BestEffortFIFO, admission.Config{})
			for range holders {
				y.submit()
			}
			y.decide()
			for b.Loop() {
				if wrong := y.engine.Violations(); len(wrong) > 0 {
					b.Fatal(wrong)
				}
			}
			record(b)
		})
	}
}
