package model

import (
	"cmp"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/internal/decision"
	"github.com/tranche-dev/tranche/admission/internal/demand"
	"github.com/tranche-dev/tranche/admission/internal/notice"
	"github.com/tranche-dev/tranche/admission/internal/timer"
	"github.com/tranche-dev/tranche/admission/internal/version"
	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/admission/safety"
	"github.com/tranche-dev/tranche/queue"
)

// A Stage is one quota Workload.
//
// There may be a million of them, most of which wait: booleans stand side by side to take less memory.
type Stage struct {
	Key        decision.StageKey
	UID        types.UID
	Version    version.Version
	Generation int64
	LocalQueue *LocalQueue
	// places are its indices in the stage sets.
	places places
	// OwnerUID is the UID of the JobSet, or of the plan of a gang, or empty if there is none.
	OwnerUID types.UID
	Index    int
	Attempt  int
	Created  time.Time
	// IsGrowth is true if the stage already holds quota, and this quota Workload is only for the pods by which it has grown.
	IsGrowth bool
	// IsAdopted is true if its pods ran before Tranche was installed. No preemption evicts it.
	IsAdopted bool

	// From the spec, converted once for each generation. Unsupported is what the Engine cannot do for it, or empty.
	Priority    int32
	Demand      *demand.Demand
	Unsupported string

	// From the last observation: ClosedBy is why the stage asks for nothing, or nil, and Reservation is what it holds.
	ClosedBy   *quotaworkload.Gate
	Evicted    time.Time
	RequeueAt  time.Time
	IsFinished bool
	IsAdmitted bool
	IsEvicted  bool
	// IsTakenFairly is true if fair sharing evicts it, or did at its last eviction.
	IsTakenFairly bool
	IsReady       bool
	// HasNoPods is true if its pods cannot be ready yet, so that no stage waits for them.
	HasNoPods bool
	// IsApproved is true if its reservation of ApprovedAt has been judged to be safe.
	IsApproved bool
	AdmittedAt time.Time
	// TimeLimit is how long after AdmittedAt it surely has released its quota, or 0 if it has no limit: how long it may run, and the grace period of its pods.
	TimeLimit   time.Duration
	Reservation *Assignment
	ReservedAt  time.Time
	// ReadyChecks are the AdmissionChecks that it has passed.
	ReadyChecks []kueue.AdmissionCheckReference
	ApprovedAt  time.Time
	// Revoked is why its reservation, which another engine has made and this one has approved, has to be released, or empty.
	Revoked string
	demand.WorkloadPods

	// Assumed is the admission that is decided and not settled yet; Evicting is the decision to evict that is not settled yet.
	Assumed  *Assignment
	Evicting decision.ID
	// Notice is when it will be evicted for a preemptor, if it holds quota.
	Notice notice.State

	// Entry is how the stage is accounted for, and EvictionUnit its eviction unit if it belongs to no JobSet.
	Entry        Entry
	evictionUnit evictionUnit
	// PreemptReserved is the preemption reservation of a stage that waits for its victims to leave, in ClusterQueue PreemptQueue.
	PreemptReserved quota.Usage
	PreemptQueue    *ClusterQueue
	// IsVictim is true if the decision of Evicting was made for a preemptor.
	IsVictim bool
	// ReservesNominal is true if the reservation is of nominal quota, against borrowers. PassesPeaks is true if peak reservations yielded to it.
	ReservesNominal, PassesPeaks bool
	// LostReservationIn is the last cycle in which it lost a reservation.
	LostReservationIn uint64
	// QueuedIn is the ClusterQueue in which the stage is pending, or nil, and Element its place there.
	QueuedIn *ClusterQueue
	Element  *Element
	// Timer is set while the stage must wait until RequeueAt.
	Timer *timer.Timer[Timed]
	// Membership is nil unless the stage is in a co-admission group.
	Membership *Membership
	// LastRefusal is the refusal that was last emitted, which stages of one equivalence class share, or nil.
	LastRefusal *decision.Refusal
}

// An Element is a pending stage in its queue.
type Element = queue.Element[*Stage, EquivalenceKey, quota.ID]

// An Assignment is a charge to a ClusterQueue.
type Assignment struct {
	Decision     decision.ID
	ClusterQueue *ClusterQueue
	Usage        quota.Usage
	// parts divides usage among the pod sets.
	Parts []PodSetCharge
	// IsAdmitted is true if the stage waits for nothing else after its quota.
	IsAdmitted bool
}

// A PodSetCharge is the charge of one pod set.
type PodSetCharge struct {
	PodSet string
	Usage  quota.Usage
}

