package admission

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/flavor"
	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/queue"
)

// A clusterQueue exists from the first time that something names it, whether or not there is an object.
type clusterQueue struct {
	name    string
	version version
	// exists tells whether there is an object; what comes next is from its spec.
	exists      bool
	terminating bool
	isStopped   bool
	hasChecks   bool
	policy      string
	groups      []kueue.ResourceGroup
	selector    labels.Selector
	// selectorProblem says what is wrong with the selector, or is empty.
	selectorProblem string

	// flavorGroups are the groups with the flavors that exist; missing names the others.
	flavorGroups []flavor.Group
	missing      []string
	// revision changes with everything that the items of pod sets depend on.
	revision uint64

	line *queue.Line[quota.FlavorResource]
	// claimants are the JobSets with a claim here.
	claimants map[types.UID]*jobSet
	ledger    ledger
}

// A ledger counts the stages of a queue. What they are charged in a ClusterQueue is in the tree.
type ledger struct {
	pending, reserving, admitted int32
	reserved, used               quota.Tally
}

// anyClaim is the topic of those who wait for other JobSets' claims to become smaller.
func anyClaim() quota.FlavorResource { return quota.FlavorResource{} }

func (e *Engine) clusterQueue(name string) *clusterQueue {
	q := e.clusterQueues[name]
	if q == nil {
		q = &clusterQueue{
			name: name, selector: labels.Nothing(), line: queue.NewLine[quota.FlavorResource](),
			claimants: map[types.UID]*jobSet{},
		}
		e.clusterQueues[name] = q
	}
	return q
}

func (e *Engine) observeClusterQueue(object *kueue.ClusterQueue) {
	q := e.clusterQueue(object.Name)
	v := versionOf(object.UID, object.ResourceVersion)
	if v.isOlderThan(q.version) {
		return
	}
	q.version = v
	if differs := q.adopt(object); differs || !q.exists {
		q.exists = true
		e.renewClusterQueue(q)
	}
}

func (e *Engine) loseClusterQueue(name string) {
	q := e.clusterQueue(name)
	*q = clusterQueue{
		name: name, selector: labels.Nothing(), revision: q.revision,
		line: q.line, claimants: q.claimants, ledger: q.ledger,
	}
	e.renewClusterQueue(q)
}

// adopt takes over what counts of an object, and tells whether it differs from before.
func (q *clusterQueue) adopt(object *kueue.ClusterQueue) bool {
	before := fmt.Sprintf("%v", q.facts())
	spec := object.Spec.DeepCopy()
	q.terminating = !object.DeletionTimestamp.IsZero()
	q.isStopped = spec.StopPolicy != nil && *spec.StopPolicy != kueue.None
	q.hasChecks = spec.AdmissionChecksStrategy != nil && len(spec.AdmissionChecksStrategy.AdmissionChecks) > 0
	q.policy = object.Annotations[apis.StageAdmissionAnnotation]
	q.groups = spec.ResourceGroups
	q.selectorProblem = ""
	selector, err := metav1.LabelSelectorAsSelector(spec.NamespaceSelector)
	if err != nil {
		selector, q.selectorProblem = labels.Nothing(), err.Error()
	}
	q.selector = selector
	strategy := queue.BestEffort
	if spec.QueueingStrategy == kueue.StrictFIFO {
		strategy = queue.Strict
	}
	q.line.SetStrategy(strategy)
	return before != fmt.Sprintf("%v", q.facts())
}

// facts are what adopt takes over, in a form that can be compared.
func (q *clusterQueue) facts() []any {
	facts := []any{q.terminating, q.isStopped, q.hasChecks, q.policy, q.selector.String(), q.selectorProblem}
	for fr, limit := range q.limits().Sorted() {
		facts = append(facts, fr, limit)
	}
	for _, g := range q.groups {
		facts = append(facts, g.CoveredResources)
		for i := range g.Flavors {
			facts = append(facts, g.Flavors[i].Name)
		}
	}
	return facts
}

func (q *clusterQueue) limits() quota.Usage {
	limits := quota.Usage{}
	for _, g := range q.groups {
		for i := range g.Flavors {
			for _, r := range g.Flavors[i].Resources {
				amount, _ := quota.Of(r.Name, r.NominalQuota)
				limits[quota.FlavorResource{Flavor: g.Flavors[i].Name, Resource: r.Name}] = amount
			}
		}
	}
	return limits
}

// renewClusterQueue derives everything again that depends on the spec or on flavors.
func (e *Engine) renewClusterQueue(q *clusterQueue) {
	q.revision++
	q.flavorGroups, q.missing = nil, nil
	for _, g := range q.groups {
		var flavors []*flavor.Flavor
		for i := range g.Flavors {
			if f := e.flavors[g.Flavors[i].Name]; f != nil {
				flavors = append(flavors, f.fact)
			} else {
				q.missing = append(q.missing, string(g.Flavors[i].Name))
			}
		}
		q.flavorGroups = append(q.flavorGroups, flavor.NewGroup(g.CoveredResources, flavors))
	}
	e.tree.SetLimits(q.name, q.limits())
	for _, uid := range slices.Sorted(maps.Keys(q.claimants)) {
		e.reconsider(q.claimants[uid])
	}
	e.wakeAll(q)
	e.changedClusterQueues[q.name] = struct{}{}
	for key, lq := range e.localQueues {
		if lq.clusterQueue == q.name {
			e.changedLocalQueues[key] = struct{}{}
		}
	}
}

func (e *Engine) wakeAll(q *clusterQueue) {
	q.line.WakeAll()
	e.dirty[q.name] = struct{}{}
}

// wake wakes those who wait for quota, and those who wait for claims to become smaller.
func (e *Engine) wake(q *clusterQueue, released quota.Usage) {
	for fr := range released {
		q.line.Wake(fr)
	}
	q.line.Wake(anyClaim())
	e.dirty[q.name] = struct{}{}
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

// An Activity is what the condition Active of a queue says.
type Activity struct {
	Status          metav1.ConditionStatus
	Reason, Message string
}

// activity tells whether a ClusterQueue takes new reservations.
func (q *clusterQueue) activity() Activity {
	if q.terminating {
		return Activity{metav1.ConditionFalse, kueue.ClusterQueueActiveReasonTerminating, "Admits no quota Workloads: the ClusterQueue is being deleted"}
	}
	var reasons, messages []string
	add := func(reason, message string) {
		reasons = append(reasons, reason)
		messages = append(messages, message)
	}
	if q.isStopped {
		add(kueue.ClusterQueueActiveReasonStopped, "stopped by spec.stopPolicy")
	}
	if len(q.missing) > 0 {
		add(kueue.ClusterQueueActiveReasonFlavorNotFound, "no such ResourceFlavor: "+strings.Join(q.missing, ", "))
	}
	if q.hasChecks {
		add(kueue.ClusterQueueActiveReasonAdmissionCheckInactive, "spec.admissionChecksStrategy: admission checks are not supported yet")
	}
	if q.selectorProblem != "" {
		add(kueue.ClusterQueueActiveReasonUnknown, "spec.namespaceSelector: "+q.selectorProblem)
	}
	if len(reasons) > 0 {
		return Activity{metav1.ConditionFalse, reasons[0], "Admits no quota Workloads: " + strings.Join(messages, "; ")}
	}
	return Activity{metav1.ConditionTrue, kueue.ClusterQueueActiveReasonReady, "Can admit quota Workloads"}
}
