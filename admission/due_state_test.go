package admission_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
)

// TestStartAfterAnEnd explains a due stage after a stage has been deleted whose end its expected start counted on, and before the next decision.
func TestStartAfterAnEnd(t *testing.T) {
	limit := func(wl *kueue.Workload) { wl.Spec.MaximumExecutionTimeSeconds = new(int32(7200)) }
	w := newWorld(t, admission.Config{Reservation: admission.Reservation{IsEnabled: true, After: time.Minute}})
	w.queue("p", "a: gpu=0 cpu=4", inCohort("team"))
	w.queue("q", "a: gpu=8", inCohort("team"))
	w.lone("p", "busy-p", "gpu=4", limit)
	w.lone("q", "busy-q", "gpu=4", limit)
	w.lone("p", "small-1", "cpu=1", limit)
	w.lone("p", "small-2", "cpu=1", limit)
	w.decide()
	w.lone("p", "due-p", "cpu=4")
	w.lone("q", "due-q", "gpu=6")
	w.decide()
	w.untilDue()
	w.clock++
	w.change("small-1", finish)
	w.decide()
	w.engine.Apply(admission.WorkloadGone{Key: keyOf("busy-p")})
	const want = "it starts by 2026-01-01T02:00:3"
	if x, _ := w.engine.Explanation(keyOf("due-q")); !strings.Contains(x.Message, want) {
		t.Errorf("explained by %q, want %q", x.Message, want)
	}
}

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