// charge returns the charge of the stage, or nil.
func (s *Stage) charge() *Assignment {
	if s.Reservation != nil {
		return s.Reservation
	}
	return s.Assumed
}

// An EquivalenceKey is an equivalence class: all that the checks depend on but the time limit, so that stages of the same class are answered together.
type EquivalenceKey struct {
	LocalQueue *LocalQueue
	demand     *demand.Demand
	// problem is the unsupported part of the spec.
	problem string
	// priority makes the first of the class the one that has waited for the longest, so that none behind it is due before it is.
	priority int32
	// These are set for a stage of a JobSet with several stages, or with a plan that has a problem: the plan and its finished stages, the index
	// of the stage and the policy. If the JobSet holds quota, the JobSet and its turn replace the plan.
	plan     *demand.Demand
	finished string
	index    int
	policy   string
	jobSet   *JobSet
	turn     int
	// passes is Item.Passes.
	passes bool
	// alone is a stage that waits for its victims to leave, or that is in a co-admission group: no other stage waits for that.
	alone *Stage
	// preemptor is the UID of a stage that has preempted others: it need not wait for due stages, and may not preempt the same ones without end.
	preemptor types.UID
}

// Enqueue moves the stage to its queue and position, or removes it from its queue.
func (m *Model) Enqueue(s *Stage) {
	var to *ClusterQueue
	j := m.JobSets[s.OwnerUID]
	if s.Entry.Phase == Waiting && (s.OwnerUID == "" || j != nil && j.IsKnown()) {
		to = s.Entry.ClusterQueue
	}
	var item queue.Item[*Stage, EquivalenceKey]
	if to != nil {
		item = m.item(s, j)
		if to.DueStage() == s {
			item.Shape.alone = s
		}
	}
	if s.QueuedIn != nil {
		if s.QueuedIn == to && s.Element.Item() == item {
			return
		}
		if s.QueuedIn != to {
			m.CancelReservation(s)
			if s.QueuedIn.DueStage() == s {
				m.EndDue(s.QueuedIn)
			}
			wakeAskers(m, j)
		}
		s.QueuedIn.PendingQueue.Remove(s.Element)
		m.Schedule.ScheduleCycle(s.QueuedIn)
	}
	s.QueuedIn, s.Element = to, nil
	if to != nil {
		s.Element = to.PendingQueue.Add(item)
		m.Schedule.ScheduleCycle(to)
	}
}

// wakeAskers wakes the stages of a JobSet, which may be nil, under policy Greedy when one of them no longer asks for quota: the others may now be in a deadlock.
func wakeAskers(m *Model, j *JobSet) {
	if j != nil && j.Claim != nil && j.Claim.Mode == safety.Unguarded && j.ClaimQueue.CohortTree != nil {
		m.Schedule.WakeTopic(j.ClaimQueue.CohortTree, j.Topic)
	}
}

// item returns the queue item of a stage. j is nil if its owner is no JobSet.
func (m *Model) item(s *Stage, j *JobSet) queue.Item[*Stage, EquivalenceKey] {
	item := queue.Item[*Stage, EquivalenceKey]{Member: s, Position: queue.Position{Priority: s.Priority, Since: s.Created, UID: s.UID}}
	if s.Evicted.After(item.Since) {
		item.Since = s.Evicted
	}
	item.Shape = EquivalenceKey{LocalQueue: s.LocalQueue, demand: s.Demand, problem: s.Unsupported, priority: s.Priority}
	item.Limit = cmp.Or(int64(s.TimeLimit/time.Second), queue.Unlimited)
	if s.PreemptQueue != nil || s.Membership != nil {
		item.Shape.alone = s
	}
	if m.Finder.History.IsPreemptor(s.UID) {
		item.Shape.preemptor = s.UID
	}
	if j == nil {
		return item
	}
	if s.IsGrowth {
		// The JobSet can finish without the growth, so that it waits behind all stages that asked before.
		item.Shape.jobSet, item.Shape.turn, item.Shape.policy, item.Shape.index = j, j.Epoch, j.Policy, s.Index
		return item
	}
	item.Since = j.Since()
	if j.Continues() {
		item.Standing = queue.Continuing
	}
	segment := j.segment()
	switch {
	case segment >= 0:
		item.Passes = s.Index >= 0 && s.Index < len(j.Plan.Stages) && j.PlanGraph.Segment(s.Index) <= segment
		item.Shape.jobSet, item.Shape.turn, item.Shape.policy, item.Shape.index = j, j.Epoch, j.Policy, s.Index
		item.Shape.passes = item.Passes
	case len(j.Plan.Stages) > 1 || s.Index != 0 || j.Problem != "":
		item.Shape.plan, item.Shape.policy, item.Shape.index, item.Shape.finished = j.Demand, j.Policy, s.Index, j.finishedKey()
	}
	return item
}

