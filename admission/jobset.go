package admission

import (
	"math"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/admission/safety"
	"github.com/tranche-dev/tranche/admission/stageplan"
)

// A jobSet exists as soon as its plan or one of its stages is observed.
type jobSet struct {
	uid       types.UID
	key       types.NamespacedName
	submitted time.Time
	policy    string
	// plan is nil until it is known.
	plan      *stageplan.Plan
	planGraph *safety.PlanGraph
	// stages has the demands of the stages, problem is the first problem of a stage, and demand stands for the whole plan.
	stages  []*demand
	problem string
	demand  *demand
	members map[StageKey]*stage

	// claimQueue is the ClusterQueue in which the JobSet holds quota, or nil; it may have a claim there. keeper is the one in which its peak is
	// reserved.
	claimQueue *clusterQueue
	claim      *safety.Claim
	// claimed is the revision at which the claim was added to bank.
	claimed      uint64
	peakReserved quota.Usage
	keeper       *clusterQueue
	// topic is the topic of stages that wait for the claim to become smaller.
	topic     quota.ID
	peakCheck peakCheck
	// sizeHint is the size hint for the whole plan.
	sizeHint sizeHint
	// evictionUnit is the eviction unit of the JobSet.
	evictionUnit evictionUnit
	// deadlock has the claims that wait for each other, among them that of this JobSet, or is nil.
	deadlock []*safety.Claim
	// epoch counts the changes of home and claim.
	epoch int
}

func (j *jobSet) isKnown() bool { return j.plan != nil }

func (e *Engine) jobSet(uid types.UID) *jobSet {
	j := e.jobSets[uid]
	if j == nil {
		j = &jobSet{uid: uid, members: map[StageKey]*stage{}, topic: e.newTopic()}
		e.jobSets[uid] = j
	}
	return j
}

// newTopic returns a topic for a JobSet. Topics are reused after very many: then some stages are woken needlessly.
func (e *Engine) newTopic() quota.ID {
	const last = math.MinInt32
	if e.lastTopic == last {
		e.lastTopic = allReady
	}
	e.lastTopic--
	return e.lastTopic
}

func (e *Engine) dropIfForgotten(j *jobSet) {
	if !j.isKnown() && len(j.members) == 0 {
		delete(e.jobSets, j.uid)
	}
}

func (e *Engine) observePlan(ev PlanObserved) {
	if ev.Plan == nil {
		e.losePlan(ev.UID)
		return
	}
	if e.tombstones.has(ev.UID) {
		return
	}
	e.adoptPlan(e.jobSet(ev.UID), ev)
}

// adoptPlan recomputes all that depends on the plan, and on what the API server adds to the pods of the namespace.
func (e *Engine) adoptPlan(j *jobSet, ev PlanObserved) {
	stages, whole := e.demandsOf(ev.JobSet.Namespace, ev.Plan)
	if j.isKnown() && j.demand.key == whole.key && j.policy == ev.StageAdmission && j.submitted.Equal(ev.Submitted) {
		return
	}
	before := append(j.stages, j.demand)
	j.key, j.submitted, j.policy, j.plan = ev.JobSet, ev.Submitted, ev.StageAdmission, ev.Plan
	j.peakCheck, j.sizeHint = peakCheck{}, sizeHint{}
	j.demand, j.stages, j.problem, j.planGraph = e.internDemand(whole), nil, "", safety.NewPlanGraph(ev.Plan)
	for _, d := range stages {
		j.stages = append(j.stages, e.internDemand(d))
		if j.problem == "" {
			j.problem = d.problem
		}
	}
	for _, d := range before {
		e.releaseDemand(d)
	}
	j.epoch++
	e.updateJobSet(j)
}

func (e *Engine) losePlan(uid types.UID) {
	j := e.jobSets[uid]
	if j == nil {
		return
	}
	for _, d := range append(j.stages, j.demand) {
		e.releaseDemand(d)
	}
	j.plan, j.planGraph, j.demand, j.stages = nil, nil, nil, nil
	e.updateJobSet(j)
	e.dropIfForgotten(j)
}

// demandsOf returns the demands of the stages, and one without pod sets that stands for the plan.
func (e *Engine) demandsOf(namespace string, plan *stageplan.Plan) (stages []*demand, whole *demand) {
	var b strings.Builder
	b.WriteString("plan " + plan.String())
	for i := range plan.Stages {
		d := e.demandOfStage(namespace, &plan.Stages[i])
		stages = append(stages, d)
		b.WriteString("\n" + d.key)
	}
	return stages, &demand{key: b.String()}
}

// since returns the start of the JobSet's queue position: its submission, or its last eviction.
func (j *jobSet) since() time.Time {
	since := j.submitted
	for _, s := range j.members {
		if s.evicted.After(since) && !s.isGrowth {
			since = s.evicted
		}
	}
	return since
}

// segment returns the current hold segment of the JobSet, or -1 if it holds no quota. The plan must be known.
func (j *jobSet) segment() int {
	last := -1
	for _, s := range j.members {
		switch {
		case !s.entry.isCharged():
		case s.index < 0 || s.index >= len(j.plan.Stages):
			last = max(last, 0)
		default:
			last = max(last, j.planGraph.Segment(s.index))
		}
	}
	return last
}

// continues reports whether the JobSet holds quota or has finished stages.
func (j *jobSet) continues() bool {
	for _, s := range j.members {
		if s.entry.isCharged() || s.entry.phase == finished {
			return true
		}
	}
	return false
}

