package admission

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/fairshare"
	"github.com/tranche-dev/tranche/admission/flavor"
	"github.com/tranche-dev/tranche/admission/podresources"
	"github.com/tranche-dev/tranche/admission/preempt"
	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/admission/safety"
)

// An Engine owns all queues and quota. It is not safe for concurrent use.
type Engine struct {
	config Config
	// now is the time of the last call of Decide.
	now time.Time

	// tree has all charges; safetyTree has the same limits, and is charged the claims in bank.
	tree, safetyTree *quota.Tree
	bank             *safety.Bank
	meter            *fairshare.Meter
	finder           *preempt.Finder
	// decay is nil without admission fair sharing.
	decay      *fairshare.Decay
	transfers  []transfer
	unopened   map[*localQueue]struct{}
	nextSample time.Time
	// unready is the number of admitted stages whose pods are not ready.
	unready int
	// draft is memory for a demand under construction, and draftKey for its key. Most demands turn out to be known.
	draft    demand
	draftKey []byte
	// pods is memory for the pod specs of a demand under construction.
	pods []podresources.PodSet
	// isStale is true if the cohort trees have to be rebuilt. The revision changes whenever they are.
	isStale     bool
	revision    uint64
	cohortTrees map[*quota.Node]*cohortTree
	// cycles counts the scheduling cycles, and takings how often a decision charged or reserved quota.
	cycles, chargeEpoch uint64
	// changedReservations are the ClusterQueues whose preemption reservations have changed since the comparison of nominees of this cycle read them. It may also contain
	// ClusterQueues of other cohort trees, and from before the cycle, which is harmless.
	changedReservations []*clusterQueue
	// dirty has the cohort trees in which a stage may be pending and not parked.
	dirty  []*cohortTree
	timers timers
	// overdue are stages that may have to be evicted because their queue has been stopped.
	overdue map[*stage]struct{}

	podRules
	flavors       map[kueue.ResourceFlavorReference]*observed[*flavor.Flavor]
	checks        map[string]*observed[admissionCheck]
	cohorts       map[string]*cohort
	clusterQueues map[string]*clusterQueue
	localQueues   map[types.NamespacedName]*localQueue
	namespaces    map[string]map[string]string
	jobSets       map[types.UID]*jobSet
	// deadlocked are the JobSets that wait for each other, and suspects those that may do so now.
	deadlocked, suspects map[*jobSet]struct{}
	// unkept are the JobSets whose first option for a peak reservation is not reserved.
	unkept map[*jobSet]struct{}
	// peaks counts the JobSets with a peak reservation.
	peaks int
	// lastTopic is the topic that was assigned last to a JobSet.
	lastTopic         quota.ID
	stages            map[StageKey]*stage
	coAdmissionGroups map[string]*coAdmissionGroup
	// stuck are co-admission groups of which some members may have to release their quota.
	stuck map[*coAdmissionGroup]struct{}
	// held are the queues that a co-admission group has paused, and rests counts how often all others became idle meanwhile.
	held    []*clusterQueue
	rests   uint64
	demands map[string]*demand

	lastDecision DecisionID
	inFlight     map[DecisionID]StageKey
	tombstones   tombstones

	changedClusterQueues []*clusterQueue
	changedLocalQueues   []*localQueue
	// changedCohorts are those whose own object has changed.
	changedCohorts map[string]struct{}
}

// An observed fact, and the version of its object.
type observed[T any] struct {
	fact    T
	version version
}

// New returns an Engine that has observed nothing.
func New(config Config) (*Engine, error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	tree := quota.NewTree()
	bare := tree.Twin()
	return &Engine{
		config:            config,
		tree:              tree,
		safetyTree:        bare,
		bank:              safety.NewBank(bare),
		lastTopic:         allReady,
		meter:             fairshare.NewMeter(tree),
		finder:            preempt.NewFinder(tree, config.strategies()...),
		decay:             newDecay(config.AdmissionFairSharing, tree.Index),
		unopened:          map[*localQueue]struct{}{},
		isStale:           true,
		podRules:          newPodRules(config.Charges, config.Devices),
		checks:            map[string]*observed[admissionCheck]{},
		cohorts:           map[string]*cohort{},
		demands:           map[string]*demand{},
		overdue:           map[*stage]struct{}{},
		flavors:           map[kueue.ResourceFlavorReference]*observed[*flavor.Flavor]{},
		clusterQueues:     map[string]*clusterQueue{},
		localQueues:       map[types.NamespacedName]*localQueue{},
		namespaces:        map[string]map[string]string{},
		jobSets:           map[types.UID]*jobSet{},
		deadlocked:        map[*jobSet]struct{}{},
		suspects:          map[*jobSet]struct{}{},
		unkept:            map[*jobSet]struct{}{},
		stages:            map[StageKey]*stage{},
		coAdmissionGroups: map[string]*coAdmissionGroup{},
		stuck:             map[*coAdmissionGroup]struct{}{},
		rests:             1,
		inFlight:          map[DecisionID]StageKey{},
		tombstones:        tombstones{buried: map[types.UID]struct{}{}},

		changedCohorts: map[string]struct{}{},
	}, nil
}

// Apply records one observed fact.
func (e *Engine) Apply(event Event) {
	event.apply(e)
	e.verify()
}

