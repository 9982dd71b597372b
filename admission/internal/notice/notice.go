// Package notice keeps the preemptions that were decided and whose victims go on running for a while, so that they can save their work.
package notice

import (
	"time"

	"github.com/tranche-dev/tranche/admission/internal/decision"
)

// A Notice is when a stage is evicted, and for which other one. After a restart the preemptor has only a UID, until the Engine looks for it.
type Notice struct {
	Ends       time.Time
	Preemption decision.Preemption
}

// isSame reports whether two notices, which may be nil, are for the same preemptor at the same time.
func isSame(a, b *Notice) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Ends.Equal(b.Ends) && a.Preemption.PreemptorUID == b.Preemption.PreemptorUID
}

// A State is the notice of one stage. While a decision about it is not settled, the observed one does not count.
type State struct {
	observed, decided *Notice
	// withdrawn is the notice that the decision withdraws, or nil.
	withdrawn *Notice
	decision  decision.ID
}

// Current returns the notice of the stage, or nil.
func (s *State) Current() *Notice {
	if s.decision != 0 {
		return s.decided
	}
	return s.observed
}

// Withdrawn returns the notice that is being withdrawn, or nil.
func (s *State) Withdrawn() *Notice { return s.withdrawn }

// Decision returns the decision that is not settled yet, or zero.
func (s *State) Decision() decision.ID { return s.decision }

// Decide sets the notice by a decision that is to be settled. Nil withdraws it.
func (s *State) Decide(id decision.ID, n *Notice) {
	s.withdrawn = nil
	if n == nil {
		s.withdrawn = s.Current()
	}
	s.decided, s.decision = n, id
}

// Observe records the notice that the object has, or nil. What is known of the preemptor is kept.
func (s *State) Observe(n *Notice) {
	for _, known := range []*Notice{s.observed, s.decided} {
		if isSame(known, n) {
			n = known
		}
	}
	s.observed = n
}

// Settle ends the decision: from then on the observed notice counts.
func (s *State) Settle() { s.decided, s.withdrawn, s.decision = nil, nil, 0 }

// A Board has the stages with a notice. Its zero value is empty.
type Board[S comparable] struct{ stages map[S]time.Time }

// Put sets the notice of a stage, or removes it if it is nil.
func (b *Board[S]) Put(stage S, n *Notice) {
	if n == nil {
		delete(b.stages, stage)
		return
	}
	if b.stages == nil {
		b.stages = map[S]time.Time{}
	}
	b.stages[stage] = n.Ends
}

// All returns the stages with a notice, and when it ends, in no order. There are few: those that leave soon.
func (b *Board[S]) All() map[S]time.Time { return b.stages }

// First returns when the first notice after a time ends.
func (b *Board[S]) First(after time.Time) (at time.Time, ok bool) {
	for _, ends := range b.stages {
		if ends.After(after) && (!ok || ends.Before(at)) {
			at, ok = ends, true
		}
	}
	return at, ok
}
