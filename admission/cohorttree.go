package admission

import (
	"maps"
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/admission/quota"
)

// A cohortTree is a cohort tree: the ClusterQueues under one root Cohort, or one that has none. Decisions in one cohort tree have no effect on
// another.
type cohortTree struct {
	root *quota.Node
	// queues by name.
	queues []*clusterQueue
	// asleep has the queues in which a stage may be parked on a topic.
	asleep map[quota.ID]map[*clusterQueue]struct{}
	// pledging has the queues in which a stage has a preemption reservation.
	pledging map[*clusterQueue]struct{}
	// keepers are the stages that reserve nominal quota against borrowers.
	keepers map[*stage]struct{}
	// awaitsTurn has the queues in which a stage may wait for its turn to evict by fair sharing.
	awaitsTurn map[*clusterQueue]struct{}
	// awake has the queues in which a stage may be pending and not parked, each once. isDirty is true if Decide has to check them.
	awake   []*clusterQueue
	isDirty bool
}

func compareGroups(a, b *cohortTree) int { return strings.Compare(a.queues[0].name, b.queues[0].name) }

const (
	// anyClaim is the topic of stages that wait for claims of other JobSets to become smaller. Below allReady each JobSet has its own topic, on
	// which stages are parked that wait for its claim.
	anyClaim quota.ID = -1
	// allReady is the topic of stages that wait for the pods of all admitted stages to be ready.
	allReady quota.ID = -2
)

// rebuildTrees rebuilds the cohort trees if anything has changed that they depend on, and wakes all stages: such changes are rare.
func (e *Engine) rebuildTrees() {
	if !e.isStale {
		return
	}
	e.isStale = false
	e.revision++
	e.adoptParents()
	e.forgetQueues()
	e.forgetCohorts()
	e.cohortTrees = map[*quota.Node]*cohortTree{}
	for _, name := range slices.Sorted(maps.Keys(e.clusterQueues)) {
		q := e.clusterQueues[name]
		root := q.node.Root()
		g := e.cohortTrees[root]
		if g == nil {
			g = &cohortTree{
				root: root, asleep: map[quota.ID]map[*clusterQueue]struct{}{}, pledging: map[*clusterQueue]struct{}{},
				keepers: map[*stage]struct{}{}, awaitsTurn: map[*clusterQueue]struct{}{},
			}
			e.cohortTrees[root] = g
		}
		q.cohortTree = g
		g.queues = append(g.queues, q)
		if len(q.preemptors) > 0 {
			g.pledging[q] = struct{}{}
		}
		for s := range q.preemptors {
			if s.keepsNominal {
				g.keepers[s] = struct{}{}
			}
		}
	}
	e.dirty = nil
	for _, q := range e.clusterQueues {
		q.isScheduled = false
		q.pendingQueue.WakeAll()
		e.scheduleCycle(q)
	}
	e.bank.Invalidate()
	for _, uid := range slices.Sorted(maps.Keys(e.jobSets)) {
		if j := e.jobSets[uid]; j.claimQueue != nil {
			e.updateJobSet(j)
		}
	}
}

// forgetQueues forgets ClusterQueues that do not exist and that no object refers to.
func (e *Engine) forgetQueues() {
	gone := map[*clusterQueue]struct{}{}
	for _, q := range e.clusterQueues {
		if !q.exists && q.name != "" {
			gone[q] = struct{}{}
		}
	}
	if len(gone) == 0 {
		return
	}
	for _, s := range e.stages {
		for _, q := range []*clusterQueue{s.queuedIn, s.entry.clusterQueue, s.preemptQueue, s.evictionUnit.queue} {
			delete(gone, q)
		}
		for _, a := range []*assignment{s.reservation, s.assumed} {
			if a != nil {
				delete(gone, a.clusterQueue)
			}
		}
	}
	for _, j := range e.jobSets {
		for _, q := range []*clusterQueue{j.claimQueue, j.keeper, j.evictionUnit.queue} {
			delete(gone, q)
		}
	}
	for _, lq := range e.localQueues {
		delete(gone, e.clusterQueues[lq.clusterQueue])
	}
	for q := range gone {
		e.forgetQueue(q)
	}
}

