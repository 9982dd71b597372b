package model

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/admission/internal/queuespec"
	"github.com/tranche-dev/tranche/admission/quota"
)

// A CohortTree is a cohort tree: the ClusterQueues under one root Cohort, or one that has none. Decisions in one cohort tree have no effect on
// another.
type CohortTree struct {
	// Leader admits below the root.
	Leader queuespec.Leader
	Root   *quota.Node
	// Queues are ordered by name.
	Queues []*ClusterQueue
	// Parked has the queues in which a stage may be parked on a topic.
	Parked map[quota.ID]map[*ClusterQueue]struct{}
	// PreemptorQueues has the queues in which a stage has a preemption reservation.
	PreemptorQueues map[*ClusterQueue]struct{}
	// NominalReservers are the stages that reserve nominal quota against borrowers.
	NominalReservers map[*Stage]struct{}
	// IsNew is true until the first cycle.
	IsNew bool
	// DueQueues are the ClusterQueues with a due stage, ordered by name.
	DueQueues []*ClusterQueue
	// ReservingQueues are those of DueQueues for whose due stages quota may be reserved, in the same order. Package backfill keeps them.
	ReservingQueues []*ClusterQueue
	// Endings is kept by package backfill.
	Endings Endings
	// AwaitsTurn has the queues in which a stage may wait for its turn to evict by fair sharing.
	AwaitsTurn map[*ClusterQueue]struct{}
	// Nominated has the queues with a nominee in the current cycle.
	Nominated map[*ClusterQueue]struct{}
	// BorrowsMore is true if a ClusterQueue or Cohort has been charged for quota that it borrows, since the stages on topic OthersBorrow were last woken.
	BorrowsMore bool
	// Awake has the queues in which a stage may be pending and not parked, each once. IsDirty is true if Decide has to check them.
	Awake   []*ClusterQueue
	IsDirty bool
}

// CompareGroups orders cohort trees by the name of their first ClusterQueue.
func CompareGroups(a, b *CohortTree) int { return strings.Compare(a.Queues[0].Name, b.Queues[0].Name) }

// RebuildTrees rebuilds the cohort trees if anything has changed that they depend on, and wakes all stages: such changes are rare.
func (m *Model) RebuildTrees() {
	if !m.Schedule.IsStale {
		return
	}
	former := endAllDue(m)
	m.Schedule.IsStale = false
	m.Schedule.Revision++
	m.adoptParents()
	m.forgetQueues()
	named := map[string]struct{}{}
	for _, q := range m.ClusterQueues {
		named[q.Cohort] = struct{}{}
	}
	m.Cohorts.Forget(named)
	m.Schedule.Unopened.WakeAll()
	m.Schedule.cohortTrees = map[*quota.Node]*CohortTree{}
	for _, name := range slices.Sorted(maps.Keys(m.ClusterQueues)) {
		q := m.ClusterQueues[name]
		root := q.Node.Root()
		g := m.Schedule.cohortTrees[root]
		if g == nil {
			g = &CohortTree{
				Root: root, IsNew: true, Parked: map[quota.ID]map[*ClusterQueue]struct{}{}, PreemptorQueues: map[*ClusterQueue]struct{}{},
				NominalReservers: map[*Stage]struct{}{}, AwaitsTurn: map[*ClusterQueue]struct{}{}, Nominated: map[*ClusterQueue]struct{}{},
			}
			m.Schedule.cohortTrees[root] = g
		}
		g.add(q)
		g.Leader = max(g.Leader, q.leader(m.Config.Leader))
	}
	m.Schedule.Dirty = nil
	for _, q := range m.ClusterQueues {
		for s := range q.Preemptors {
			if !q.Decides() {
				m.CancelReservation(s)
			}
		}
		q.IsScheduled = false
		q.PendingQueue.WakeAll()
		if !q.Decides() {
			q.PendingQueue.ForgetReasons()
		}
		m.Schedule.ScheduleCycle(q)
	}
	for _, s := range former {
		m.Enqueue(s)
	}
	forgetRefusals(m.Stages)
	m.Bank.Invalidate()
	m.RefreshJudged()
	for _, uid := range slices.Sorted(maps.Keys(m.JobSets)) {
		if j := m.JobSets[uid]; j.ClaimQueue != nil {
			m.UpdateJobSet(j)
		}
	}
}

