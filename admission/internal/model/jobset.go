package model

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/internal/decision"
	"github.com/tranche-dev/tranche/admission/internal/demand"
	"github.com/tranche-dev/tranche/admission/internal/settings"
	"github.com/tranche-dev/tranche/admission/internal/timer"
	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/admission/safety"
	"github.com/tranche-dev/tranche/admission/stageplan"
)

// A JobSet is the owner of a stage plan: a JobSet, or a gang of pods that is admitted in parts. It exists as soon as its plan or one of its stages is
// observed.
type JobSet struct {
	UID types.UID
	// Owner is empty until the plan is known.
	Owner     decision.Owner
	Submitted time.Time
	Policy    string
	// CheckpointedAt is when its work was last saved, or zero.
	CheckpointedAt time.Time
	// Plan is nil until it is known.
	Plan      *stageplan.Plan
	PlanGraph *safety.PlanGraph
	// Stages has the demands of the stages, Problem is the first problem of a stage, and Demand stands for the whole plan.
	Stages  []*demand.Demand
	Problem string
	Demand  *demand.Demand
	Members stagesByKey

	// ClaimQueue is the ClusterQueue in which the JobSet holds quota, or nil; it may have a claim there, and its peak may be reserved there.
	ClaimQueue *ClusterQueue
	Claim      *safety.Claim
	// claimed is the revision at which the claim was added to the Bank.
	claimed      uint64
	PeakReserved quota.Usage
	// peakOptions caches peakOptionsOf as of the last update of the JobSet. It has none if nothing is to be reserved.
	peakOptions []quota.Usage
	// Timer is set while a co-start reservation has an end.
	Timer *timer.Timer[Timed]
	// Topic is the topic of stages that wait for the claim to become smaller.
	Topic quota.ID
	// outstanding is derived from Claim and PeakReserved.
	outstanding outstanding
	PeakCheck   PeakCheck
	// SizeHint is the size hint for the whole plan.
	SizeHint demand.SizeHint
	// EvictionUnit is the eviction unit of the JobSet.
	EvictionUnit evictionUnit
	// Deadlock has the claims that wait for each other, among them that of this JobSet, or is nil.
	Deadlock []*safety.Claim
	// Rejected are the stages that another engine had chosen quota for, and that were not safe with it, with the reasons. They do not open before
	// the JobSet is woken: see Schedule.Unopened.
	Rejected map[int]decision.Refusal
	// Epoch counts the changes of ClaimQueue and Claim.
	Epoch int
}

// IsKnown reports whether the plan of the JobSet has been observed.
func (j *JobSet) IsKnown() bool { return j.Plan != nil }

// JobSet returns the JobSet with a UID, and creates it if no object has named it before.
func (m *Model) JobSet(uid types.UID) *JobSet {
	j := m.JobSets[uid]
	if j == nil {
		j = &JobSet{UID: uid, Members: stagesByKey{}, Topic: m.NewTopic()}
		m.JobSets[uid] = j
	}
	return j
}

// NewTopic returns a topic for a JobSet, a co-admission group or a due stage. Topics are reused after very many: then some stages are woken needlessly.
func (m *Model) NewTopic() quota.ID {
	const last = besideDue / 2
	if m.lastTopic == last {
		m.lastTopic = FewerAhead
	}
	m.lastTopic--
	return m.lastTopic
}

// Since returns the start of the JobSet's queue position: its submission, or its last eviction.
func (j *JobSet) Since() time.Time {
	since := j.Submitted
	for _, s := range j.Members {
		if s.Evicted.After(since) && !s.IsGrowth {
			since = s.Evicted
		}
	}
	return since
}

// segment returns the current hold segment of the JobSet, or -1 if it holds no quota. The plan must be known.
func (j *JobSet) segment() int {
	last := -1
	for _, s := range j.Members {
		switch {
		case !s.Entry.IsCharged():
		case s.Index < 0 || s.Index >= len(j.Plan.Stages):
			last = max(last, 0)
		default:
			last = max(last, j.PlanGraph.Segment(s.Index))
		}
	}
	return last
}

// Continues reports whether the JobSet holds quota or has finished stages.
func (j *JobSet) Continues() bool {
	return j.Members.Has(func(s *Stage) bool { return s.Entry.IsCharged() || s.Entry.Phase == Finished })
}

// hasFinishedStage reports whether a JobSet, which may be nil, would still continue after an eviction.
func (j *JobSet) hasFinishedStage() bool {
	return j != nil && j.Members.Has(func(s *Stage) bool { return s.Entry.Phase == Finished })
}

// findHome returns the ClusterQueue in which the JobSet holds quota, or nil. There is only one, since all stages have the same LocalQueue, unless
// an administrator moves that.
func (m *Model) findHome(j *JobSet) *ClusterQueue {
	var home *ClusterQueue
	for _, s := range j.Members {
		if s.Entry.Counts() && (home == nil || s.Entry.ClusterQueue.Name < home.Name) {
			home = s.Entry.ClusterQueue
		}
	}
	return home
}

