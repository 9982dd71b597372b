package admission

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/flavor"
	"github.com/tranche-dev/tranche/queue"
)

// isActive reports whether Kueue counts a waiting stage as active: its scheduler has not tried the stage yet, or tries it again in each cycle. It
// does so for a stage whose victims release quota, for a stage that waits for quota behind such a stage, for a stage that only reservations keep
// from its quota, and for a stage of a ClusterQueue with StrictFIFO, which keeps a refused stage active unless its namespace is not selected.
func (e *Engine) isActive(c *stageCounts, s *stage) bool {
	q := s.entry.clusterQueue
	switch {
	case s.lastRefusal.Check == "":
		return true
	case !q.exists || e.activity(q).Status != metav1.ConditionTrue:
		return false
	case s.lastRefusal.Reason == kueue.WorkloadQuotaReservedReasonWaitingForPreemptedWorkloads:
		return true
	case s.lastRefusal.Reason == kueue.WorkloadQuotaReservedReasonWaitingForQuota && (len(q.preemptors) > 0 || e.fitsBesidesReservations(c, s)):
		return true
	}
	return q.strategy == queue.Strict && s.lastRefusal.Check != namespaceSelected
}

// An ask is a demand in a ClusterQueue.
type ask struct {
	demand       *demand
	clusterQueue *clusterQueue
}

// fitsBesidesReservations reports whether a stage would fit if nothing were reserved for stages that wait. Kueue's scheduler tries such a stage in each
// cycle, and gives its quota to the stage for which it is reserved.
func (e *Engine) fitsBesidesReservations(c *stageCounts, s *stage) bool {
	q := s.entry.clusterQueue
	if q.cohortTree == nil || len(q.cohortTree.pledging) == 0 {
		return false
	}
	key := ask{s.demand, q}
	fits, isKnown := c.fits[key]
	if o := e.offer(s.demand, q); !isKnown && o.infeasibility == nil {
		e.tree.WhatIf(func() bool {
			for _, other := range q.cohortTree.pledgers() {
				other.preemptQueue.node.Unreserve(other.preemptReserved)
			}
			for choice := range flavor.Choices(o.items, flavor.MaxChoices) {
				if fits = q.node.Fits(choice.Usage(o.items)); fits {
					break
				}
			}
			return true
		})
	}
	c.fits[key] = fits
	return fits
}
