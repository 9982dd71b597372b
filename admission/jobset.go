package admission

import (
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/admission/flavor"
	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/admission/safety"
	"github.com/tranche-dev/tranche/admission/stageplan"
)

// A jobSet exists from the first time that its plan or a stage of it is observed.
type jobSet struct {
	uid       types.UID
	key       types.NamespacedName
	submitted time.Time
	policy    string
	// plan is nil until it is known.
	plan *stageplan.Plan
	// podSets of the plan, by stage, and what is wrong with them.
	podSets   [][]flavor.PodSet
	problem   string
	signature string
	members   map[StageKey]*stage

	// options has the items of each stage of the plan in one ClusterQueue.
	options []itemCache

	// home is the ClusterQueue in which the JobSet holds quota, or nil; there it may have a claim, and quota that is kept for it.
	home  *clusterQueue
	claim *safety.Claim
	kept  quota.Usage
	// turn counts the changes of home and claim.
	turn int
}

func (j *jobSet) isKnown() bool { return j.plan != nil }

func (e *Engine) jobSet(uid types.UID) *jobSet {
	j := e.jobSets[uid]
	if j == nil {
		j = &jobSet{uid: uid, members: map[StageKey]*stage{}}
		e.jobSets[uid] = j
	}
	return j
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
	j := e.jobSet(ev.UID)
	podSets, problem := podSetsOf(ev.Plan)
	signature := planSignature(ev.Plan, podSets)
	if j.isKnown() && j.signature == signature && j.policy == ev.StageAdmission && j.submitted.Equal(ev.Submitted) {
		return
	}
	j.key, j.submitted, j.policy, j.plan = ev.JobSet, ev.Submitted, ev.StageAdmission, ev.Plan
	j.podSets, j.problem, j.signature = podSets, problem, signature
	j.options = make([]itemCache, len(ev.Plan.Stages))
	e.reconsider(j)
}

func (e *Engine) losePlan(uid types.UID) {
	j := e.jobSets[uid]
	if j == nil {
		return
	}
	j.plan = nil
	e.reconsider(j)
	e.dropIfForgotten(j)
}

func podSetsOf(plan *stageplan.Plan) (podSets [][]flavor.PodSet, problem string) {
	podSets = make([][]flavor.PodSet, len(plan.Stages))
	for i := range plan.Stages {
		for k := range plan.Stages[i].PodSets {
			p := &plan.Stages[i].PodSets[k]
			podSet, wrong := podSetOf(p.Name, p.Count, p.Requests, &p.Template.Spec)
			podSets[i] = append(podSets[i], podSet)
			if problem == "" {
				problem = wrong
			}
		}
	}
	return podSets, problem
}

func planSignature(plan *stageplan.Plan, podSets [][]flavor.PodSet) string {
	var b strings.Builder
	b.WriteString(plan.String())
	for _, sets := range podSets {
		b.WriteString("\n" + signatureOf(sets))
	}
	return b.String()
}

// since is when the JobSet took its place in line: at its submission, or when it was last evicted.
func (j *jobSet) since() time.Time {
	since := j.submitted
	for _, s := range j.members {
		if s.evicted.After(since) {
			since = s.evicted
		}
	}
	return since
}

// continues tells whether the JobSet holds quota or has finished stages.
func (j *jobSet) continues() bool {
	for _, s := range j.members {
		if s.entry.isCharged() || s.entry.phase == finished {
			return true
		}
	}
	return false
}

// attempt is the latest restart that a quota Workload counts for. What finished in an earlier one has to be done again.
func (j *jobSet) attempt() int {
	latest := 0
	for _, s := range j.members {
		latest = max(latest, s.attempt)
	}
	return latest
}

// course is how far the JobSet has come. It counts only what is held in the given ClusterQueue, and items there. It must only be
// asked for when the plan is known.
func (e *Engine) course(j *jobSet, q *clusterQueue) *safety.Course {
	n := len(j.plan.Stages)
	c := &safety.Course{Plan: j.plan, Held: make([]quota.Usage, n), Finished: make([]bool, n), Items: make([][]flavor.Item, n)}
	attempt := j.attempt()
	open := make([]bool, n)
	for _, s := range j.members {
		if s.index < 0 || s.index >= n {
			continue
		}
		switch {
		case s.entry.isCharged() && s.entry.clusterQueue == q.name:
			if c.Held[s.index] == nil {
				c.Held[s.index] = quota.Usage{}
			}
			c.Held[s.index].AddAll(s.entry.usage)
		case s.entry.phase == finished && s.attempt == attempt:
			c.Finished[s.index] = true
		default:
			open[s.index] = true
		}
	}
	for i := range n {
		c.Finished[i] = c.Finished[i] && !open[i] && c.Held[i] == nil
		if c.Held[i] == nil && !c.Finished[i] {
			c.Items[i], _ = e.items(&j.options[i], q, j.podSets[i])
		}
	}
	return c
}

