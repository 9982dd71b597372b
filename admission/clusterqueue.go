package admission

import (
	"fmt"
	"math"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/flavor"
	"github.com/tranche-dev/tranche/admission/preempt"
	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/queue"
)

// A clusterQueue exists as soon as an object names it, whether or not there is a ClusterQueue object.
type clusterQueue struct {
	queueSpec
	name    string
	version version
	// generation is that of the spec in use.
	generation int64
	// exists is true if there is an object with the spec.
	exists bool
	// isUnprotected is that of ClusterQueueObserved.
	isUnprotected bool

	// node is charged; bare has the same limits and is not.
	node, bare  *quota.Node
	cohortTree  *cohortTree
	isScheduled bool
	// isChanged is true if Changed has to return it.
	isChanged    bool
	pendingQueue *pendingQueue
	queueTotals  queueTotals
	// charged are the stages that are charged here, and holders is the view that preemption has of them.
	charged stageSet
	holders *preempt.Queue
	// preemptors are its pending stages with a preemption reservation, for quota that victims still hold.
	preemptors map[*stage]struct{}
	// advanceReserved is the sum of the peak reservations. It is charged to the node, too.
	advanceReserved quota.Sum
	// keptFor are the JobSets with a peak reservation here.
	keptFor map[*jobSet]struct{}
}

// A queueSpec is the part of the spec of a ClusterQueue that the Engine uses, with the flavors that exist.
type queueSpec struct {
	terminating bool
	stop        kueue.StopPolicy
	checks      []kueue.AdmissionCheckStrategyRule
	policy      string
	cohort      string
	weight      float64
	groups      []kueue.ResourceGroup
	fungibility flavor.Fungibility
	// isUsageBased is true if the order of its LocalQueues depends on their past usage.
	isUsageBased bool
	preemption   kueue.ClusterQueuePreemption
	selector     labels.Selector
	// selectorProblem says what is wrong with the selector, or is empty.
	selectorProblem string

	// remarks are about quotas of the spec that are not used as they are written.
	remarks []string
	// flavorGroups are the groups with the flavors that exist; missing names those that do not.
	flavorGroups []flavor.Group
	missing      []string
	// deleted names the flavors that are being deleted.
	deleted []string
	// topological are flavors with a topology, and isConcurrent is true if spec.concurrentAdmissionPolicy is set. Neither is supported.
	topological  []string
	isConcurrent bool
	strategy     queue.Strategy
}

// newQueueSpec returns the spec of a ClusterQueue without an object.
func newQueueSpec() queueSpec {
	return queueSpec{stop: kueue.None, weight: 1, selector: labels.Nothing()}
}

type pendingQueue = queue.Pending[*stage, equivalenceKey, quota.ID]

// A queueTotals counts the stages of a queue.
type queueTotals struct {
	pending, reserving, admitted int32
	reserved, used               quota.Sum
}

func (e *Engine) clusterQueue(name string) *clusterQueue {
	q := e.clusterQueues[name]
	if q == nil {
		q = &clusterQueue{
			queueSpec: newQueueSpec(), name: name, pendingQueue: queue.NewPending[*stage, equivalenceKey, quota.ID](),
			node: e.tree.AddClusterQueue(name), bare: e.safetyTree.AddClusterQueue(name), charged: stageSet{place: placeAmongCharged}, preemptors: map[*stage]struct{}{}, keptFor: map[*jobSet]struct{}{},
		}
		q.holders = e.finder.Queue(q.node)
		e.clusterQueues[name] = q
		e.isStale = true
	}
	return q
}

func (e *Engine) observeClusterQueue(ev ClusterQueueObserved) {
	object := ev.ClusterQueue
	q := e.clusterQueue(object.Name)
	v := versionOf(object.UID, object.ResourceVersion)
	if v.isOlderThan(q.version) {
		return
	}
	q.version = v
	if q.generation != object.Generation {
		q.generation = object.Generation
		e.noteChange(q)
	}
	differs := q.adopt(object)
	q.pendingQueue.SetStrategy(q.strategy)
	if differs || !q.exists || q.isUnprotected != ev.IsUnprotected {
		q.exists, q.isUnprotected = true, ev.IsUnprotected
		e.renewClusterQueue(q)
	}
}

func (e *Engine) loseClusterQueue(name string) {
	q := e.clusterQueue(name)
	*q = clusterQueue{
		queueSpec: newQueueSpec(), name: name,
		node: q.node, bare: q.bare, cohortTree: q.cohortTree, isScheduled: q.isScheduled, isChanged: q.isChanged, pendingQueue: q.pendingQueue, queueTotals: q.queueTotals, charged: q.charged, holders: q.holders, preemptors: q.preemptors,
		advanceReserved: q.advanceReserved, keptFor: q.keptFor,
	}
	e.renewClusterQueue(q)
}