// UpdateJobSet recomputes all that depends on the progress of a JobSet: its claim, its peak reservation, and the queue positions of its stages.
func (m *Model) UpdateJobSet(j *JobSet) {
	before, claim := j.ClaimQueue, j.Claim
	former := takePeak(m, j)
	j.ClaimQueue = m.findHome(j)
	m.replaceClaim(j, m.claimOf(j))
	m.reservePeak(j)
	former.wake(m)
	m.RenewEvictionUnitsOf(j)
	if before != j.ClaimQueue || !claim.HasQuotaOf(j.Claim) {
		j.Epoch++
		m.Schedule.Unopened.WakeOwner(j)
	}
	if claim != nil && (before != j.ClaimQueue || claim.ShrinksTo(j.Claim)) {
		m.Schedule.WakeTopic(before.CohortTree, j.Topic)
		m.Schedule.WakeTopic(before.CohortTree, AnyClaim)
		if before.PendingQueue.Wake(OwnClaims, 0) {
			m.Schedule.ScheduleCycle(before)
		}
	}
	for _, s := range j.Members {
		m.Enqueue(s)
	}
	if m.Progressed != nil {
		m.Progressed(j)
	}
}

// claimOf computes what a JobSet may still come to hold. A JobSet that is being evicted has no claim.
func (m *Model) claimOf(j *JobSet) *safety.Claim {
	if j.ClaimQueue == nil || !j.IsKnown() || m.Schedule.IsStale || j.IsLeaving() {
		return nil
	}
	c := m.Progress(j, j.ClaimQueue)
	if len(c.Ahead()) == 0 {
		return nil
	}
	return &safety.Claim{
		OwnerUID: j.UID, Node: j.ClaimQueue.Bare, Held: c.HeldNow(), Peaks: c.Peaks(), Mode: m.regard(j),
	}
}

// regard returns whether the Engine protects a JobSet from deadlocks, and whether its stages may be admitted at all now.
func (m *Model) regard(j *JobSet) safety.Mode {
	switch {
	case m.Policy(j.ClaimQueue, j) == settings.Greedy:
		return safety.Unguarded
	case m.isHalted(j):
		return safety.Halted
	}
	return safety.Guarded
}

// isHalted reports whether a JobSet cannot continue before a user or administrator acts, however much quota is free.
func (m *Model) isHalted(j *JobSet) bool {
	namespace, known := m.Namespaces[j.Owner.Key.Namespace]
	if !j.ClaimQueue.Exists || m.Activity(j.ClaimQueue).Status != metav1.ConditionTrue || !known || !j.ClaimQueue.Selector.Matches(labels.Set(namespace)) {
		return true
	}
	return j.Members.Has(func(s *Stage) bool { return s.LocalQueue.isGone() || s.LocalQueue.Stop != kueue.None })
}

// IsLeaving reports whether stages of a JobSet have been evicted, or will be, and still hold quota. The others follow.
func (j *JobSet) IsLeaving() bool { return j.Members.Has((*Stage).takesAlong) }

// replaceClaim updates the claim in the bank. A nil claim removes it.
func (m *Model) replaceClaim(j *JobSet, now *safety.Claim) {
	if j.Claim != nil && now != nil && j.claimed == m.Schedule.Revision && j.Claim.Node == now.Node && j.Claim.Mode == now.Mode && j.Claim.HasQuotaOf(now) {
		return
	}
	if j.Claim != nil {
		m.Bank.Remove(j.Claim)
	}
	if now != nil {
		m.Bank.Add(now)
	}
	j.Claim, j.claimed = now, m.Schedule.Revision
	j.noteOutstanding()
}

// noteReservation makes Changed return the queues whose reservation includes the peak.
func (m *Model) noteReservation(j *JobSet) {
	m.Changes.NoteChange(j.ClaimQueue)
	if lq := j.LocalQueue(); lq != nil {
		m.Changes.NoteLocalChange(lq)
	}
}

// LocalQueue returns that of the stages of the JobSet, or nil if none is known. All stages have the same one, except while it is being changed.
func (j *JobSet) LocalQueue() *LocalQueue {
	var first *Stage
	for _, s := range j.Members {
		if first == nil || CompareStages(s, first) < 0 {
			first = s
		}
	}
	if first == nil {
		return nil
	}
	return first.LocalQueue
}

// PeakReservedIn returns the peak reservation of a JobSet, which may be nil, in a ClusterQueue.
func (j *JobSet) PeakReservedIn(q *ClusterQueue) quota.Usage {
	if j == nil || j.ClaimQueue != q {
		return nil
	}
	return j.PeakReserved
}
