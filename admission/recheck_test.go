package admission_test

import (
	"testing"

	"pgregory.net/rapid"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
)

// wantNoneOverlooked lets the Engine decide until nothing more happens at this time, and then check all pending stages again: none of them passes, since
// whatever lets a stage pass wakes it.
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
	m.engine.RecheckAll()
	for _, d := range m.engine.Decide(m.now()) {
		if _, isRefusal := d.(admission.Refuse); !isRefusal {
			t.Fatalf("only when all are checked again: %v", d)
		}
	}
}

// TestNoneIsOverlooked: in a stream with due stages, time limits and co-admission groups, and without preemption, no stage stays parked that passes.
func TestNoneIsOverlooked(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawStream(t)
		for name := range s.queues {
			s.changeQueue(name, func(q *kueue.ClusterQueue) { q.Spec.Preemption = nil })
			s.whole[name] = s.queues[name]
		}
		s.submitTo(t, "q", large)
		for range rapid.IntRange(1, 8).Draw(t, "steps") {
			s.step(t)
			s.wantNoneOverlooked(t)
		}
		s.round(t)
		s.wantNoneOverlooked(t)
	})
}
