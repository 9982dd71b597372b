package dashboard

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/dashboard/internal/ordered"
)

// A clusterQueue has the facts of a ClusterQueue, or the quota Workloads that name one that was not observed.
type clusterQueue struct {
	name   string
	exists bool
	// From the spec.
	cohort, strategy, stop string
	weight                 float64
	limits                 []flavorLimit
	// isUsageBased is true if past usage orders its LocalQueues, too.
	isUsageBased bool
	// From the status, as the manager last wrote it.
	inactive           *metav1.Condition
	waiting, reserving int32
	admitted           int32
	reserved, used     map[quota.FlavorResource]quota.Amount
	share              *int64

	// pending, holders and others have the quota Workloads that have not finished. The first is in the order of admission.
	pending, holders, others *ordered.List[*workload]
	counts                   map[State]int
	// charges has the sum of the charges of those in each state.
	charges     map[State]map[quota.FlavorResource]quota.Amount
	localQueues map[*localQueue]struct{}
}

// A cohort has the facts of a Cohort.
type cohort struct {
	parent string
	weight float64
	limits []flavorLimit
	share  *int64
}

// A localQueue has the facts of a LocalQueue, or the quota Workloads that name one that was not observed.
type localQueue struct {
	key          types.NamespacedName
	exists       bool
	clusterQueue string
	stop         string
	inactive     *metav1.Condition
	members      map[*workload]struct{}

	// pending and holders have the members that have not finished. The first is in the order of admission.
	pending, holders *ordered.List[*workload]
	// held is the sum of what the holders hold.
	held map[corev1.ResourceName]quota.Amount
}

// enlist adds a member to its list.
func (q *localQueue) enlist(w *workload) {
	switch {
	case w.state == Pending:
		q.pending.Insert(w)
	case w.holdsQuota:
		q.holders.Insert(w)
		addCharges(q.held, w, 1)
	}
}

// unlist is the opposite of enlist.
func (q *localQueue) unlist(w *workload) {
	switch {
	case w.state == Pending:
		q.pending.Remove(w)
	case w.holdsQuota:
		q.holders.Remove(w)
		addCharges(q.held, w, -1)
	}
}

// addCharges adds the charge of a quota Workload to a sum, or subtracts it if sign is -1.
func addCharges(sums map[corev1.ResourceName]quota.Amount, w *workload, sign quota.Amount) {
	for _, c := range w.held {
		if sums[c.Resource] = sums[c.Resource].Plus(sign * c.amount); sums[c.Resource] == 0 {
			delete(sums, c.Resource)
		}
	}
}

func (m *Model) clusterQueue(name string) *clusterQueue {
	q := m.clusterQueues[name]
	if q == nil {
		q = &clusterQueue{
			name: name, pending: ordered.New(comparePending), holders: ordered.New(compareWorkloads), others: ordered.New(compareWorkloads),
			counts: map[State]int{}, charges: map[State]map[quota.FlavorResource]quota.Amount{}, localQueues: map[*localQueue]struct{}{},
		}
		m.clusterQueues[name] = q
	}
	return q
}

func (m *Model) observeClusterQueue(object *kueue.ClusterQueue) {
	q := m.clusterQueue(object.Name)
	q.exists = true
	spec, status := &object.Spec, &object.Status
	q.cohort, q.strategy, q.stop = string(spec.CohortName), string(spec.QueueingStrategy), stopOf(spec.StopPolicy)
	q.weight, q.limits = weightOf(spec.FairSharing), limitsIn(spec.ResourceGroups)
	q.isUsageBased = spec.AdmissionScope != nil && spec.AdmissionScope.AdmissionMode == kueue.UsageBasedAdmissionFairSharing
	q.inactive = inactiveOf(status.Conditions, kueue.ClusterQueueActive)
	q.waiting, q.reserving, q.admitted = status.PendingWorkloads, status.ReservingWorkloads, status.AdmittedWorkloads
	q.reserved, q.used, q.share = amountsUsed(status.FlavorsReservation), amountsUsed(status.FlavorsUsage), shareOf(status.FairSharing)
	m.tree = nil
}

func (m *Model) forgetClusterQueue(name string) {
	q := m.clusterQueues[name]
	if q == nil {
		return
	}
	q.exists, q.limits, q.reserved, q.used = false, nil, nil, nil
	delete(m.history.series, name)
	m.tree = nil
	m.dropClusterQueueIfUnused(q)
}

func (m *Model) dropClusterQueueIfUnused(q *clusterQueue) {
	if !q.exists && q.pending.Len()+q.holders.Len()+q.others.Len()+len(q.localQueues) == 0 {
		delete(m.clusterQueues, q.name)
	}
}

