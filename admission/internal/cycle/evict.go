package cycle

import (
	"maps"
	"slices"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/internal/decision"
	"github.com/tranche-dev/tranche/admission/internal/model"
)

// evict decides that a stage has to release its quota.
func (cy *Cycle) evict(s *model.Stage, d decision.Evict) {
	cy.m.LastDecision++
	cy.m.ChargeEpoch++
	cy.m.InFlight[cy.m.LastDecision] = s.Key
	s.Evicting = cy.m.LastDecision
	d.ID, d.Stage, d.UID = s.Evicting, s.Key, s.UID
	s.IsVictim = d.Preemption != nil
	s.IsTakenFairly = s.IsVictim && d.Preemption.Reason == kueue.InCohortFairSharingReason
	cy.decisions = append(cy.decisions, d)
	cy.m.Refresh(s)
}

// drain evicts stages from stopped queues.
func (cy *Cycle) drain() {
	for _, s := range slices.SortedFunc(maps.Keys(cy.m.Overdue), model.CompareStages) {
		delete(cy.m.Overdue, s)
		if reason, message := s.StoppedBy(); s.Reservation != nil && reason != "" && !s.IsEvicting() && s.Entry.ClusterQueue.Decides() {
			cy.evict(s, decision.Evict{Reason: reason, Message: message})
		}
	}
}
