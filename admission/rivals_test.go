package admission_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
)

// TestManyRivals has many stages of three sizes, the larger the more important, in six queues that reclaim from each other while pods of victims
// still terminate. Many preemptors count on the same victims then. Each call of Decide ends.
func TestManyRivals(t *testing.T) {
	for seed := range uint64(6) {
		r := rand.New(rand.NewPCG(seed, 0))
		w := newWorld(t, admission.Config{})
		for q := range 6 {
			w.queue(fmt.Sprint("q", q), "a: gpu=20", inCohort("c"), withLimits(100, -1), func(c *kueue.ClusterQueue) {
				c.Spec.Preemption = &kueue.ClusterQueuePreemption{
					ReclaimWithinCohort: kueue.PreemptionPolicyAny, WithinClusterQueue: kueue.PreemptionPolicyLowerPriority,
				}
			})
		}
		for n := range 600 {
			if n%2 == 0 {
				w.rival(r, n)
			}
			w.decide()
			w.moveOne(r)
		}
	}
}

// rival submits a stage to one of the queues.
func (w *world) rival(r *rand.Rand, n int) {
	size, priority := 1, int32(50)
	switch k := r.IntN(10); {
	case k == 9:
		size, priority = 20, 200
	case k >= 7:
		size, priority = 5, 100
	}
	w.important(fmt.Sprint("q", r.IntN(6)), fmt.Sprint("w", n), fmt.Sprintf("gpu=%d", size), priority)
}

// moveOne lets a victim leave now and then, and else a stage finish.
func (w *world) moveOne(r *rand.Rand) {
	var running, leaving []string
	for _, key := range slices.SortedFunc(maps.Keys(w.workloads), compareNames) {
		switch wl := w.workloads[key]; {
		case isFinished(wl) || wl.Status.Admission == nil:
		case isLeaving(wl):
			leaving = append(leaving, key.Name)
		default:
			running = append(running, key.Name)
		}
	}
	switch {
	case len(leaving) > 0 && r.IntN(2) == 0:
		w.leave(leaving[r.IntN(len(leaving))])
	case len(running) > 0 && r.IntN(3) == 0:
		w.change(running[r.IntN(len(running))], finish)
	}
}
