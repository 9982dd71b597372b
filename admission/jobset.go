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
	plan    *stageplan.Plan
	outline *safety.Outline
	// stages has the shapes of the stages, problem is the first problem of a stage, and shape stands for the whole plan.
	stages  []*shape
	problem string
	shape   *shape
	members map[StageKey]*stage

	// home is the ClusterQueue in which the JobSet holds quota, or nil; it may have a claim there. keeper is the one in which its peak is
	// reserved.
	home  *clusterQueue
	claim *safety.Claim
	// claimed is the revision at which the claim was added to bank.
	claimed uint64
	kept    quota.Usage
	keeper  *clusterQueue
	// topic is the topic of stages that wait for the claim to become smaller.
	topic    quota.ID
	prospect prospect
	// advice is the size hint for the whole plan.
	advice advice
	// tenure is the eviction unit of the JobSet.
	tenure tenure
	// deadlock has the claims that wait for each other, among them that of this JobSet, or is nil.
	deadlock []*safety.Claim
	// turn counts the changes of home and claim.
	turn int
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
	if e.graves.has(ev.UID) {
		return
	}
	e.adoptPlan(e.jobSet(ev.UID), ev)
}

// adoptPlan recomputes all that depends on the plan, and on what the API server adds to the pods of the namespace.
func (e *Engine) adoptPlan(j *jobSet, ev PlanObserved) {
	stages, whole := e.shapesOf(ev.JobSet.Namespace, ev.Plan)
	if j.isKnown() && j.shape.key == whole.key && j.policy == ev.StageAdmission && j.submitted.Equal(ev.Submitted) {
		return
	}
	before := append(j.stages, j.shape)
	j.key, j.submitted, j.policy, j.plan = ev.JobSet, ev.Submitted, ev.StageAdmission, ev.Plan
	j.prospect, j.advice = prospect{}, advice{}
	j.shape, j.stages, j.problem, j.outline = e.hold(whole), nil, "", safety.NewOutline(ev.Plan)
	for _, s := range stages {
		j.stages = append(j.stages, e.hold(s))
		if j.problem == "" {
			j.problem = s.problem
		}
	}
	for _, s := range before {
		e.letGo(s)
	}
	j.turn++
	e.reconsider(j)
}

func (e *Engine) losePlan(uid types.UID) {
	j := e.jobSets[uid]
	if j == nil {
		return
	}
	for _, s := range append(j.stages, j.shape) {
		e.letGo(s)
	}
	j.plan, j.outline, j.shape, j.stages = nil, nil, nil, nil
	e.reconsider(j)
	e.dropIfForgotten(j)
}

// shapesOf returns the shapes of the stages, and one without pod sets that stands for the plan.
func (e *Engine) shapesOf(namespace string, plan *stageplan.Plan) (stages []*shape, whole *shape) {
	var b strings.Builder
	b.WriteString("plan " + plan.String())
	for i := range plan.Stages {
		s := e.shapeOfStage(namespace, &plan.Stages[i])
		stages = append(stages, s)
		b.WriteString("\n" + s.key)
	}
	return stages, &shape{key: b.String()}
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
			last = max(last, j.outline.Segment(s.index))
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

// reconsider recomputes all that depends on the progress of a JobSet: its claim, its peak reservation, and the queue positions of its stages.
func (e *Engine) reconsider(j *jobSet) {
	before, claim := j.home, j.claim
	e.unkeep(j)
	j.home = e.findHome(j)
	e.replaceClaim(j, e.claimOf(j))
	e.keep(j)
	e.renewTenuresOf(j)
	if before != j.home || !sameClaim(claim, j.claim) {
		j.turn++
	}
	if claim != nil && (before != j.home || shrinks(claim, j.claim)) {
		e.wakeClaimWaiters(before.group, j)
	}
	for _, s := range j.members {
		e.enqueue(s)
	}
}

// claimOf computes what a JobSet may still come to hold. A JobSet that is being evicted has no claim.
func (e *Engine) claimOf(j *jobSet) *safety.Claim {
	if j.home == nil || !j.isKnown() || e.isStale || j.isLeaving() {
		return nil
	}
	c := e.course(j, j.home)
	if len(c.Ahead()) == 0 {
		return nil
	}
	return &safety.Claim{
		JobSet: j.key.String(), Owner: j.uid, Node: j.home.bare, Held: c.HeldNow(), Peaks: c.Peaks(), Regard: e.regard(j),
	}
}

// regard returns whether the Engine protects a JobSet from deadlocks, and whether its stages may be admitted at all now.
func (e *Engine) regard(j *jobSet) safety.Regard {
	switch {
	case e.policy(j.home, j) == Greedy:
		return safety.Unguarded
	case e.isHalted(j):
		return safety.Halted
	}
	return safety.Guarded
}

// isHalted reports whether a JobSet cannot continue before a user or administrator acts, however much quota is free.
func (e *Engine) isHalted(j *jobSet) bool {
	namespace, known := e.namespaces[j.key.Namespace]
	if !j.home.exists || e.activity(j.home).Status != metav1.ConditionTrue || !known || !j.home.selector.Matches(labels.Set(namespace)) {
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
	if j.claim != nil && now != nil && j.claimed == e.revision && j.claim.Node == now.Node && j.claim.Regard == now.Regard && sameClaim(j.claim, now) {
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
	if after == nil || before.Regard != after.Regard {
		return true
	}
	less := len(before.Held.Without(after.Held)) > 0
	return less || before.Held.Equal(after.Held) && !slices.EqualFunc(before.Peaks, after.Peaks, quota.Usage.Equal)
}

// unkeep releases the peak reservation, and wakes the stages that wait for that quota.
func (e *Engine) unkeep(j *jobSet) {
	delete(e.unkept, j)
	if len(j.kept) == 0 {
		return
	}
	e.peaks--
	e.noteReservation(j)
	q, kept := j.keeper, j.kept
	j.keeper, j.kept = nil, nil
	delete(q.keptFor, j)
	q.kept.Take(kept)
	top := q.node.Release(kept)
	e.wake(top, kept, q.group)
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