// endAllDue forgets which stages are due, and returns those: one that comes before them may be, which could never be admitted before. So it is as after a
// restart.
func endAllDue(m *Model) []*Stage {
	var former []*Stage
	for _, name := range slices.Sorted(maps.Keys(m.ClusterQueues)) {
		if q := m.ClusterQueues[name]; q.Due != nil {
			former = append(former, q.Due.Stage)
			q.Due = nil
		}
	}
	return former
}

// add adds a ClusterQueue with its reservations.
func (g *CohortTree) add(q *ClusterQueue) {
	q.CohortTree = g
	g.Queues = append(g.Queues, q)
	if len(q.Preemptors) > 0 {
		g.PreemptorQueues[q] = struct{}{}
	}
	for s := range q.Preemptors {
		if s.ReservesNominal {
			g.NominalReservers[s] = struct{}{}
		}
	}
}

// forgetRefusals forgets why stages wait in cohort trees of another engine. When this one admits there again, it reports that again: the status of the
// quota Workloads does not have it in between.
func forgetRefusals(stages map[types.NamespacedName]*Stage) {
	for _, s := range stages {
		if q := s.Entry.ClusterQueue; q != nil && !q.Decides() {
			s.LastRefusal = nil
		}
	}
}

// forgetQueues forgets ClusterQueues that do not exist and that no object refers to.
func (m *Model) forgetQueues() {
	gone := map[*ClusterQueue]struct{}{}
	for _, q := range m.ClusterQueues {
		if !q.Exists && q.Name != "" {
			gone[q] = struct{}{}
		}
	}
	if len(gone) == 0 {
		return
	}
	for _, s := range m.Stages {
		for _, q := range []*ClusterQueue{s.QueuedIn, s.Entry.ClusterQueue, s.PreemptQueue, s.evictionUnit.Queue} {
			delete(gone, q)
		}
		for _, a := range []*Assignment{s.Reservation, s.Assumed} {
			if a != nil {
				delete(gone, a.ClusterQueue)
			}
		}
	}
	for _, j := range m.JobSets {
		for _, q := range []*ClusterQueue{j.ClaimQueue, j.EvictionUnit.Queue} {
			delete(gone, q)
		}
	}
	for _, lq := range m.LocalQueues {
		delete(gone, m.ClusterQueues[lq.ClusterQueue])
	}
	for q := range gone {
		m.forgetQueue(q)
	}
}

func (m *Model) forgetQueue(q *ClusterQueue) {
	delete(m.ClusterQueues, q.Name)
	m.Timers.Drop(&q.Timer)
	m.Finder.Drop(q.Node)
	m.Tree.Remove(q.Node)
	m.SafetyTree.Remove(q.Bare)
	for _, d := range m.Demand.Demands {
		delete(d.Options, q.Node)
	}
}

// adoptParents sets the parents of ClusterQueues and Cohorts.
func (m *Model) adoptParents() {
	m.Cohorts.Arrange()
	for _, name := range slices.Sorted(maps.Keys(m.ClusterQueues)) {
		q := m.ClusterQueues[name]
		m.Cohorts.Place(q.Node, q.Bare, q.Cohort)
	}
}

// Park notes that a stage of a queue is parked on a topic.
func (g *CohortTree) Park(q *ClusterQueue, topic quota.ID) {
	if g.Parked[topic] == nil {
		g.Parked[topic] = map[*ClusterQueue]struct{}{}
	}
	g.Parked[topic][q] = struct{}{}
}
