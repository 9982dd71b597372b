package admission_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/apis"
)

// wantNoneOverlooked lets the Engine decide until nothing more happens at this time, and then check all pending stages again: none of them passes, since
// whatever lets a stage pass wakes it. It waits until victims have left, and the rest of a co-admission group that was preempted.
func (m *model) wantNoneOverlooked(t *rapid.T) {
	evict := func(d admission.Evict) {
		if js := m.jobSetOf(d.Stage); js == nil {
			m.evict(d.Stage.Name, d.Reason)
		} else {
			m.evictJobSet(js, d.Reason)
		}
	}
	for decided := 1; decided > 0; {
		decided, _ = m.write(t, m.engine.Decide(m.now()), evict)
	}
	if m.isInBetween() {
		return
	}
	m.engine.RecheckAll()
	for _, d := range m.engine.Decide(m.now()) {
		if !m.mayComeLate(d) {
			t.Fatalf("only when all are checked again: %v", d)
		}
	}
}

// isInBetween reports whether victims have to leave, or some members of a co-admission group hold quota while others wait for it.
func (m *model) isInBetween() bool {
	holds, waits := map[string]bool{}, map[string]bool{}
	for _, wl := range m.workloads {
		if group := wl.Labels[apis.AdmitTogetherLabel]; isFinished(wl) {
			continue
		} else if isLeaving(wl) {
			return true
		} else if wl.Status.Admission != nil {
			holds[group] = group != ""
		} else {
			waits[group] = true
		}
	}
	for group := range holds {
		if holds[group] && waits[group] {
			return true
		}
	}
	return false
}

// mayComeLate reports whether nothing is lost by a decision that is made only when all are checked again: a stage that fits evicts no other, although it would
// delay a due stage. It may do so when others have taken what is free.
func (m *model) mayComeLate(d admission.Decision) bool {
	switch d := d.(type) {
	case admission.Refuse:
		return true
	case admission.Evict:
		return d.Preemption != nil && m.refusals[d.Preemption.Preemptor].Check == admission.DelaysNone
	default:
		return false
	}
}

// TestNoneIsOverlooked: in a stream with due stages, time limits, co-admission groups and preemption, no stage stays parked that passes.
func TestNoneIsOverlooked(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawStream(t)
		s.stepped = s.wantNoneOverlooked
		if rapid.Bool().Draw(t, "oversized") {
			s.lone("q", oversized, fmt.Sprintf("gpu=%d", s.nominal("q")+1))
		}
		s.submitTo(t, "q", large)
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			s.step(t)
		}
		s.round(t)
	})
}

// TestReclaimerIsWokenByObservedBorrower: a ClusterQueue borrows for a quota Workload that is first observed with quota, as after an adoption. A stage that may reclaim
// from it since then is checked again.
func TestReclaimerIsWokenByObservedBorrower(t *testing.T) {
	w := newWorld(t, admission.Config{})
	w.queue("a", "a100: gpu=6", inCohort("lab"), func(q *kueue.ClusterQueue) {
		q.Spec.Preemption = &kueue.ClusterQueuePreemption{WithinClusterQueue: kueue.PreemptionPolicyNever, ReclaimWithinCohort: kueue.PreemptionPolicyLowerPriority}
	})
	w.queue("b", "a100: gpu=4", inCohort("lab"))
	w.queue("c", "a100: gpu=0", inCohort("lab"))
	w.important("c", "c1", "gpu=4", 10)
	w.important("b", "b1", "gpu=4", 0)
	w.wantAdmitted("b1", "c1")
	w.important("a", "a1", "gpu=5", 7)
	w.wantAdmitted()
	held := w.workloads[keyOf("b1")].Status.Admission.DeepCopy()
	held.PodSetAssignments[0].ResourceUsage = amounts("gpu=1")
	w.lone("b", "adopted", "gpu=1", func(wl *kueue.Workload) {
		wl.Spec.Priority = new(int32(5))
		reserve(wl, held)
		w.date(wl)
	})
	if evicted := w.evicted(); len(evicted) != 1 || evicted[0].Stage != keyOf("b1") {
		t.Errorf("evicted %v, want b1 for a1", evicted)
	}
}
