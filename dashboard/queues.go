package dashboard

import (
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quota"
)

// A clusterQueue has the facts of a ClusterQueue, or the quota Workloads that name one that was not observed.
type clusterQueue struct {
	name   string
	exists bool
	// From the spec.
	cohort, strategy, stop string
	weight                 float64
	limits                 []limit
	// isUsageBased is true if past usage orders its LocalQueues, too.
	isUsageBased bool
	// From the status, as the manager last wrote it.
	inactive           *metav1.Condition
	waiting, reserving int32
	admitted           int32
	reserved, used     map[quota.FlavorResource]quota.Amount
	share              *int64

	// pending, holders and others have the quota Workloads that have not finished. The first is in the order of admission.
	pending, holders, others *list[*workload]
	counts                   map[State]int
	// idle is the charge of those that are Starting.
	idle        map[quota.FlavorResource]quota.Amount
	localQueues map[*localQueue]struct{}
}

// A limit is the quota of one flavor and resource.
type limit struct {
	quota.FlavorResource
	quota.Quota
}

// A cohort has the facts of a Cohort.
type cohort struct {
	parent string
	weight float64
	limits []limit
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
	// pending and holding count members.
	pending, holding int
}

// count changes the number of members like one.
func (q *localQueue) count(w *workload, more int) {
	switch {
	case w.state == Pending:
		q.pending += more
	case w.holdsQuota:
		q.holding += more
	}
}

func (m *Model) clusterQueue(name string) *clusterQueue {
	q := m.clusterQueues[name]
	if q == nil {
		q = &clusterQueue{
			name: name, pending: newList(comparePending), holders: newList(compareWorkloads), others: newList(compareWorkloads),
			counts: map[State]int{}, idle: map[quota.FlavorResource]quota.Amount{}, localQueues: map[*localQueue]struct{}{},
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
	q.weight, q.limits = weightOf(spec.FairSharing), limitsOf(spec.ResourceGroups)
	q.isUsageBased = spec.AdmissionScope != nil && spec.AdmissionScope.AdmissionMode == kueue.UsageBasedAdmissionFairSharing
	q.inactive = inactiveOf(status.Conditions, kueue.ClusterQueueActive)
	q.waiting, q.reserving, q.admitted = status.PendingWorkloads, status.ReservingWorkloads, status.AdmittedWorkloads
	q.reserved, q.used, q.share = usageOf(status.FlavorsReservation), usageOf(status.FlavorsUsage), shareOf(status.FairSharing)
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
	if !q.exists && q.pending.length+q.holders.length+q.others.length+len(q.localQueues) == 0 {
		delete(m.clusterQueues, q.name)
	}
}

// addIdle adds charges to the idle amounts, or subtracts them if sign is -1.
func (q *clusterQueue) addIdle(charges []charge, sign quota.Amount) {
	for _, c := range charges {
		q.idle[c.FlavorResource] = q.idle[c.FlavorResource].Plus(sign * c.amount)
	}
}

func (m *Model) observeCohort(object *kueue.Cohort) {
	m.cohorts[object.Name] = &cohort{
		parent: string(object.Spec.ParentName), weight: weightOf(object.Spec.FairSharing), limits: limitsOf(object.Spec.ResourceGroups),
		share: shareOf(object.Status.FairSharing),
	}
	m.tree = nil
}

func (m *Model) localQueue(key types.NamespacedName) *localQueue {
	q := m.localQueues[key]
	if q == nil {
		q = &localQueue{key: key, members: map[*workload]struct{}{}}
		m.localQueues[key] = q
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

func stopOf(p *kueue.StopPolicy) string {
	if stop := ptr.Deref(p, kueue.None); stop != kueue.None {
		return string(stop)
	}
	return ""
}

func weightOf(f *kueue.FairSharing) float64 {
	if f == nil || f.Weight == nil {
		return 1
	}
	return max(0, f.Weight.AsApproximateFloat64())
}

func shareOf(f *kueue.FairSharingStatus) *int64 {
	if f == nil {
		return nil
	}
	return new(f.WeightedShare)
}

// inactiveOf returns the condition of this type if it is False.
func inactiveOf(conditions []metav1.Condition, conditionType string) *metav1.Condition {
	if c := apimeta.FindStatusCondition(conditions, conditionType); c != nil && c.Status == metav1.ConditionFalse {
		return &metav1.Condition{Reason: c.Reason, Message: c.Message}
	}
	return nil
}

// limitsOf returns the quotas of resource groups in the order of the spec.
func limitsOf(groups []kueue.ResourceGroup) []limit {
	var limits []limit
	for g := range groups {
		for f := range groups[g].Flavors {
			flavor := &groups[g].Flavors[f]
			for r := range flavor.Resources {
				one := &flavor.Resources[r]
				l := limit{
					FlavorResource: quota.FlavorResource{Flavor: flavor.Name, Resource: one.Name},
					Quota:          quota.Quota{BorrowingLimit: quota.MaxAmount, LendingLimit: quota.MaxAmount},
				}
				l.Nominal, _ = quota.Of(one.Name, one.NominalQuota)
				if one.BorrowingLimit != nil {
					l.BorrowingLimit, _ = quota.Of(one.Name, *one.BorrowingLimit)
				}
				if one.LendingLimit != nil {
					l.LendingLimit, _ = quota.Of(one.Name, *one.LendingLimit)
				}
				limits = append(limits, l)
			}
		}
	}
	return limits
}

func usageOf(usages []kueue.FlavorUsage) map[quota.FlavorResource]quota.Amount {
	amounts := map[quota.FlavorResource]quota.Amount{}
	for i := range usages {
		for k := range usages[i].Resources {
			r := &usages[i].Resources[k]
			amounts[quota.FlavorResource{Flavor: usages[i].Name, Resource: r.Name}], _ = quota.Of(r.Name, r.Total)
		}
	}
	return amounts
}
