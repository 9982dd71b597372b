package report

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/flavor"
	"github.com/tranche-dev/tranche/admission/internal/decision"
	"github.com/tranche-dev/tranche/admission/internal/model"
	"github.com/tranche-dev/tranche/queue"
)

// IsActive reports whether Kueue counts a waiting stage as active: its scheduler has not tried the stage yet, or tries it again in each cycle. It
// does so for a stage whose victims release quota, for a stage that waits for quota behind such a stage, for a stage that only reservations keep
// from its quota, and for a stage of a ClusterQueue with StrictFIFO, which keeps a refused stage active unless its namespace is not selected.
func (rp *Reporter) isActive(c *stageCounts, s *model.Stage) bool {
	q := s.Entry.ClusterQueue
	switch {
	case s.LastRefusal == nil:
		return true
	case !q.Exists || rp.m.Activity(q).Status != metav1.ConditionTrue:
		return false
	case s.LastRefusal.Reason == kueue.WorkloadQuotaReservedReasonWaitingForPreemptedWorkloads:
		return true
	case s.LastRefusal.Reason == kueue.WorkloadQuotaReservedReasonWaitingForQuota && (len(q.Preemptors) > 0 || rp.fitsBesidesReservations(c, s)):
		return true
	}
	return q.Strategy == queue.Strict && s.LastRefusal.Check != decision.NamespaceSelected
}

// fitsBesidesReservations reports whether a stage would fit if nothing were reserved for stages that wait. Kueue's scheduler tries such a stage in each
// cycle, and gives its quota to the stage for which it is reserved.
func (rp *Reporter) fitsBesidesReservations(c *stageCounts, s *model.Stage) bool {
	q := s.Entry.ClusterQueue
	if q.CohortTree == nil || len(q.CohortTree.PreemptorQueues)+len(q.CohortTree.DueQueues) == 0 {
		return false
	}
	key := model.QueuedDemand{Demand: s.Demand, Queue: q}
	fits, isKnown := c.fits[key]
	if o := rp.m.Offer(s.Demand, q); !isKnown && o.Infeasibility == nil {
		rp.m.Tree.WhatIf(func() bool {
			for _, other := range q.CohortTree.Preemptors() {
				other.PreemptQueue.Node.Unreserve(other.PreemptReserved)
			}
			for choice := range flavor.Choices(o.Items, flavor.MaxChoices) {
				if fits = q.Node.Fits(choice.Usage(o.Items)); fits {
					break
				}
			}
			return true
		})
	}
	c.fits[key] = fits
	return fits
}
