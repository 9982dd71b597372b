package model

import (
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quota"
)

// A Phase is how a stage counts.
type Phase int

// The phases of a stage.
const (
	Ineligible Phase = iota
	Waiting
	Reserving
	Admitted
	Finished
)

// An Entry is how a stage is accounted for: its phase, its queues, and its charge.
type Entry struct {
	Phase        Phase
	ClusterQueue *ClusterQueue
	LocalQueue   *LocalQueue
	Usage        quota.Usage
	// IsReady is true if all pods are ready, or cannot be ready yet: no stage waits for them.
	isReady bool
	// IsHeld is true if the stop policy of the LocalQueue keeps the stage out of the counts of pending stages.
	IsHeld bool
	// IsUnjudged is true if another engine has reserved the quota, and the stage may still have to release it because it is not safe.
	IsUnjudged bool
}

// IsCharged reports whether the stage is charged.
func (n *Entry) IsCharged() bool { return n.Phase == Reserving || n.Phase == Admitted }

// Counts reports whether the quota of the stage counts as held by its JobSet: quota that is not judged yet does not.
func (n *Entry) Counts() bool { return n.IsCharged() && !n.IsUnjudged }

// Equals reports whether both entries are the same.
func (n *Entry) Equals(other *Entry) bool {
	return n.Phase == other.Phase && n.ClusterQueue == other.ClusterQueue && n.LocalQueue == other.LocalQueue &&
		n.isReady == other.isReady && n.IsHeld == other.IsHeld && n.IsUnjudged == other.IsUnjudged && n.Usage.Equal(other.Usage)
}

// EntryOf derives the entry of a stage. It is the only place that interprets observations and assumptions.
func (m *Model) EntryOf(s *Stage) Entry {
	n := Entry{LocalQueue: s.LocalQueue, isReady: s.IsReady || s.HasNoPods}
	charge := s.charge()
	switch {
	case s.IsFinished:
		n.Phase = Finished
	case charge != nil:
		n.ClusterQueue, n.Usage, n.Phase = charge.ClusterQueue, charge.Usage, Reserving
		if s.IsAdmitted || charge.IsAdmitted {
			n.Phase = Admitted
		}
		n.IsUnjudged = n.Phase == Reserving && m.awaitsVerdict(s)
	case s.ClosedBy == nil && !s.RequeueAt.After(m.Now):
		n.Phase, n.IsHeld = Waiting, s.LocalQueue.Stop != kueue.None
	}
	if n.ClusterQueue == nil {
		n.ClusterQueue = m.ClusterQueue(s.LocalQueue.ClusterQueue)
	}
	return n
}

// Refresh updates the entry of a stage, and all that depends on it.
func (m *Model) Refresh(s *Stage) {
	m.setTimer(s)
	m.SetEntry(s, m.EntryOf(s))
	m.RenewEvictionUnits(s)
	m.NoteIfOverdue(s)
	m.Notices.Put(s, s.CurrentNotice())
	m.Enqueue(s)
	if j := m.JobSets[s.OwnerUID]; j != nil {
		m.UpdateJobSet(j)
	}
	m.review(s)
}

// SetEntry replaces the entry of a stage.
func (m *Model) SetEntry(s *Stage, now Entry) {
	before := s.Entry
	if before.Equals(&now) {
		return
	}
	s.Entry = now
	m.EntryEpoch++
	if now.Phase != Waiting {
		s.LastRefusal = nil
	}
	if now.Phase == Finished {
		m.Schedule.Unopened.WakeOwner(m.JobSets[s.OwnerUID])
	}
	m.transfer(before, now)
	m.post(&now, 1)
	top := m.post(&before, -1)
	m.countUnready(&before, &now)
	if now.IsCharged() {
		m.noteBorrowing(now.ClusterQueue, now.Usage)
	}
	m.noteUse(before.ClusterQueue)
	m.noteUse(now.ClusterQueue)
	if before.IsCharged() {
		before.ClusterQueue.Charged.Drop(s)
	}
	if now.IsCharged() {
		now.ClusterQueue.Charged.Add(s)
	}
	if !before.IsCharged() {
		return
	}
	released := before.Usage
	if now.IsCharged() && now.ClusterQueue == before.ClusterQueue {
		released = before.Usage.Without(now.Usage)
	}
	if len(released) > 0 {
		m.wake(top, released, before.ClusterQueue.CohortTree)
	}
}

// noteBorrowing notes that a ClusterQueue borrows for a charge, or that a Cohort does since the charge leaves it too little for what its members lend: others may now
// preempt their stages. They are woken at the end of the cycle, once for all stages that it admits.
func (m *Model) noteBorrowing(q *ClusterQueue, charged quota.Usage) {
	if q.CohortTree == nil || q.CohortTree.BorrowsMore {
		return
	}
	for n := q.Node; n.Parent() != nil; n = n.Parent() {
		if n.ExceedsAny(charged) {
			q.CohortTree.BorrowsMore = true
			m.Schedule.scheduleTree(q.CohortTree)
			return
		}
	}
}

// countUnready updates the number of stages for whose pods all others wait under BlockAdmission.
func (m *Model) countUnready(before, now *Entry) {
	if before.Phase == Admitted && !before.isReady {
		m.Unready--
		if m.Unready == 0 && m.Config.BlockAdmission {
			for _, g := range m.Schedule.cohortTrees {
				m.Schedule.WakeTopic(g, AllReady)
			}
		}
	}
	if now.Phase == Admitted && !now.isReady {
		m.Unready++
	}
}

// post adds an entry to the totals and charges of its queues, or subtracts it if sign is negative. Then it returns the topmost node that a release
// of quota reaches.
func (m *Model) post(n *Entry, sign int32) (top *quota.Node) {
	if n.Phase == Ineligible {
		return nil
	}
	n.ClusterQueue.QueueTotals.Count(n, sign)
	n.LocalQueue.QueueTotals.Count(n, sign)
	m.Changes.NoteChange(n.ClusterQueue)
	m.Changes.NoteLocalChange(n.LocalQueue)
	switch {
	case !n.IsCharged():
	case sign > 0:
		n.ClusterQueue.Node.Charge(n.Usage)
	default:
		top = n.ClusterQueue.Node.Release(n.Usage)
	}
	return top
}
