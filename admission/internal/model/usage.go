package model

import (
	"github.com/tranche-dev/tranche/admission/preempt"
	"github.com/tranche-dev/tranche/admission/quota"
)

// A Transfer is a change of the charges of a LocalQueue.
type Transfer struct {
	Queue       *LocalQueue
	Before, Now Entry
}

// transfer records a change for the accounts.
func (m *Model) transfer(before, now Entry) {
	if m.Decay == nil || !before.IsCharged() && !now.IsCharged() {
		return
	}
	if before.LocalQueue != nil && before.LocalQueue != now.LocalQueue {
		m.Transfers = append(m.Transfers, Transfer{Queue: before.LocalQueue, Before: before})
		before = Entry{}
	}
	if now.LocalQueue != nil {
		m.Transfers = append(m.Transfers, Transfer{Queue: now.LocalQueue, Before: before, Now: now})
	}
}

// LevelOf returns the level by which stages of a ClusterQueue are ordered before their positions.
func (m *Model) LevelOf(c EquivalenceKey) float64 {
	if c.LocalQueue.Account == nil {
		return 0
	}
	return m.Decay.Level(c.LocalQueue.Account, c.LocalQueue.Weight, m.Now)
}

// UsagePrecedes reports whether the level of a LocalQueue puts none of its stages behind a Holder of the same ClusterQueue that is evicted and queues
// again. Until then the Holder counts for the level of its LocalQueue if it is not admitted yet.
func (m *Model) UsagePrecedes(q *LocalQueue, h *preempt.Holder) bool {
	t := EvictionUnitOf(h)
	other := t.Stages[0].LocalQueue
	if q == other {
		return true
	}
	var entered quota.Usage
	for _, s := range t.Stages {
		if s.Entry.Phase == Reserving {
			entered.AddAll(s.Entry.Usage)
		}
	}
	if other.Account != nil && len(entered) > 0 {
		m.Decay.Withdraw(other.Account, entered)
		defer m.Decay.Enter(other.Account, entered)
	}
	return m.LevelOf(EquivalenceKey{LocalQueue: q}) <= m.LevelOf(EquivalenceKey{LocalQueue: other})
}
