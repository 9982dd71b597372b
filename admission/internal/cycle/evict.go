package cycle

import (
	"maps"
	"slices"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/internal/decision"
	"github.com/tranche-dev/tranche/admission/internal/model"
)

// evict decides that a stage has to release its quota.
func (cy *Cycle) evict(s *model.Stage, d decision.Evict) decision.Decision {
	cy.m.LastDecision++
	cy.m.ChargeEpoch++
	cy.m.InFlight[cy.m.LastDecision] = s.Key
	s.Evicting = cy.m.LastDecision
	d.ID, d.Stage, d.UID = s.Evicting, s.Key, s.UID
	s.IsVictim = d.Preemption != nil
	s.IsTakenFairly = s.IsVictim && d.Preemption.Reason == kueue.InCohortFairSharingReason
	return d
}

// drain evicts stages from stopped queues.
func (cy *Cycle) drain(decisions []decision.Decision) []decision.Decision {
	for _, s := range slices.SortedFunc(maps.Keys(cy.m.Overdue), model.CompareStages) {
		delete(cy.m.Overdue, s)
		if by := s.StoppedBy(); s.Reservation != nil && by.Reason != "" && !s.IsLeaving() {
			decisions = append(decisions, cy.evict(s, decision.Evict{Reason: by.Reason, Message: by.Message}))
			cy.m.Refresh(s)
		}
	}
	return decisions
}
