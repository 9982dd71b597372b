package admission_test

import (
	"testing"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
)

// A stage counts as active, as in Kueue, if only the reservation of another ClusterQueue keeps it from its quota. A stage for which there is no
// quota in any case does not.
func TestActiveBehindReservation(t *testing.T) {
	w := newWorld(t, admission.Config{})
	w.queue("owner", "a100: gpu=2", func(q *kueue.ClusterQueue) {
		q.Spec.CohortName, q.Spec.QueueingStrategy = "lab", kueue.StrictFIFO
		q.Spec.Preemption = &kueue.ClusterQueuePreemption{ReclaimWithinCohort: kueue.PreemptionPolicyLowerPriority}
	})
	w.queue("borrower", "a100: gpu=0", func(q *kueue.ClusterQueue) { q.Spec.CohortName = "lab" })
	pending := func(active, inadmissible int32) {
		t.Helper()
		for _, q := range w.engine.Stats().ClusterQueues {
			if q.Name == "borrower" && (q.Backlog.Active != active || q.Inadmissible != inadmissible) {
				t.Errorf("active %d, inadmissible %d, want %d and %d", q.Backlog.Active, q.Inadmissible, active, inadmissible)
			}
		}
	}
	w.lone("owner", "first", "gpu=1")
	w.wantAdmitted("first")
	w.lone("owner", "second", "gpu=2")
	w.wantAdmitted()
	w.lone("borrower", "small", "gpu=1")
	w.lone("borrower", "large", "gpu=2")
	w.wantAdmitted()
	pending(1, 1)
	w.change("first", finish)
	w.wantAdmitted("second")
	pending(0, 2)
}