// charge adds the charge of a quota Workload to those of its state, or subtracts it if sign is -1.
func (q *clusterQueue) charge(w *workload, sign quota.Amount) {
	if len(w.held) == 0 {
		return
	}
	sums := q.charges[w.state]
	if sums == nil {
		sums = map[quota.FlavorResource]quota.Amount{}
		q.charges[w.state] = sums
	}
	for _, c := range w.held {
		if sums[c.FlavorResource] = sums[c.FlavorResource].Plus(sign * c.amount); sums[c.FlavorResource] == 0 {
			delete(sums, c.FlavorResource)
		}
	}
}

// A usage is what quota Workloads hold of one flavor and resource: in all, and the part of it that is admitted.
type usage struct{ reserved, admitted quota.Amount }

// usageOf returns the usage of one flavor and resource, as the status reports it. The status leaves out what the spec does not list: that is the
// sum of the quota Workloads.
func (q *clusterQueue) usageOf(fr quota.FlavorResource) usage {
	if reserved, isReported := q.reserved[fr]; isReported {
		return usage{reserved, q.used[fr]}
	}
	var u usage
	for state, sums := range q.charges {
		u.reserved = u.reserved.Plus(sums[fr])
		if state != Reserved {
			u.admitted = u.admitted.Plus(sums[fr])
		}
	}
	return u
}

// limitsOf returns the limits of the spec, each flavor and resource once, and those without quota that quota Workloads hold: a flavor or resource
// was removed from the spec. The latter are missing if not all quota Workloads are observed.
func (m *Model) limitsOf(q *clusterQueue) []flavorLimit {
	limits, isListed, unlisted := []flavorLimit{}, map[quota.FlavorResource]bool{}, map[quota.FlavorResource]bool{}
	for _, l := range q.limits {
		if !isListed[l.FlavorResource] {
			isListed[l.FlavorResource] = true
			limits = append(limits, l)
		}
	}
	note := func(sums map[quota.FlavorResource]quota.Amount) {
		for fr, amount := range sums {
			if amount > 0 && !isListed[fr] {
				unlisted[fr] = true
			}
		}
	}
	note(q.reserved)
	for _, sums := range q.charges {
		if !m.isPartial {
			note(sums)
		}
	}
	for _, fr := range slices.SortedFunc(maps.Keys(unlisted), quota.FlavorResource.Compare) {
		limits = append(limits, flavorLimit{FlavorResource: fr, Quota: quota.Quota{BorrowingLimit: quota.MaxAmount, LendingLimit: quota.MaxAmount}, IsUnlisted: true})
	}
	return limits
}

func (m *Model) observeCohort(object *kueue.Cohort) {
	m.cohorts[object.Name] = &cohort{
		parent: string(object.Spec.ParentName), weight: weightOf(object.Spec.FairSharing), limits: limitsIn(object.Spec.ResourceGroups),
		share: shareOf(object.Status.FairSharing),
	}
	m.tree = nil
}

func (m *Model) localQueue(key types.NamespacedName) *localQueue {
	q := m.localQueues[key]
	if q == nil {
		q = &localQueue{
			key: key, members: map[*workload]struct{}{}, pending: ordered.New(comparePending), holders: ordered.New(compareWorkloads),
			held: map[corev1.ResourceName]quota.Amount{},
		}
		m.localQueues[key] = q
		m.queueNamespaces[key.Namespace]++
		q.move(m, "")
	}
	return q
}

func (m *Model) observeLocalQueue(object *kueue.LocalQueue) {
	q := m.localQueue(types.NamespacedName{Namespace: object.Namespace, Name: object.Name})
	q.exists, q.stop = true, stopOf(object.Spec.StopPolicy)
	q.inactive = inactiveOf(object.Status.Conditions, kueue.LocalQueueActive)
	q.move(m, string(object.Spec.ClusterQueue))
}

func (m *Model) forgetLocalQueue(key types.NamespacedName) {
	if q := m.localQueues[key]; q != nil {
		q.exists = false
		q.move(m, "")
		m.dropIfUnused(q)
	}
}

func (m *Model) dropIfUnused(q *localQueue) {
	if q.exists || len(q.members) > 0 {
		return
	}
	delete(m.localQueues, q.key)
	if m.queueNamespaces[q.key.Namespace]--; m.queueNamespaces[q.key.Namespace] == 0 {
		delete(m.queueNamespaces, q.key.Namespace)
	}
	if target := m.clusterQueues[q.clusterQueue]; target != nil {
		delete(target.localQueues, q)
		m.dropClusterQueueIfUnused(target)
	}
}

// move changes the ClusterQueue of a LocalQueue. The members that hold no quota move with it.
func (q *localQueue) move(m *Model, to string) {
	before := q.clusterQueue
	if target := m.clusterQueues[before]; before != to && target != nil {
		delete(target.localQueues, q)
	}
	q.clusterQueue = to
	m.clusterQueue(to).localQueues[q] = struct{}{}
	if before == to {
		return
	}
	for w := range q.members {
		m.unlist(w)
		m.enlist(w)
	}
	if target := m.clusterQueues[before]; target != nil {
		m.dropClusterQueueIfUnused(target)
	}
}
