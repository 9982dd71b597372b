package admission

import (
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quota"
)

// A phase is how a stage counts.
type phase int

const (
	ineligible phase = iota
	waiting
	reserving
	admitted
	finished
)

// An entry is how a stage is accounted for: its phase, its queues, and its charge.
type entry struct {
	phase        phase
	clusterQueue *clusterQueue
	localQueue   *localQueue
	usage        quota.Usage
	// isReady is true if all pods are ready, or cannot be ready yet: no stage waits for them.
	isReady bool
	// isHeld is true if the stop policy of the LocalQueue keeps the stage out of the counts of pending stages.
	isHeld bool
}

func (n *entry) isCharged() bool { return n.phase == reserving || n.phase == admitted }

func (n *entry) equals(other *entry) bool {
	return n.phase == other.phase && n.clusterQueue == other.clusterQueue && n.localQueue == other.localQueue &&
		n.isReady == other.isReady && n.isHeld == other.isHeld && n.usage.Equal(other.usage)
}

// entryOf derives the entry of a stage. It is the only place that interprets observations and assumptions.
func (e *Engine) entryOf(s *stage) entry {
	n := entry{localQueue: s.localQueue, isReady: s.isReady || s.hasNoPods}
	charge := s.charge()
	switch {
	case s.isFinished:
		n.phase = finished
	case charge != nil:
		n.clusterQueue, n.usage, n.phase = charge.clusterQueue, charge.usage, reserving
		if s.isAdmitted || charge.isAdmitted {
			n.phase = admitted
		}
	case s.closed == "" && !s.requeueAt.After(e.now):
		n.phase, n.isHeld = waiting, s.localQueue.stop != kueue.None
	}
	if n.clusterQueue == nil {
		n.clusterQueue = e.clusterQueue(s.localQueue.clusterQueue)
	}
	return n
}

// refresh updates the entry of a stage, and all that depends on it.
func (e *Engine) refresh(s *stage) {
	e.setTimer(s)
	e.setEntry(s, e.entryOf(s))
	e.renewEvictionUnits(s)
	e.noteIfOverdue(s)
	e.enqueue(s)
	if j := e.jobSets[s.owner]; j != nil {
		e.updateJobSet(j)
	}
	e.review(s)
}

// setEntry replaces the entry of a stage.
func (e *Engine) setEntry(s *stage, now entry) {
	before := s.entry
	if before.equals(&now) {
		return
	}
	s.entry = now
	if now.phase != waiting {
		s.lastRefusal = Refusal{}
	}
	e.transfer(before, now)
	e.post(&now, 1)
	top := e.unpost(&before)
	e.countUnready(&before, &now)
	if before.isCharged() {
		before.clusterQueue.charged.drop(s)
	}
	if now.isCharged() {
		now.clusterQueue.charged.add(s)
	}
	if !before.isCharged() {
		return
	}
	released := before.usage
	if now.isCharged() && now.clusterQueue == before.clusterQueue {
		released = before.usage.Without(now.usage)
	}
	if len(released) > 0 {
		e.wake(top, released, before.clusterQueue.cohortTree)
	}
}

// countUnready updates the number of stages for whose pods all others wait under BlockAdmission.
func (e *Engine) countUnready(before, now *entry) {
	if before.phase == admitted && !before.isReady {
		e.unready--
		if e.unready == 0 && e.config.BlockAdmission {
			for _, g := range e.cohortTrees {
				e.wakeTopic(g, allReady)
			}
		}
	}
	if now.phase == admitted && !now.isReady {
		e.unready++
	}
}

// post adds an entry to the totals and charges of its queues.
func (e *Engine) post(n *entry, sign int32) {
	if n.phase == ineligible {
		return
	}
	n.clusterQueue.queueTotals.count(n, sign)
	n.localQueue.queueTotals.count(n, sign)
	if n.isCharged() && sign > 0 {
		n.clusterQueue.node.Charge(n.usage)
	}
	e.noteChange(n.clusterQueue)
	e.noteLocalChange(n.localQueue)
}

// unpost subtracts an entry from the totals and charges of its queues, and returns the topmost node that the release reaches.
func (e *Engine) unpost(n *entry) *quota.Node {
	e.post(n, -1)
	if !n.isCharged() {
		return nil
	}
	return n.clusterQueue.node.Release(n.usage)
}

func (q *queueTotals) count(n *entry, sign int32) {
	book := (*quota.Sum).Add
	if sign < 0 {
		book = (*quota.Sum).Take
	}
	switch n.phase {
	case waiting:
		if !n.isHeld {
			q.pending += sign
		}
	case admitted:
		q.admitted += sign
		q.reserving += sign
		book(&q.used, n.usage)
		book(&q.reserved, n.usage)
	case reserving:
		q.reserving += sign
		book(&q.reserved, n.usage)
	case ineligible, finished:
	}
}
