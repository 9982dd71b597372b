package cycle

import (
	"slices"

	"github.com/tranche-dev/tranche/admission/internal/check"
	"github.com/tranche-dev/tranche/admission/internal/decision"
	"github.com/tranche-dev/tranche/admission/internal/model"
	"github.com/tranche-dev/tranche/admission/internal/queuespec"
)

// admit charges a stage that has passed all checks.
func (cy *Cycle) admit(l *check.Candidate) {
	cy.m.LastDecision++
	cy.m.ChargeEpoch++
	id, s := cy.m.LastDecision, l.Stage
	cy.m.InFlight[id] = s.Key
	admit := decision.Admit{ID: id, Stage: s.Key, UID: s.UID, Admission: l.Admission()}
	for _, name := range l.Queue.ChecksFor(&admit.Admission) {
		// In a cohort tree that was taken over from Kueue, those that ask whether a stage is safe are answered by this decision.
		if cy.m.Config.Leader == queuespec.Kueue && l.Queue.AsksForSafety(cy.m.Checks, name) {
			admit.Passed = append(admit.Passed, name)
			continue
		}
		admit.Checks = append(admit.Checks, name)
	}
	s.Assumed = &model.Assignment{Decision: id, ClusterQueue: l.Queue, Usage: l.Usage, Parts: l.Parts(l.Choice), IsAdmitted: len(admit.Checks) == 0}
	if l.JobSet != nil && l.JobSet.Owner.Kind == decision.JobSetOwner {
		admit.JobSet, admit.StageName = l.JobSet.Owner.Key.Name, l.JobSet.Plan.Stages[s.Index].Name
	}
	behind := cy.check.PreemptorsBehind(l)
	s.ReservedAt = cy.m.Now
	cy.m.SpendReservation(s, l.Usage)
	cy.dropPreemptReservations(behind)
	cy.dropPeaks(l)
	cy.reservePromisedPeak(l)
	cy.decisions = append(cy.decisions, admit)
}

// refuse parks a stage and its equivalence class, and emits the refusal for those of which it is not the last one emitted.
func (cy *Cycle) refuse(l *check.Candidate, refusal *decision.Refusal) {
	if l.GroupCandidate != nil {
		cy.parkTogether(l)
		return
	}
	if !cy.noteDue(l, refusal) {
		cy.park(l, refusal)
	}
}

func (cy *Cycle) park(l *check.Candidate, refusal *decision.Refusal) {
	if !l.Preempts() && !cy.reserveNominal(l) {
		cy.m.CancelReservation(l.Stage)
	}
	if !l.RetryAt.IsZero() {
		l.Queue.WakeAt(cy.m, l.RetryAt)
	}
	var toTell []*model.Stage
	l.Queue.PendingQueue.Announce(l.Stage.Element, refusal.News())
	switch l.Effect {
	case check.WaitsForChange:
		toTell = l.Queue.PendingQueue.Park(l.Stage.Element, l.Waits)
	case check.BlocksOthers:
		toTell = l.Queue.PendingQueue.Block(l.Stage.Element, l.Waits)
	case check.WaitsBehind:
		toTell = l.Queue.PendingQueue.ParkBehind(l.Stage.Element)
	}
	for _, wait := range l.Waits {
		l.Queue.CohortTree.Park(l.Queue, wait.Topic)
	}
	if !slices.Contains(toTell, l.Stage) {
		toTell = append(toTell, l.Stage)
	}
	for _, s := range toTell {
		if s.LastRefusal == nil || !s.LastRefusal.SaysTheSameAs(refusal) {
			cy.check.AddKueueMessage(l, refusal)
			s.LastRefusal = refusal
			cy.decisions = append(cy.decisions, decision.Refuse{Stage: s.Key, UID: s.UID, Refusal: *refusal, PodSets: s.Demand.PodSets})
		}
	}
}