func (e *Engine) forgetQueue(q *clusterQueue) {
	delete(e.clusterQueues, q.name)
	e.finder.Drop(q.node)
	e.tree.Remove(q.node)
	e.safetyTree.Remove(q.bare)
	for _, d := range e.demands {
		delete(d.options, q.node)
	}
}

// forgetCohorts forgets Cohorts that do not exist and that no object names.
func (e *Engine) forgetCohorts() {
	named := map[string]struct{}{}
	for _, c := range e.cohorts {
		named[c.parent] = struct{}{}
	}
	for _, q := range e.clusterQueues {
		named[q.cohort] = struct{}{}
	}
	for name, c := range e.cohorts {
		if _, isNamed := named[name]; !c.exists && !isNamed {
			delete(e.cohorts, name)
			e.tree.Remove(c.node)
			e.safetyTree.Remove(c.bare)
		}
	}
}

// adoptParents sets the parents of ClusterQueues and Cohorts. Cohorts whose parents form a cycle get no parent.
func (e *Engine) adoptParents() {
	for _, c := range e.cohorts {
		c.cycle = e.cycleAbove(c)
	}
	for _, name := range slices.Sorted(maps.Keys(e.cohorts)) {
		c := e.cohorts[name]
		var parent, bare *quota.Node
		if c.parent != "" && c.cycle == "" {
			parent, bare = e.cohorts[c.parent].node, e.cohorts[c.parent].bare
		}
		e.tree.SetParent(c.node, parent)
		e.safetyTree.SetParent(c.bare, bare)
	}
	for _, name := range slices.Sorted(maps.Keys(e.clusterQueues)) {
		q := e.clusterQueues[name]
		var parent, bare *quota.Node
		if q.cohort != "" {
			parent, bare = e.cohorts[q.cohort].node, e.cohorts[q.cohort].bare
		}
		e.tree.SetParent(q.node, parent)
		e.safetyTree.SetParent(q.bare, bare)
	}
}

// cycleAbove names the Cohorts from parent to parent up to the first that is repeated, if there is one.
func (e *Engine) cycleAbove(c *cohort) string {
	var met []string
	for ; c.parent != ""; c = e.cohorts[c.parent] {
		if slices.Contains(met, c.name) {
			return strings.Join(append(met, c.name), ", ")
		}
		met = append(met, c.name)
	}
	return ""
}

// scheduleCycle makes the next call of Decide check a queue.
func (e *Engine) scheduleCycle(q *clusterQueue) {
	if e.isStale {
		return
	}
	if !q.isScheduled {
		q.isScheduled = true
		q.cohortTree.awake = append(q.cohortTree.awake, q)
	}
	if !q.cohortTree.isDirty {
		q.cohortTree.isDirty = true
		e.dirty = append(e.dirty, q.cohortTree)
	}
}

// wake wakes the stages that may have waited for the released quota: all below the node that the release reaches.
func (e *Engine) wake(top *quota.Node, released quota.Usage, g *cohortTree) {
	if e.isStale {
		return
	}
	for _, c := range released {
		for q := range g.asleep[c.ID] {
			if !q.pendingQueue.Sleeps(c.ID) {
				delete(g.asleep[c.ID], q)
			} else if top.IsAbove(q.node) && q.pendingQueue.Wake(c.ID, int64(q.node.Available(c.ID))) {
				e.scheduleCycle(q)
			}
		}
	}
}

// sleep notes that a stage of a queue is parked on a topic.
func (g *cohortTree) sleep(q *clusterQueue, topic quota.ID) {
	if g.asleep[topic] == nil {
		g.asleep[topic] = map[*clusterQueue]struct{}{}
	}
	g.asleep[topic][q] = struct{}{}
}

// wakeClaimWaiters wakes the stages that wait for the claim of a JobSet to become smaller.
func (e *Engine) wakeClaimWaiters(g *cohortTree, j *jobSet) {
	e.wakeTopic(g, j.topic)
	e.wakeTopic(g, anyClaim)
}

func (e *Engine) wakeTopic(g *cohortTree, topic quota.ID) {
	if e.isStale {
		return
	}
	for q := range g.asleep[topic] {
		q.pendingQueue.Wake(topic, 0)
		e.scheduleCycle(q)
	}
	delete(g.asleep, topic)
}
