package admission

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quota"
)

// A ClusterQueueView has all values for the status of a ClusterQueue. FlavorsReservation and FlavorsUsage have every flavor and resource of the
// spec, in its order, including unused ones.
type ClusterQueueView struct {
	// Generation is that of the spec in use.
	Generation                   int64
	Active                       Activity
	Pending, Reserving, Admitted int32
	// FlavorsReservation includes the peak reservations of policy Reserve; FlavorsHeld does not.
	FlavorsReservation, FlavorsHeld []kueue.FlavorUsage
	FlavorsUsage                    []kueue.FlavorUsage
	// FairSharing is nil without fair sharing.
	FairSharing *kueue.FairSharingStatus
}

// A CohortView has all values for the status of a Cohort.
type CohortView struct {
	// FairSharing is nil without fair sharing.
	FairSharing *kueue.FairSharingStatus
}

// Cohort returns the view of a Cohort, if it exists.
func (e *Engine) Cohort(name string) (CohortView, bool) {
	c := e.cohorts[name]
	if c == nil || !c.exists {
		return CohortView{}, false
	}
	e.rebuildTrees()
	return CohortView{FairSharing: e.shareOf(c.node)}, true
}

func (e *Engine) shareOf(n *quota.Node) *kueue.FairSharingStatus {
	if !e.config.FairSharing {
		return nil
	}
	return &kueue.FairSharingStatus{WeightedShare: e.meter.Share(n, nil).Weighted()}
}

// A LocalQueueView has all values for the status of a LocalQueue.
type LocalQueueView struct {
	Active                       Activity
	Pending, Reserving, Admitted int32
	FlavorsReservation           []kueue.LocalQueueFlavorUsage
	FlavorsUsage                 []kueue.LocalQueueFlavorUsage
	// FairSharing is nil without admission fair sharing. It changes once in a sampling interval.
	FairSharing *kueue.LocalQueueFairSharingStatus
}

// ClusterQueue returns the view of a ClusterQueue, if it exists.
func (e *Engine) ClusterQueue(name string) (ClusterQueueView, bool) {
	q := e.clusterQueues[name]
	if q == nil || !q.exists {
		return ClusterQueueView{}, false
	}
	e.rebuildTrees()
	return ClusterQueueView{
		Generation: q.generation, Active: e.activity(q),
		Pending: q.queueTotals.pending, Reserving: q.queueTotals.reserving, Admitted: q.queueTotals.admitted,
		FlavorsReservation: e.flavorUsages(q, q.reserved(nil)),
		FlavorsHeld:        e.flavorUsages(q, &q.queueTotals.reserved),
		FlavorsUsage:       e.flavorUsages(q, &q.queueTotals.used),
		FairSharing:        e.shareOf(q.node),
	}, true
}

// LocalQueue returns the view of a LocalQueue, if it exists.
func (e *Engine) LocalQueue(key types.NamespacedName) (LocalQueueView, bool) {
	lq := e.localQueues[key]
	if lq == nil || !lq.exists {
		return LocalQueueView{}, false
	}
	q := e.clusterQueue(lq.clusterQueue)
	return LocalQueueView{
		Active:  e.localActivity(lq),
		Pending: lq.queueTotals.pending, Reserving: lq.queueTotals.reserving, Admitted: lq.queueTotals.admitted,
		FlavorsReservation: localUsages(e.flavorUsages(q, q.reserved(lq))),
		FlavorsUsage:       localUsages(e.flavorUsages(q, &lq.queueTotals.used)),
		FairSharing:        lq.fairSharing(),
	}, true
}

// maxUsages is the limit of flavors, and of resources of a flavor, in the status of a queue (maxItems of its CRD). The limit of its spec is
// higher.
const maxUsages = 64

// reserved returns the reserved amounts of a ClusterQueue, or the part of them for one of its LocalQueues: what stages hold, and the peak
// reservations of policy Reserve.
func (q *clusterQueue) reserved(of *localQueue) *quota.Sum {
	sum := q.queueTotals.reserved.Usage()
	if of != nil {
		sum = of.queueTotals.reserved.Usage()
	}
	var total quota.Sum
	total.Add(sum)
	for j := range q.keptFor {
		if of == nil || j.localQueue() == of {
			total.Add(j.peakReserved)
		}
	}
	return &total
}

// flavorUsages lists each flavor and each of its resources once, in the order of the spec: the keys of these lists are their names, and the
// API server refuses a status that repeats one.
func (e *Engine) flavorUsages(q *clusterQueue, sum *quota.Sum) []kueue.FlavorUsage {
	var usages []kueue.FlavorUsage
	for _, g := range q.groups {
		for i := range g.Flavors {
			name := g.Flavors[i].Name
			at := slices.IndexFunc(usages, func(u kueue.FlavorUsage) bool { return u.Name == name })
			if at < 0 {
				if at = len(usages); at == maxUsages {
					return usages
				}
				usages = append(usages, kueue.FlavorUsage{Name: name})
			}
			for _, r := range g.Flavors[i].Resources {
				usages[at].Resources = e.withUsage(usages[at].Resources, q, sum, quota.FlavorResource{Flavor: name, Resource: r.Name})
			}
		}
	}
	return usages
}

// withUsage appends the usage of a resource unless it is listed already.
func (e *Engine) withUsage(listed []kueue.ResourceUsage, q *clusterQueue, sum *quota.Sum, of quota.FlavorResource) []kueue.ResourceUsage {
	isListed := slices.ContainsFunc(listed, func(u kueue.ResourceUsage) bool { return u.Name == of.Resource })
	if isListed || len(listed) == maxUsages {
		return listed
	}
	id := e.tree.Index.ID(of)
	total, borrowed := sum.Of(id), quota.Amount(0)
	if q.cohort != "" {
		borrowed = max(0, total.Minus(q.node.Quota(id).Nominal))
	}
	return append(listed, kueue.ResourceUsage{
		Name: of.Resource, Total: total.Quantity(of.Resource), Borrowed: borrowed.Quantity(of.Resource),
	})
}

// localUsages leaves out what a LocalQueue does not show.
func localUsages(usages []kueue.FlavorUsage) []kueue.LocalQueueFlavorUsage {
	var local []kueue.LocalQueueFlavorUsage
	for _, u := range usages {
		usage := kueue.LocalQueueFlavorUsage{Name: u.Name}
		for _, r := range u.Resources {
			usage.Resources = append(usage.Resources, kueue.LocalQueueResourceUsage{Name: r.Name, Total: r.Total})
		}
		local = append(local, usage)
	}
	return local
}