// adopt copies the relevant fields of an object, and reports whether they have changed.
func (q *queueSpec) adopt(object *kueue.ClusterQueue) bool {
	before := *q
	spec := object.Spec.DeepCopy()
	q.terminating = !object.DeletionTimestamp.IsZero()
	q.stop = kueue.None
	if spec.StopPolicy != nil {
		q.stop = *spec.StopPolicy
	}
	q.checks = nil
	if spec.AdmissionChecksStrategy != nil {
		q.checks = spec.AdmissionChecksStrategy.AdmissionChecks
	}
	q.policy = object.Annotations[apis.StageAdmissionAnnotation]
	q.cohort, q.weight = string(spec.CohortName), weightOf(spec.FairSharing)
	q.groups = spec.ResourceGroups
	q.fungibility = flavor.NewFungibility(spec.FlavorFungibility)
	q.preemption = kueue.ClusterQueuePreemption{}
	if spec.Preemption != nil {
		q.preemption = *spec.Preemption
	}
	q.isUsageBased = spec.AdmissionScope != nil && spec.AdmissionScope.AdmissionMode == kueue.UsageBasedAdmissionFairSharing
	q.isConcurrent = spec.ConcurrentAdmissionPolicy != nil
	q.selectorProblem = ""
	selector, err := metav1.LabelSelectorAsSelector(spec.NamespaceSelector)
	if err != nil {
		selector, q.selectorProblem = labels.Nothing(), err.Error()
	}
	q.selector = selector
	q.strategy = queue.BestEffort
	if spec.QueueingStrategy == kueue.StrictFIFO {
		q.strategy = queue.Strict
	}
	return !q.saysTheSameAs(&before)
}

func (q *queueSpec) saysTheSameAs(o *queueSpec) bool {
	facts := func(q *queueSpec) string {
		return fmt.Sprintln(q.terminating, q.stop, q.strategy, q.policy, q.cohort, q.weight, q.fungibility, q.selector, q.selectorProblem, q.checks, q.isUsageBased, q.isConcurrent)
	}
	return facts(q) == facts(o) && sameGroups(q.groups, o.groups) && samePreemption(&q.preemption, &o.preemption)
}

func samePreemption(a, b *kueue.ClusterQueuePreemption) bool {
	borrowing := func(p *kueue.ClusterQueuePreemption) (kueue.BorrowWithinCohortPolicy, int64) {
		switch {
		case p.BorrowWithinCohort == nil:
			return kueue.BorrowWithinCohortPolicyNever, 0
		case p.BorrowWithinCohort.MaxPriorityThreshold == nil:
			return p.BorrowWithinCohort.Policy, math.MaxInt64
		}
		return p.BorrowWithinCohort.Policy, int64(*p.BorrowWithinCohort.MaxPriorityThreshold)
	}
	policyA, thresholdA := borrowing(a)
	policyB, thresholdB := borrowing(b)
	return a.WithinClusterQueue == b.WithinClusterQueue && a.ReclaimWithinCohort == b.ReclaimWithinCohort &&
		policyA == policyB && thresholdA == thresholdB
}

// renewClusterQueue recomputes all that depends on the spec or on flavors.
func (e *Engine) renewClusterQueue(q *clusterQueue) {
	e.renewFlavors(q)
	limits, remarks := e.limits(q.groups)
	q.remarks = remarks
	e.tree.SetQuotas(q.node, limits)
	e.safetyTree.SetQuotas(q.bare, limits)
	q.node.Weight, q.bare.Weight = q.weight, q.weight
	if q.isUsageBased && e.decay != nil {
		q.pendingQueue.SetLead(e.levelOf)
		q.holders.Level = func(h *preempt.Holder) float64 {
			return e.levelOf(equivalenceKey{localQueue: evictionUnitOf(h).stages[0].localQueue})
		}
	} else {
		q.pendingQueue.SetLead(nil)
		q.holders.Level = nil
	}
	q.holders.Preemption = q.preemption
	if q.cohort != "" {
		e.cohort(q.cohort)
	}
	e.isStale = true
	e.noteChange(q)
	for _, lq := range e.localQueues {
		if lq.clusterQueue == q.name {
			e.noteLocalChange(lq)
		}
	}
	for _, s := range q.charged.stages {
		e.noteIfOverdue(s)
	}
}

// renewFlavors computes the flavor groups of a ClusterQueue, and the problems of its flavors.
func (e *Engine) renewFlavors(q *clusterQueue) {
	q.flavorGroups, q.missing, q.deleted, q.topological = nil, nil, nil, nil
	for _, g := range q.groups {
		var flavors []*flavor.Flavor
		for i := range g.Flavors {
			name := g.Flavors[i].Name
			f := e.flavors[name]
			if f == nil {
				q.missing = append(q.missing, string(name))
				continue
			}
			flavors = append(flavors, f.fact)
			if f.fact.IsDeleted {
				q.deleted = append(q.deleted, string(name))
			}
			if f.fact.HasTopology {
				q.topological = append(q.topological, string(name))
			}
		}
		q.flavorGroups = append(q.flavorGroups, flavor.NewGroup(g.CoveredResources, flavors))
	}
}

func (e *Engine) observeFlavor(object *kueue.ResourceFlavor) {
	name := kueue.ResourceFlavorReference(object.Name)
	v := versionOf(object.UID, object.ResourceVersion)
	known := e.flavors[name]
	if known != nil && v.isOlderThan(known.version) {
		return
	}
	f := flavor.New(object)
	e.flavors[name] = &observed[*flavor.Flavor]{f, v}
	if known == nil || !known.fact.Same(f) {
		e.renewUsersOf(name)
	}
}

func (e *Engine) loseFlavor(name kueue.ResourceFlavorReference) {
	delete(e.flavors, name)
	e.renewUsersOf(name)
}

func (e *Engine) renewUsersOf(name kueue.ResourceFlavorReference) {
	for _, q := range e.clusterQueues {
		for _, g := range q.groups {
			if slices.ContainsFunc(g.Flavors, func(f kueue.FlavorQuotas) bool { return f.Name == name }) {
				e.renewClusterQueue(q)
				break
			}
		}
	}
}
