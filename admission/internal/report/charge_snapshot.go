package report

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/admission/internal/decision"
	"github.com/tranche-dev/tranche/admission/internal/model"
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
	Key decision.StageKey
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
func (rp *Reporter) ChargeSnapshot() ChargeSnapshot {
	var all ChargeSnapshot
	for _, key := range slices.SortedFunc(maps.Keys(rp.m.Stages), model.CompareKeys) {
		s := rp.m.Stages[key]
		isUnderWay := s.Assumed != nil || s.Evicting != 0
		if !s.Entry.IsCharged() && !isUnderWay {
			continue
		}
		book := StageCharge{Key: key, UID: s.UID, ResourceVersion: s.Version.Resource, IsUnderWay: isUnderWay}
		if s.Entry.IsCharged() {
			book.ClusterQueue, book.LocalQueue, book.Amounts = s.Entry.ClusterQueue.Name, s.Entry.LocalQueue.Key, rp.amounts(s.Entry.Usage)
		}
		all.Stages = append(all.Stages, book)
	}
	for _, name := range slices.Sorted(maps.Keys(rp.m.ClusterQueues)) {
		q := rp.m.ClusterQueues[name]
		var charged quota.Usage
		for id := range quota.ID(rp.m.Tree.Index.Len()) { //nolint:gosec // far from 2^31
			charged.Add(id, q.Node.Used(id).Minus(q.AdvanceReserved.Of(id)))
		}
		all.ClusterQueues = append(all.ClusterQueues, ClusterQueueCharge{
			Name: name, Reserved: rp.amounts(q.QueueTotals.Reserved.Usage()), Charged: rp.amounts(charged),
		})
	}
	for _, key := range slices.SortedFunc(maps.Keys(rp.m.LocalQueues), model.CompareKeys) {
		reserved := rp.m.LocalQueues[key].QueueTotals.Reserved.Usage()
		all.LocalQueues = append(all.LocalQueues, LocalQueueCharge{Key: key, Reserved: rp.amounts(reserved)})
	}
	return all
}

func (rp *Reporter) amounts(u quota.Usage) []FlavorAmount {
	var all []FlavorAmount
	for name, amount := range rp.m.Tree.Index.ByName(u) {
		all = append(all, FlavorAmount{name, amount})
	}
	return all
}
