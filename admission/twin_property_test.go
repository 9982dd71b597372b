package admission_test

import (
	"maps"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
)

// TestNoStageWaitsForever: when all that hold quota finish, whatever happened before, every quota Workload is admitted that could be if nothing
// were charged; under StrictFIFO too, since each becomes the head.
func TestNoStageWaitsForever(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := newHistory(t)
		h.furnish()
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			h.step()
			if rapid.IntRange(0, 2).Draw(t, "decides") > 0 {
				h.decide()
			}
		}
		for range len(h.twin.workloads) + 2 {
			h.decide()
			h.finishAll()
		}
		h.decide()
		for key, wl := range h.twin.workloads {
			if h.twin.outOfLine(wl) == "" && h.twin.misconfigured(wl) == "" {
				t.Fatalf("%s waits forever: %v", key, h.engine.Explain(key))
			}
		}
	})
}

// finishAll writes all decisions, and lets all that hold quota finish.
func (h *history) finishAll() {
	for _, d := range h.unsettled {
		switch d := d.(type) {
		case admission.Admit:
			h.change(d.Stage, d.UID, func(wl *kueue.Workload) { h.reserve(wl, &d) })
			h.settle(d, d.ID, "written")
		case admission.Evict:
			h.change(d.Stage, d.UID, h.evict)
			h.settle(d, d.ID, "written")
		case admission.Refuse, admission.Notice:
		}
	}
	h.unsettled = nil
	for _, key := range slices.SortedFunc(maps.Keys(h.twin.workloads), compareStageKeys) {
		if wl := h.twin.workloads[key]; h.twin.holds(wl) != nil {
			h.change(key, wl.UID, finish)
		}
	}
}

// checkOrder: in a ClusterQueue with StrictFIFO, no stage is admitted while a stage before it waits for quota, except stages that pass. It checks
// only admitted stages that belong to no JobSet: they never pass. A JobSet of which a stage is admitted in the same call may have come to precede
// them only then.
func (h *history) checkOrder(decisions []admission.Decision, want verdict) {
	h.t.Helper()
	begun := map[types.UID]bool{}
	for _, d := range decisions {
		if a, ok := d.(admission.Admit); ok && a.JobSet != "" {
			begun[ownerOf(h.twin.workloads[a.Stage])] = true
		}
	}
	for _, d := range decisions {
		a, ok := d.(admission.Admit)
		if !ok || a.JobSet != "" || h.twin.queues[string(a.Admission.ClusterQueue)].Spec.QueueingStrategy != kueue.StrictFIFO {
			continue
		}
		for key, check := range want.refused {
			wl := h.twin.workloads[key]
			if check != "QuotaFits" && check != "StrictFIFO" || begun[ownerOf(wl)] {
				continue
			}
			if h.twin.localQueueOf(wl).Spec.ClusterQueue == a.Admission.ClusterQueue && h.twin.comparePlaces(wl, h.twin.workloads[a.Stage]) < 0 {
				h.t.Fatalf("%s overtakes %s", a.Stage, key)
			}
		}
	}
}
