// Package level compares the past usage of LocalQueues, by which admission fair sharing orders stages.
package level

import (
	"github.com/tranche-dev/tranche/admission/internal/model"
	"github.com/tranche-dev/tranche/admission/preempt"
	"github.com/tranche-dev/tranche/admission/quota"
)

// Precedes reports whether the level of a LocalQueue puts none of its stages behind a Holder of the same ClusterQueue that is evicted and queues
// again. Until then the Holder counts for the level of its LocalQueue if it is not admitted yet.
func Precedes(m *model.Model, q *model.LocalQueue, h *preempt.Holder) bool {
	t := model.EvictionUnitOf(h)
	other := t.Stages[0].LocalQueue
	if q == other {
		return true
	}
	var entered quota.Usage
	for _, s := range t.Stages {
		if s.Entry.Phase == model.Reserving {
			entered.AddAll(s.Entry.Usage)
		}
	}
	if other.Account != nil && len(entered) > 0 {
		m.Decay.Withdraw(other.Account, entered)
		defer m.Decay.Enter(other.Account, entered)
	}
	return Of(m, model.EquivalenceKey{LocalQueue: q}) <= Of(m, model.EquivalenceKey{LocalQueue: other})
}

// Of returns the level by which stages of a ClusterQueue are ordered before their positions.
func Of(m *model.Model, c model.EquivalenceKey) float64 {
	if c.LocalQueue.Account == nil {
		return 0
	}
	return m.Decay.Level(c.LocalQueue.Account, c.LocalQueue.Weight, m.Now)
}
