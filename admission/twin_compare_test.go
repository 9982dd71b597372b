package admission_test

import (
	"maps"
	"slices"

	"github.com/google/go-cmp/cmp"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/quota"
)

// decide lets the Engines and the twin decide, and compares.
func (h *history) decide() {
	h.t.Helper()
	if at, ok := h.engine.NextTime(); ok && h.chance("waits", 10) && at.After(h.now) {
		h.now = at
	}
	decisions := h.engine.Decide(h.now)
	if diff := cmp.Diff(decisions, h.second.Decide(h.now)); diff != "" {
		h.t.Fatalf("the same input leads to different decisions: %s", diff)
	}
	var got verdict
	h.t.Logf("decided %v", decisions)
	for _, d := range decisions {
		switch d := d.(type) {
		case admission.Admit:
			got.admitted = append(got.admitted, d.Stage.String()+" "+describe(d.Admission, d.Checks))
			h.unsettled = append(h.unsettled, d)
			delete(h.told, d.Stage)
		case admission.Evict:
			got.evicted = append(got.evicted, d.Stage.String()+" "+d.Reason)
			h.unsettled = append(h.unsettled, d)
		case admission.Refuse:
			h.told[d.Stage] = d.Refusal
		case admission.Notice:
			h.t.Fatalf("%s, although no victim has notice", d)
		}
	}
	want := h.twin.decide(h.now)
	if diff := cmp.Diff(want.evicted, got.evicted); diff != "" {
		h.t.Fatalf("evicted (-twin +engine): %s", diff)
	}
	if diff := cmp.Diff(want.admitted, got.admitted); diff != "" {
		h.t.Fatalf("admitted (-twin +engine): %s", diff)
	}
	for _, d := range decisions {
		if a, ok := d.(admission.Admit); ok && !h.isWithinLimits(&a.Admission) {
			h.t.Fatalf("more is used than the limits allow after %s", a)
		}
	}
	h.checkOrder(decisions, want)
	h.compareRefusals(want)
	h.compareUsage(want)
	if v := h.engine.Violations(); len(v) > 0 {
		h.t.Fatalf("violations: %v", v)
	}
	if again := h.engine.Decide(h.now); len(again) > 0 {
		h.t.Fatalf("decided at once again: %v", again)
	}
	h.second.Decide(h.now)
}

func (h *history) compareRefusals(want verdict) {
	h.t.Helper()
	for _, key := range slices.SortedFunc(maps.Keys(h.twin.workloads), compareStageKeys) {
		var explained admission.Refusal
		for _, explained = range h.engine.Explain(key) {
			continue
		}
		if explained.Check != want.refused[key] {
			h.t.Fatalf("%s is refused by %q, the twin says %q: %v\nall: %v", key, explained.Check, want.refused[key], explained, want.refused)
		}
		if h.twin.outOfLine(h.twin.workloads[key]) != "" {
			delete(h.told, key)
		} else if told := h.told[key]; told.Reason != explained.Reason || told.String() != explained.String() && told.Reason != kueue.WorkloadQuotaReservedReasonWaitingForQuota {
			h.t.Fatalf("%s was told %v, and is refused by %v", key, told, explained)
		}
	}
}

func (h *history) compareUsage(want verdict) {
	h.t.Helper()
	for name := range h.twin.queues {
		view, _ := h.engine.ClusterQueue(name)
		used := bill{}
		for _, f := range view.FlavorsHeld {
			for _, r := range f.Resources {
				fr := quota.FlavorResource{Flavor: f.Name, Resource: r.Name}
				used[fr], _ = quota.Of(r.Name, r.Total)
				if r.Total.Sign() < 0 || used[fr] != want.used[name][fr] {
					h.t.Fatalf("%s uses %s of %v, the twin says %d", name, r.Total.String(), fr, want.used[name][fr])
				}
			}
		}
	}
}

// isWithinLimits reports whether an admission that counts keeps all places within the limits (I1).
func (h *history) isWithinLimits(a *kueue.Admission) bool {
	place, b := h.twin.charged()["queue "+string(a.ClusterQueue)], bill{}
	for _, p := range a.PodSetAssignments {
		for r, f := range p.Flavors {
			amount, _ := quota.Of(r, p.ResourceUsage[r])
			b[quota.FlavorResource{Flavor: f, Resource: r}] += amount
		}
	}
	place.release(b)
	return place.fits(b)
}