// Decide returns the new decisions, in the order in which to write them. Each decision counts as done at once. The same events, decisions and
// times give the same result.
func (e *Engine) Decide(now time.Time) []Decision {
	e.now = now
	e.rebuildTrees()
	e.fireTimers()
	e.settleAccounts()
	e.retryPeaks()
	decisions := e.evictPartialGroups(e.recoverFromDeadlock(e.drain(nil)))
	e.noteDeadlocks()
	for len(e.dirty)+len(e.held) > 0 || e.noteDeadlocks() {
		if len(e.dirty) == 0 {
			e.rest()
		}
		dirty := e.dirty
		e.dirty = nil
		slices.SortFunc(dirty, compareGroups)
		for _, g := range dirty {
			decisions = e.runCycle(g, decisions)
			g.isDirty = false
		}
		e.rebuildTrees()
	}
	e.verify()
	return decisions
}

// Settle ends a decision: either it was written, and the answer applied, or the write failed. From then on the observed state counts: a stage
// whose reservation has not been observed is released and waits again, and a stage that has not been observed as evicted may be evicted again. It
// is a no-op if its stage no longer exists.
func (e *Engine) Settle(id DecisionID) {
	key, ok := e.inFlight[id]
	if !ok {
		return
	}
	delete(e.inFlight, id)
	switch s := e.stages[key]; {
	case s == nil:
	case s.assumed != nil && s.assumed.decision == id:
		s.assumed = nil
		e.refresh(s)
	case s.evicting == id:
		s.evicting = 0
		e.refresh(s)
		e.candidateAgain(s.entry.clusterQueue)
	}
	e.verify()
}

// InFlight reports whether a decision has been neither settled nor superseded by an observation. A superseded decision must no longer be written.
func (e *Engine) InFlight(id DecisionID) bool {
	_, waits := e.inFlight[id]
	return waits
}

// Charged reports whether a stage is charged for an admission that has been observed, and not revoked by a later observation. It is false while
// the write is in flight, and for another object of the same name.
func (e *Engine) Charged(key StageKey, uid types.UID) bool {
	s := e.stages[key]
	return s != nil && s.uid == uid && s.reservation != nil && s.entry.isCharged()
}

// Holding returns the sum of what the stages of a JobSet are charged.
func (e *Engine) Holding(jobSet types.UID) quota.Usage {
	var held quota.Usage
	if j := e.jobSets[jobSet]; j != nil {
		for _, s := range j.members {
			held.AddAll(s.entry.usage)
		}
	}
	return held
}

// ChangedCohorts returns the Cohorts that exist and whose views may have changed since the last call: those that were observed since, and those
// above the ClusterQueues that Changed is about to return. Without fair sharing there are none.
func (e *Engine) ChangedCohorts() []string {
	changed := e.changedCohorts
	e.changedCohorts = map[string]struct{}{}
	if !e.config.FairSharing {
		return nil
	}
	for _, q := range e.changedClusterQueues {
		for n := q.node.Parent(); n != nil; n = n.Parent() {
			changed[n.Name] = struct{}{}
		}
	}
	maps.DeleteFunc(changed, func(name string, _ struct{}) bool {
		c := e.cohorts[name]
		return c == nil || !c.exists
	})
	return slices.Sorted(maps.Keys(changed))
}

// Changed returns the queues that exist and whose views may have changed since the last call.
func (e *Engine) Changed() (clusterQueues []string, localQueues []types.NamespacedName) {
	for _, q := range e.changedClusterQueues {
		q.isChanged = false
		if q.exists {
			clusterQueues = append(clusterQueues, q.name)
		}
	}
	for _, q := range e.changedLocalQueues {
		q.isChanged = false
		if q.exists {
			localQueues = append(localQueues, q.key)
		}
	}
	slices.Sort(clusterQueues)
	slices.SortFunc(localQueues, compareKeys)
	clear(e.changedClusterQueues)
	clear(e.changedLocalQueues)
	e.changedClusterQueues, e.changedLocalQueues = e.changedClusterQueues[:0], e.changedLocalQueues[:0]
	return clusterQueues, localQueues
}

func (e *Engine) noteChange(q *clusterQueue) {
	if !q.isChanged {
		q.isChanged = true
		e.changedClusterQueues = append(e.changedClusterQueues, q)
	}
}

func (e *Engine) noteLocalChange(q *localQueue) {
	if !q.isChanged {
		q.isChanged = true
		e.changedLocalQueues = append(e.changedLocalQueues, q)
	}
}

// A version tells observations of one object apart. Versions of different objects cannot be compared.
type version struct {
	uid      types.UID
	resource uint64
}

func versionOf(uid types.UID, resourceVersion string) version {
	n, err := strconv.ParseUint(resourceVersion, 10, 64)
	if err != nil {
		n = 0
	}
	return version{uid, n}
}

// isOlderThan reports whether an observation is older than a known one of the same object.
func (v version) isOlderThan(known version) bool {
	return v.uid == known.uid && v.resource != 0 && v.resource < known.resource
}

// maxTombstones bounds the number of tombstones. The answer to a write can come that many deletions late.
const maxTombstones = 4096

// tombstones are the tombstones of deleted quota Workloads and JobSets, so that a late answer to a write, or a late plan, does not recreate them.
type tombstones struct {
	buried map[types.UID]struct{}
	order  []types.UID
	next   int
}

func (t *tombstones) insert(uid types.UID) {
	if _, known := t.buried[uid]; known || uid == "" {
		return
	}
	t.buried[uid] = struct{}{}
	if len(t.order) < maxTombstones {
		t.order = append(t.order, uid)
		return
	}
	delete(t.buried, t.order[t.next])
	t.order[t.next] = uid
	t.next = (t.next + 1) % maxTombstones
}

func (t *tombstones) remove(uid types.UID) {
	if !t.has(uid) {
		return
	}
	delete(t.buried, uid)
	// Clear its slot: otherwise the slot would later remove a new tombstone of the same UID.
	t.order[slices.Index(t.order, uid)] = ""
}

func (t *tombstones) has(uid types.UID) bool {
	_, ok := t.buried[uid]
	return ok
}
