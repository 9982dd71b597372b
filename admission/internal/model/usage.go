package model

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/admission/fairshare"
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

// A UsagePolicy is how the past usage of LocalQueues determines their order in a ClusterQueue (KEP-4136).
type UsagePolicy struct {
	// UsageHalfLifeTime is the time after which usage counts half. If it is zero, past usage does not count.
	UsageHalfLifeTime time.Duration
	// UsageSamplingInterval is how often the usage in the status of a LocalQueue is updated, and for how long an admission counts in advance.
	// Zero means 5 minutes.
	UsageSamplingInterval time.Duration
	// ResourceWeights are 1 unless set.
	ResourceWeights map[corev1.ResourceName]float64
}

const defaultSampling = 5 * time.Minute

func newDecay(config *UsagePolicy, index *quota.Index) *fairshare.Decay {
	if config == nil {
		return nil
	}
	return fairshare.NewDecay(index, fairshare.Policy{
		HalfLife: config.UsageHalfLifeTime, Sampling: config.UsageSamplingInterval, Weights: config.ResourceWeights,
	})
}
