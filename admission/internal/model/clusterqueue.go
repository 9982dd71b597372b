package model

import (
	"slices"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/flavor"
	"github.com/tranche-dev/tranche/admission/internal/demand"
	"github.com/tranche-dev/tranche/admission/internal/queuespec"
	"github.com/tranche-dev/tranche/admission/internal/settings"
	"github.com/tranche-dev/tranche/admission/internal/timer"
	"github.com/tranche-dev/tranche/admission/internal/unordered"
	"github.com/tranche-dev/tranche/admission/internal/version"
	"github.com/tranche-dev/tranche/admission/preempt"
	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/queue"
)

// A ClusterQueue exists as soon as an object names it, whether or not there is a ClusterQueue object.
type ClusterQueue struct {
	queuespec.Spec
	Name    string
	Version version.Version
	// Generation is that of the spec in use.
	Generation int64
	// Exists is true if there is an object with the spec.
	Exists bool
	// IsTaken is true if this Engine is to admit here instead of Kueue. It does if that is so in the whole cohort tree.
	IsTaken bool
	// IsUnprotected is that of ClusterQueueObserved.
	IsUnprotected bool

	// Node is charged; Bare has the same limits and is not.
	Node, Bare  *quota.Node
	CohortTree  *CohortTree
	IsScheduled bool
	// isChanged is true if Changed has to return it.
	isChanged    bool
	PendingQueue *pendingQueue
	QueueTotals  QueueTotals
	// Charged are the stages that are charged here, and Holders is the view that preemption has of them.
	Charged unordered.Set[*Stage]
	Holders *preempt.Queue
	// Preemptors are its pending stages with a preemption reservation, for quota that victims still hold.
	Preemptors map[*Stage]struct{}
	// Due is the stage for which quota is reserved because it has waited for long, or nil. DueTopic is the topic of stages that would delay it.
	Due      *Due
	DueTopic quota.ID
	// Outstanding is the sum of the outstanding claims of its JobSets.
	Outstanding quota.Sum
	// AdvanceReserved is the sum of the peak reservations. It is charged to the node, too.
	AdvanceReserved quota.Sum
	// PeakReservers are the JobSets with a peak reservation here.
	PeakReservers map[*JobSet]struct{}
	// Timer is set until another stage may be due, or may preempt those that have run for their minimum runtime.
	Timer *timer.Timer[Timed]
}

// A PendingQueue is the queue of the pending stages of a ClusterQueue.
type pendingQueue = queue.Pending[*Stage, EquivalenceKey, quota.ID]

// A QueueTotals counts the stages of a queue.
type QueueTotals struct {
	Pending, Reserving, Admitted int32
	Reserved, Used               quota.Sum
}

// ClusterQueue returns the ClusterQueue with a name, and creates it if no object has named it before.
func (m *Model) ClusterQueue(name string) *ClusterQueue {
	q := m.ClusterQueues[name]
	if q == nil {
		q = &ClusterQueue{
			Spec: queuespec.NewSpec(), Name: name, PendingQueue: queue.NewPending[*Stage, EquivalenceKey, quota.ID](),
			Node: m.Tree.AddClusterQueue(name), Bare: m.SafetyTree.AddClusterQueue(name), Charged: unordered.New(placeAmongCharged), Preemptors: map[*Stage]struct{}{}, PeakReservers: map[*JobSet]struct{}{},
			DueTopic: m.NewTopic(),
		}
		q.Holders = m.Finder.Queue(q.Node)
		m.ClusterQueues[name] = q
		m.Schedule.IsStale = true
	}
	return q
}

// Activity reports whether a ClusterQueue takes new reservations.
func (m *Model) Activity(q *ClusterQueue) queuespec.Activity {
	if q.isLedBy(queuespec.Kueue) {
		return q.ActivityInKueue(m.Checks, Cycle(m, q))
	}
	if q.IsTaken {
		return q.ActivityInstead(m.Checks, Cycle(m, q))
	}
	return q.Activity(m.Checks, Cycle(m, q))
}

// Cycle names the Cohorts above a ClusterQueue if their parents form a cycle.
func Cycle(m *Model, q *ClusterQueue) string {
	if q.Cohort == "" {
		return ""
	}
	return m.Cohorts.Get(q.Cohort).Cycle
}

// WithinCapacity reports whether a usage is within the capacity of the ClusterQueue.
func (q *ClusterQueue) WithinCapacity(usage quota.Usage) bool {
	return !slices.ContainsFunc(usage, func(c quota.Charge) bool { return c.Amount > q.Node.Capacity(c.ID) })
}

// Policy returns that of the ClusterQueue, unless the JobSet asks for a stricter one.
func (m *Model) Policy(q *ClusterQueue, j *JobSet) string {
	policy := m.Config.StageAdmission
	if settings.Strictness(q.Policy) >= 0 {
		policy = q.Policy
	}
	if j != nil && settings.Strictness(j.Policy) > settings.Strictness(policy) {
		policy = j.Policy
	}
	return policy
}

// Offer returns the offer of a ClusterQueue for a demand.
func (m *Model) Offer(d *demand.Demand, q *ClusterQueue) *demand.Offer {
	o := d.Options[q.Node]
	if o == nil || o.Revision != m.Schedule.Revision {
		supply := m.Supply(q)
		items, infeasibility := supply.Items(d.PodSets)
		o = &demand.Offer{Revision: m.Schedule.Revision, Items: items, Infeasibility: infeasibility}
		if infeasibility == nil {
			o.First = make(flavor.Choice, len(items)).Usage(items)
		}
		d.Options[q.Node] = o
	}
	return o
}

// Count adds an entry to the totals, or subtracts it if sign is negative.
func (q *QueueTotals) Count(n *Entry, sign int32) {
	book := (*quota.Sum).Add
	if sign < 0 {
		book = (*quota.Sum).Take
	}
	if n.Phase == Waiting && !n.IsHeld {
		q.Pending += sign
	}
	if n.IsCharged() {
		q.Reserving += sign
		book(&q.Reserved, n.Usage)
	}
	if n.Phase == Admitted {
		q.Admitted += sign
		book(&q.Used, n.Usage)
	}
}

// Equals treats nil like empty totals.
func (q *QueueTotals) Equals(other *QueueTotals) bool {
	if other == nil {
		other = &QueueTotals{}
	}
	return q.Pending == other.Pending && q.Reserving == other.Reserving && q.Admitted == other.Admitted &&
		q.Reserved.Usage().Equal(other.Reserved.Usage()) && q.Used.Usage().Equal(other.Used.Usage())
}

// MayReserveNominal reports whether the head of a ClusterQueue reserves nominal quota against borrowers, because it may not reclaim all of it.
func (q *ClusterQueue) MayReserveNominal() bool {
	return q.Strategy == queue.Strict && q.Preemption.ReclaimWithinCohort != kueue.PreemptionPolicyAny && q.Node.Parent() != nil
}

// Supply returns the flavors and quotas of a ClusterQueue.
func (m *Model) Supply(q *ClusterQueue) flavor.Supply {
	return flavor.Supply{Groups: q.FlavorGroups, Index: m.Tree.Index, Most: func(id quota.ID) quota.Amount { return q.Node.Capacity(id) }}
}