// hasFinishedStage reports whether a JobSet, which may be nil, would still continue after an eviction.
func (j *jobSet) hasFinishedStage() bool {
	if j == nil {
		return false
	}
	for _, s := range j.members {
		if s.entry.phase == finished {
			return true
		}
	}
	return false
}

// findHome returns the ClusterQueue in which the JobSet holds quota, or nil. There is only one, since all stages have the same LocalQueue, unless
// an administrator moves that.
func (e *Engine) findHome(j *jobSet) *clusterQueue {
	var home *clusterQueue
	for _, s := range j.members {
		if s.entry.isCharged() && (home == nil || s.entry.clusterQueue.name < home.name) {
			home = s.entry.clusterQueue
		}
	}
	return home
}

// updateJobSet recomputes all that depends on the progress of a JobSet: its claim, its peak reservation, and the queue positions of its stages.
func (e *Engine) updateJobSet(j *jobSet) {
	before, claim := j.claimQueue, j.claim
	e.releasePeak(j)
	j.claimQueue = e.findHome(j)
	e.replaceClaim(j, e.claimOf(j))
	e.reservePeak(j)
	e.renewEvictionUnitsOf(j)
	if before != j.claimQueue || !sameClaim(claim, j.claim) {
		j.epoch++
	}
	if claim != nil && (before != j.claimQueue || shrinks(claim, j.claim)) {
		e.wakeClaimWaiters(before.cohortTree, j)
	}
	for _, s := range j.members {
		e.enqueue(s)
	}
}

// claimOf computes what a JobSet may still come to hold. A JobSet that is being evicted has no claim.
func (e *Engine) claimOf(j *jobSet) *safety.Claim {
	if j.claimQueue == nil || !j.isKnown() || e.isStale || j.isLeaving() {
		return nil
	}
	c := e.progress(j, j.claimQueue)
	if len(c.Ahead()) == 0 {
		return nil
	}
	return &safety.Claim{
		JobSet: j.key.String(), Owner: j.uid, Node: j.claimQueue.bare, Held: c.HeldNow(), Peaks: c.Peaks(), Mode: e.regard(j),
	}
}

// regard returns whether the Engine protects a JobSet from deadlocks, and whether its stages may be admitted at all now.
func (e *Engine) regard(j *jobSet) safety.Mode {
	switch {
	case e.policy(j.claimQueue, j) == Greedy:
		return safety.Unguarded
	case e.isHalted(j):
		return safety.Halted
	}
	return safety.Guarded
}

// isHalted reports whether a JobSet cannot continue before a user or administrator acts, however much quota is free.
func (e *Engine) isHalted(j *jobSet) bool {
	namespace, known := e.namespaces[j.key.Namespace]
	if !j.claimQueue.exists || e.activity(j.claimQueue).Status != metav1.ConditionTrue || !known || !j.claimQueue.selector.Matches(labels.Set(namespace)) {
		return true
	}
	for _, s := range j.members {
		if !s.localQueue.exists || s.localQueue.stop != kueue.None {
			return true
		}
	}
	return false
}

// isLeaving reports whether stages of a JobSet have been evicted, or will be, and still hold quota. The others follow.
func (j *jobSet) isLeaving() bool {
	for _, s := range j.members {
		if s.takesAlong() {
			return true
		}
	}
	return false
}

// replaceClaim updates the claim in the bank. A nil claim removes it.
func (e *Engine) replaceClaim(j *jobSet, now *safety.Claim) {
	if j.claim != nil && now != nil && j.claimed == e.revision && j.claim.Node == now.Node && j.claim.Mode == now.Mode && sameClaim(j.claim, now) {
		return
	}
	if j.claim != nil {
		e.bank.Remove(j.claim)
	}
	if now != nil {
		e.bank.Add(now)
	}
	j.claim, j.claimed = now, e.revision
}

func sameClaim(a, b *safety.Claim) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Held.Equal(b.Held) && slices.EqualFunc(a.Peaks, b.Peaks, quota.Usage.Equal)
}

// shrinks reports whether other JobSets may be better off. They are not if the JobSet holds more of its expected peak.
func shrinks(before, after *safety.Claim) bool {
	if after == nil || before.Mode != after.Mode {
		return true
	}
	less := len(before.Held.Without(after.Held)) > 0
	return less || before.Held.Equal(after.Held) && !slices.EqualFunc(before.Peaks, after.Peaks, quota.Usage.Equal)
}

// releasePeak releases the peak reservation, and wakes the stages that wait for that quota.
func (e *Engine) releasePeak(j *jobSet) {
	delete(e.unkept, j)
	if len(j.peakReserved) == 0 {
		return
	}
	e.peaks--
	e.noteReservation(j)
	q, kept := j.keeper, j.peakReserved
	j.keeper, j.peakReserved = nil, nil
	delete(q.keptFor, j)
	q.advanceReserved.Take(kept)
	top := q.node.Release(kept)
	e.wake(top, kept, q.cohortTree)
}

// noteReservation makes Changed return the queues whose reservation includes the peak.
func (e *Engine) noteReservation(j *jobSet) {
	e.noteChange(j.keeper)
	if lq := j.localQueue(); lq != nil {
		e.noteLocalChange(lq)
	}
}

// localQueue returns that of the stages of the JobSet, or nil if none is known. All stages have the same one, except while it is being changed.
func (j *jobSet) localQueue() *localQueue {
	var first *stage
	for _, s := range j.members {
		if first == nil || compareStages(s, first) < 0 {
			first = s
		}
	}
	if first == nil {
		return nil
	}
	return first.localQueue
}
