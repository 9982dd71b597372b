package admission

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/admission/quota"
)

// ChargeSnapshot are the amounts that the Engine charges at one instant: for each stage, and summed up for each queue as its decisions use them. They are
// meant for audits. Their lists are ordered by name and share no memory with the Engine.
type ChargeSnapshot struct {
	// Stages are the stages that are charged, or that have a decision in flight.
	Stages []StageCharge
	// ClusterQueues and LocalQueues are those that a stage refers to, whether they exist or not.
	ClusterQueues []ClusterQueueCharge
	LocalQueues   []LocalQueueCharge
}

// A FlavorAmount is an amount of one flavor and resource.
type FlavorAmount struct {
	quota.FlavorResource
	Amount quota.Amount
}

// A StageCharge is the charge of one stage.
type StageCharge struct {
	Key StageKey
	UID types.UID
	// ResourceVersion is that of the last observation.
	ResourceVersion uint64
	// IsUnderWay is true if a decision about the stage has not been settled, so that the charge may differ from what can be observed.
	IsUnderWay   bool
	ClusterQueue string
	LocalQueue   types.NamespacedName
	Amounts      []FlavorAmount
}

// A ClusterQueueCharge has the sums of a ClusterQueue. Reserved is what its status shows. Charged is what the quota tree counts, less the peak
// reservations of stages that are not admitted yet. They are the same unless the Engine has a bug.
type ClusterQueueCharge struct {
	Name              string
	Reserved, Charged []FlavorAmount
}

// A LocalQueueCharge has the sums of a LocalQueue.
type LocalQueueCharge struct {
	Key      types.NamespacedName
	Reserved []FlavorAmount
}

// ChargeSnapshot copies all charges. It takes time in proportion to the number of stages.
func (e *Engine) ChargeSnapshot() ChargeSnapshot {
	var all ChargeSnapshot
	for _, key := range slices.SortedFunc(maps.Keys(e.stages), compareKeys) {
		s := e.stages[key]
		isUnderWay := s.assumed != nil || s.evicting != 0
		if !s.entry.isCharged() && !isUnderWay {
			continue
		}
		book := StageCharge{Key: key, UID: s.uid, ResourceVersion: s.version.resource, IsUnderWay: isUnderWay}
		if s.entry.isCharged() {
			book.ClusterQueue, book.LocalQueue, book.Amounts = s.entry.clusterQueue.name, s.entry.localQueue.key, e.amounts(s.entry.usage)
		}
		all.Stages = append(all.Stages, book)
	}
	for _, name := range slices.Sorted(maps.Keys(e.clusterQueues)) {
		q := e.clusterQueues[name]
		var charged quota.Usage
		for id := range quota.ID(e.tree.Index.Len()) { //nolint:gosec // far from 2^31
			charged.Add(id, q.node.Used(id).Minus(q.advanceReserved.Of(id)))
		}
		all.ClusterQueues = append(all.ClusterQueues, ClusterQueueCharge{
			Name: name, Reserved: e.amounts(q.queueTotals.reserved.Usage()), Charged: e.amounts(charged),
		})
	}
	for _, key := range slices.SortedFunc(maps.Keys(e.localQueues), compareKeys) {
		reserved := e.localQueues[key].queueTotals.reserved.Usage()
		all.LocalQueues = append(all.LocalQueues, LocalQueueCharge{Key: key, Reserved: e.amounts(reserved)})
	}
	return all
}

func (e *Engine) amounts(u quota.Usage) []FlavorAmount {
	var all []FlavorAmount
	for name, amount := range e.tree.Index.ByName(u) {
		all = append(all, FlavorAmount{name, amount})
	}
	return all
}
