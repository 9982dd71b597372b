package admission_test

import (
	"testing"

	"pgregory.net/rapid"

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
		s.submitTo(t, "q", large)
		for range rapid.IntRange(1, 8).Draw(t, "steps") {
			s.step(t)
		}
		s.round(t)
	})
}
