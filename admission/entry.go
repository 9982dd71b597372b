package admission

import (
	"maps"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/admission/quota"
)

// A phase is how a stage counts.
type phase int

const (
	closed phase = iota
	waiting
	reserving
	admitted
	finished
)

// An entry is what is booked for a stage: in which queues it counts as what, and what it is charged there.
type entry struct {
	phase        phase
	clusterQueue string
	localQueue   types.NamespacedName
	usage        quota.Usage
}

func (n *entry) isCharged() bool { return n.phase == reserving || n.phase == admitted }

func (n *entry) equals(other *entry) bool {
	return n.phase == other.phase && n.clusterQueue == other.clusterQueue && n.localQueue == other.localQueue &&
		maps.Equal(n.usage, other.usage)
}

// entryOf derives what should be booked. It is the only place that says what observations and assumptions mean.
func (e *Engine) entryOf(s *stage) entry {
	n := entry{localQueue: s.localQueue, clusterQueue: e.localQueue(s.localQueue).clusterQueue}
	charge := s.reservation
	if charge == nil {
		charge = s.assumed
	}
	switch {
	case s.isFinished:
		n.phase = finished
	case charge != nil:
		n.clusterQueue, n.usage, n.phase = charge.clusterQueue, charge.usage, reserving
		if s.isAdmitted || s.assumed != nil {
			n.phase = admitted
		}
	case s.closed == "":
		n.phase = waiting
	}
	return n
}

// account books a stage as it is now and tells all that depend on it.
func (e *Engine) account(s *stage) {
	e.book(s, e.entryOf(s))
	e.enqueue(s)
	if j := e.jobSets[s.owner]; j != nil {
		e.reconsider(j)
	}
}

// book replaces what is booked for a stage.
func (e *Engine) book(s *stage, now entry) {
	before := s.entry
	if before.equals(&now) {
		return
	}
	s.entry = now
	if now.phase != waiting {
		s.told = Refusal{}
	}
	e.post(&before, -1)
	e.post(&now, 1)
	if !before.isCharged() {
		return
	}
	released := before.usage
	if now.isCharged() && now.clusterQueue == before.clusterQueue {
		released = before.usage.Without(now.usage)
	}
	if len(released) > 0 {
		e.wake(e.clusterQueue(before.clusterQueue), released)
	}
}

// post adds an entry to all books, or takes it off again if sign is negative.
func (e *Engine) post(n *entry, sign int32) {
	if n.phase == closed {
		return
	}
	q, lq := e.clusterQueue(n.clusterQueue), e.localQueue(n.localQueue)
	for _, l := range []*ledger{&q.ledger, &lq.ledger} {
		l.count(n, sign)
	}
	if n.isCharged() && sign > 0 {
		e.tree.Charge(q.name, n.usage)
	} else if n.isCharged() {
		e.tree.Release(q.name, n.usage)
	}
	e.changedClusterQueues[q.name] = struct{}{}
	e.changedLocalQueues[lq.key] = struct{}{}
}

func (l *ledger) count(n *entry, sign int32) {
	book := (*quota.Tally).Add
	if sign < 0 {
		book = (*quota.Tally).Take
	}
	switch n.phase {
	case waiting:
		l.pending += sign
	case admitted:
		l.admitted += sign
		l.reserving += sign
		book(&l.used, n.usage)
		book(&l.reserved, n.usage)
	case reserving:
		l.reserving += sign
		book(&l.reserved, n.usage)
	case closed, finished:
	}
}
