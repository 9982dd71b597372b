package admission

import (
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quota"
)

// A ClusterQueueView is all that the status of a ClusterQueue is made of. FlavorsReservation and FlavorsUsage have every flavor and
// resource of the spec, in its order, also where nothing is used.
type ClusterQueueView struct {
	Active                       Activity
	Pending, Reserving, Admitted int32
	FlavorsReservation           []kueue.FlavorUsage
	FlavorsUsage                 []kueue.FlavorUsage
}

// A LocalQueueView is all that the status of a LocalQueue is made of.
type LocalQueueView struct {
	Active                       Activity
	Pending, Reserving, Admitted int32
	FlavorsReservation           []kueue.LocalQueueFlavorUsage
	FlavorsUsage                 []kueue.LocalQueueFlavorUsage
}

// ClusterQueue returns the view of a ClusterQueue, if it exists.
func (e *Engine) ClusterQueue(name string) (ClusterQueueView, bool) {
	q := e.clusterQueues[name]
	if q == nil || !q.exists {
		return ClusterQueueView{}, false
	}
	return ClusterQueueView{
		Active:  q.activity(),
		Pending: q.ledger.pending, Reserving: q.ledger.reserving, Admitted: q.ledger.admitted,
		FlavorsReservation: q.flavorUsages(&q.ledger.reserved),
		FlavorsUsage:       q.flavorUsages(&q.ledger.used),
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
		Active:  e.activity(lq),
		Pending: lq.ledger.pending, Reserving: lq.ledger.reserving, Admitted: lq.ledger.admitted,
		FlavorsReservation: localUsages(q.flavorUsages(&lq.ledger.reserved)),
		FlavorsUsage:       localUsages(q.flavorUsages(&lq.ledger.used)),
	}, true
}

func (q *clusterQueue) flavorUsages(tally *quota.Tally) []kueue.FlavorUsage {
	var usages []kueue.FlavorUsage
	for _, g := range q.groups {
		for i := range g.Flavors {
			usage := kueue.FlavorUsage{Name: g.Flavors[i].Name}
			for _, r := range g.Flavors[i].Resources {
				total := tally.Of(quota.FlavorResource{Flavor: usage.Name, Resource: r.Name})
				usage.Resources = append(usage.Resources, kueue.ResourceUsage{
					Name: r.Name, Total: total.Quantity(r.Name), Borrowed: quota.Amount(0).Quantity(r.Name),
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
