package admission

import (
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quota"
)

// A ClusterQueueView is all that the status of a ClusterQueue is made of. FlavorsReservation and FlavorsUsage have every flavor and
// resource of the spec, in its order, also where nothing is used.
type ClusterQueueView struct {
	// Generation is that of the spec by which is decided.
	Generation                   int64
	Active                       Activity
	Pending, Reserving, Admitted int32
	FlavorsReservation           []kueue.FlavorUsage
	FlavorsUsage                 []kueue.FlavorUsage
	// FairSharing is nil without fair sharing.
	FairSharing *kueue.FairSharingStatus
}

// A CohortView is all that the status of a Cohort is made of.
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
	e.settleGroups()
	return CohortView{FairSharing: e.shareOf(c.node)}, true
}

func (e *Engine) shareOf(n *quota.Node) *kueue.FairSharingStatus {
	if !e.config.FairSharing {
		return nil
	}
	return &kueue.FairSharingStatus{WeightedShare: e.meter.Share(n, nil).Weighted()}
}

// A LocalQueueView is all that the status of a LocalQueue is made of.
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
	e.settleGroups()
	return ClusterQueueView{
		Generation: q.generation, Active: e.activity(q),
		Pending: q.ledger.pending, Reserving: q.ledger.reserving, Admitted: q.ledger.admitted,
		FlavorsReservation: e.flavorUsages(q, &q.ledger.reserved),
		FlavorsUsage:       e.flavorUsages(q, &q.ledger.used),
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
		Pending: lq.ledger.pending, Reserving: lq.ledger.reserving, Admitted: lq.ledger.admitted,
		FlavorsReservation: localUsages(e.flavorUsages(q, &lq.ledger.reserved)),
		FlavorsUsage:       localUsages(e.flavorUsages(q, &lq.ledger.used)),
		FairSharing:        lq.fairSharing(),
	}, true
}

func (e *Engine) flavorUsages(q *clusterQueue, sum *quota.Sum) []kueue.FlavorUsage {
	var usages []kueue.FlavorUsage
	for _, g := range q.groups {
		for i := range g.Flavors {
			usage := kueue.FlavorUsage{Name: g.Flavors[i].Name}
			for _, r := range g.Flavors[i].Resources {
				id := e.tree.Index.ID(quota.FlavorResource{Flavor: usage.Name, Resource: r.Name})
				total, borrowed := sum.Of(id), quota.Amount(0)
				if q.cohort != "" {
					borrowed = max(0, total-q.node.Quota(id).Nominal)
				}
				usage.Resources = append(usage.Resources, kueue.ResourceUsage{
					Name: r.Name, Total: total.Quantity(r.Name), Borrowed: borrowed.Quantity(r.Name),
				})
			}
			usages = append(usages, usage)
		}
	}
	return usages
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
