package model

import (
	"github.com/tranche-dev/tranche/admission/internal/decision"
	"github.com/tranche-dev/tranche/admission/internal/demand"
)

// A Pause pauses the queue of a member that would be admitted if all members of its group had their turn.
type Pause struct{ Rests, ChargeEpoch uint64 }

// A Feasibility caches whether some demands fit together, each in its ClusterQueue, if nothing is charged.
type Feasibility struct {
	Revision      uint64
	QueuedDemands []QueuedDemand
	Fits          bool
}

// A QueuedDemand is a demand in a ClusterQueue.
type QueuedDemand struct {
	Demand *demand.Demand
	Queue  *ClusterQueue
}

// A PeakCheck is the cached result of the peak check of a JobSet that holds nothing. It is valid while the queue, the limits and the set of
// finished stages stay the same.
type PeakCheck struct {
	Queue    *ClusterQueue
	Revision uint64
	Finished []bool
	Refusal  *decision.Refusal
}