// findHome is the ClusterQueue in which the JobSet holds quota, or nil. It is one, since all stages have the same LocalQueue and
// only an administrator can move that.
func (e *Engine) findHome(j *jobSet) *clusterQueue {
	var home *clusterQueue
	for _, s := range j.members {
		if s.entry.isCharged() && (home == nil || s.entry.clusterQueue < home.name) {
			home = e.clusterQueue(s.entry.clusterQueue)
		}
	}
	return home
}

// reconsider derives everything again that depends on how far a JobSet has come: its claim, what is kept for it, and the places in
// line of its stages.
func (e *Engine) reconsider(j *jobSet) {
	home, claim := e.findHome(j), j.claim
	e.unkeep(j)
	if j.home != nil {
		delete(j.home.claimants, j.uid)
	}
	before := j.home
	j.home, j.claim = home, nil
	if home != nil && j.isKnown() {
		if c := e.course(j, home); len(c.Ahead()) > 0 {
			j.claim = &safety.Claim{JobSet: j.key.String(), Held: c.HeldNow(), Peaks: c.Peaks()}
			home.claimants[j.uid] = j
			e.keep(j)
		}
	}
	if before != home || !sameClaim(claim, j.claim) {
		j.turn++
	}
	if claim != nil && (before != home || shrinks(claim, j.claim)) {
		e.wake(before, nil)
	}
	for _, s := range j.members {
		e.enqueue(s)
	}
}

func sameClaim(a, b *safety.Claim) bool {
	if a == nil || b == nil {
		return a == b
	}
	return maps.Equal(a.Held, b.Held) && slices.EqualFunc(a.Peaks, b.Peaks, maps.Equal)
}

// shrinks tells whether others may be better off. Who gets more of what is foreseen for it leaves the others no better off.
func shrinks(before, after *safety.Claim) bool {
	if after == nil {
		return true
	}
	less := len(before.Held.Without(after.Held)) > 0
	return less || maps.Equal(before.Held, after.Held) && !slices.EqualFunc(before.Peaks, after.Peaks, maps.Equal)
}

// keep sets aside what policy Reserve promises to a JobSet: the first of its peaks that can be had now, or the first of all if none
// can, as after a quota cut.
func (e *Engine) keep(j *jobSet) {
	if e.policy(j.home, j) != Reserve || len(j.claim.Peaks) == 0 {
		return
	}
	j.kept = j.claim.Peaks[0].Without(j.claim.Held)
	for _, peak := range j.claim.Peaks {
		if more := peak.Without(j.claim.Held); e.tree.Fits(j.home.name, more) {
			j.kept = more
			break
		}
	}
	e.tree.Keep(j.home.name, j.kept)
}

// unkeep gives up what was set aside. Those who wait for it wake.
func (e *Engine) unkeep(j *jobSet) {
	if len(j.kept) == 0 {
		return
	}
	e.tree.Unkeep(j.home.name, j.kept)
	e.wake(j.home, j.kept)
	j.kept = nil
}

// An itemCache has the items of pod sets in one revision of a ClusterQueue. Its home is items.
type itemCache struct {
	clusterQueue string
	revision     uint64
	items        []flavor.Item
	lack         *flavor.Lack
}

// items returns what flavor.Items finds for pod sets in a ClusterQueue.
func (e *Engine) items(cache *itemCache, q *clusterQueue, podSets []flavor.PodSet) ([]flavor.Item, *flavor.Lack) {
	if cache.revision != q.revision || cache.clusterQueue != q.name || cache.revision == 0 {
		limit := func(fr quota.FlavorResource) quota.Amount { return e.tree.Limit(q.name, fr) }
		items, lack := flavor.Items(q.flavorGroups, podSets, limit)
		*cache = itemCache{clusterQueue: q.name, revision: q.revision, items: items, lack: lack}
	}
	return cache.items, cache.lack
}