// IsLeaving reports whether a stage has been evicted, or will be, and still holds quota until its pods have terminated: also while it has notice of its
// preemption, and its pods run.
func (s *Stage) IsLeaving() bool { return s.IsEvicting() || s.CurrentNotice() != nil }

// IsEvicting reports whether a leaving stage has no notice that has to end first. A stage that is about to be admitted again still shows its last eviction.
func (s *Stage) IsEvicting() bool {
	return s.Entry.IsCharged() && (s.Evicting != 0 || s.IsEvicted && s.Reservation != nil)
}

// CurrentNotice returns the notice of a stage that holds quota, or nil.
func (s *Stage) CurrentNotice() *notice.Notice {
	if !s.Entry.IsCharged() {
		return nil
	}
	return s.Notice.Current()
}

// takesAlong reports whether the rest of the JobSet is evicted with a stage. A growth is evicted alone, and so is a stage
// that has not been admitted because of its own check.
func (s *Stage) takesAlong() bool { return s.IsLeaving() && !s.IsGrowth && !s.Entry.IsUnjudged }

// NoteIfOverdue makes the next call of Decide check a stage that holds quota in a queue that has been stopped or deleted.
func (m *Model) NoteIfOverdue(s *Stage) {
	if reason, _ := s.StoppedBy(); reason != "" && s.Entry.IsCharged() && !s.IsEvicting() {
		m.Overdue[s] = struct{}{}
		return
	}
	delete(m.Overdue, s)
}

// StoppedBy returns which queue evicts the stage, because it is stopped or deleted: Hold evicts stages that wait for AdmissionChecks, and so does a deleted
// queue, in which nothing more is admitted. HoldAndDrain evicts all.
func (s *Stage) StoppedBy() (reason, message string) {
	isReserving := s.Entry.Phase == Reserving
	drains := func(stop kueue.StopPolicy) bool {
		return stop == kueue.HoldAndDrain || stop == kueue.Hold && isReserving
	}
	switch q, lq := s.Entry.ClusterQueue, s.LocalQueue; {
	case drains(q.Stop):
		return kueue.WorkloadEvictedByClusterQueueStopped, "The ClusterQueue is stopped"
	case isReserving && (!q.Exists || q.IsTerminating):
		return kueue.WorkloadEvictedByClusterQueueStopped, fmt.Sprintf("ClusterQueue %s is terminating or missing", q.Name)
	case drains(lq.Stop):
		return kueue.WorkloadEvictedByLocalQueueStopped, "The LocalQueue is stopped"
	case isReserving && lq.isGone():
		return kueue.WorkloadEvictedByLocalQueueStopped, fmt.Sprintf("LocalQueue %s is terminating or missing", lq.Key.Name)
	}
	return "", ""
}

// CompareStages orders stages by namespace and name.
func CompareStages(a, b *Stage) int { return CompareKeys(a.Key, b.Key) }

// ComesAfterPreemptor reports whether another stage of its ClusterQueue waits for victims and precedes it. A head that reserves nominal quota
// waits for no victims. A stage that its JobSet has to run does not wait for preceding stages: these may wait for quota that the JobSet holds.
func (s *Stage) ComesAfterPreemptor(other *Stage) bool {
	return other != s && !other.ReservesNominal && !s.Element.Passes() && other.Element != nil && other.Element.Precedes(s.Element)
}

// IsReservedAgainst reports whether the preemption reservation of a stage counts for another stage of its ClusterQueue: if it comes before that one, or
// if the policy allows it to preempt that one. Where past usage orders the queue, a stage can come after a less important or a newer one, and each
// admission changes that order. If that one took the quota, the stage could preempt it, and the two would take turns.
func (s *Stage) IsReservedAgainst(other *Stage) bool {
	return s.Element == nil || s.Element.Precedes(other.Element) || !s.ReservesNominal && s.MayPreemptEarlier(other, s.PreemptQueue)
}

// MayPreemptEarlier reports whether a stage may preempt another one that past usage puts before it in their ClusterQueue.
func (s *Stage) MayPreemptEarlier(other *Stage, q *ClusterQueue) bool {
	switch {
	case !q.IsUsageBased:
	case q.Preemption.WithinClusterQueue == kueue.PreemptionPolicyLowerPriority:
		return s.Priority > other.Priority
	case q.Preemption.WithinClusterQueue == kueue.PreemptionPolicyLowerOrNewerEqualPriority:
		return s.Element.Compare(other.Element.Position) < 0
	}
	return false
}

// CompareKeys orders keys by namespace and name.
func CompareKeys(a, b types.NamespacedName) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}
