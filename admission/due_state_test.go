package admission_test

import (
	"slices"
	"testing"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
)

// TestTakeoverOfADueQueue: a stage that becomes due instead of a member of a co-admission group is not held up by what was due for the group elsewhere.
func TestTakeoverOfADueQueue(t *testing.T) {
	w := newWorld(t, admission.Config{Reservation: admission.Reservation{IsEnabled: true, After: time.Minute}})
	busy := []string{"busy-p", "busy-q", "busy-r"}
	for i, q := range []string{"p", "q", "r"} {
		size := []string{"gpu=3", "gpu=2", "gpu=2"}[i]
		w.queue(q, "a: "+size, inCohort("team"))
		w.lone(q, busy[i], size)
	}
	w.decide()
	w.lone("q", "g0", "gpu=1", together("g", 2))
	w.lone("r", "g1", "gpu=2", together("g", 2))
	w.decide()
	w.clock += 30
	w.lone("r", "first", "gpu=3", func(wl *kueue.Workload) { wl.Spec.Priority = new(int32(1)) })
	w.decide()
	w.clock += 40
	w.decide()
	w.clock += 60
	for _, name := range busy {
		w.change(name, finish)
	}
	if admitted := w.decide(); !slices.Equal(admitted, []string{"first", "g0", "g1"}) {
		t.Errorf("admitted %v, want all that fits; refusals %v", admitted, w.refusals)
	}
}
