package cycle

import (
	"slices"

	"github.com/tranche-dev/tranche/admission/internal/check"
	"github.com/tranche-dev/tranche/admission/internal/decision"
	"github.com/tranche-dev/tranche/admission/internal/model"
	"github.com/tranche-dev/tranche/admission/internal/queuespec"
	"github.com/tranche-dev/tranche/queue"
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

// refuse parks a stage and its equivalence class, and emits the refusal for those of which it is not the last one emitted. If the stage was refused because of its
// time limit, and another one of the class passes with a shorter one, that is offered instead.
func (cy *Cycle) refuse(l *check.Candidate, refusal *decision.Refusal) {
	switch {
	case l.GroupCandidate != nil:
		cy.parkTogether(l)
	case l.Stage.Element.IsFirst() && cy.noteDue(l, refusal):
	case l.MayPassWithShorterLimit() && l.Queue.Strategy == queue.BestEffort && l.Stage.Element.Shortest().HasShorterLimit(l.Stage.Element):
		refuseLimit(cy, l, refusal)
	default:
		cy.park(l, refusal, refusal)
	}
}

// refuseLimit is refuse for a stage that was refused because of its time limit, if there are shorter ones.
func refuseLimit(cy *Cycle, l *check.Candidate, refusal *decision.Refusal) {
	var ofShorter *decision.Refusal
	passes := func(t *model.Element) bool {
		shorter := cy.check.Candidate(t.Member)
		cy.m.Checked++
		if ofShorter = cy.check.Check(shorter); ofShorter == nil {
			return true
		}
		l.AlsoAwait(shorter)
		return false
	}
	if !passes(l.Stage.Element.Shortest()) {
		cy.park(l, refusal, ofShorter)
		return
	}
	l.Queue.PendingQueue.Offer(l.Stage.Element.FirstPassing(passes), l.Waits)
	awaitChanges(cy.m, l)
}

// park parks a stage and its equivalence class. Those with a shorter time limit have a refusal of their own.
func (cy *Cycle) park(l *check.Candidate, refusal, ofShorter *decision.Refusal) {
	if !l.Preempts() && !cy.reserveNominal(l) {
		cy.m.CancelReservation(l.Stage)
	}
	if l.MayBeDeadlocked() {
		cy.suspects[l.JobSet] = struct{}{}
	}
	var toTell []*model.Stage
	l.Queue.PendingQueue.Announce(l.Stage.Element, refusal.News()+ofShorter.News())
	switch l.Effect {
	case check.WaitsForChange:
		toTell = l.Queue.PendingQueue.Park(l.Stage.Element, l.Waits)
	case check.BlocksOthers:
		toTell = l.Queue.PendingQueue.Block(l.Stage.Element, l.Waits)
	case check.WaitsBehind:
		toTell = l.Queue.PendingQueue.ParkBehind(l.Stage.Element)
	}
	awaitChanges(cy.m, l)
	if !slices.Contains(toTell, l.Stage) {
		toTell = append(toTell, l.Stage)
	}
	for _, s := range toTell {
		refusal := refusal
		if s.Element.HasShorterLimit(l.Stage.Element) {
			refusal = ofShorter
		}
		if s.LastRefusal == nil || !s.LastRefusal.SaysTheSameAs(refusal) {
			cy.check.AddKueueMessage(l, refusal)
			s.LastRefusal = refusal
			cy.decisions = append(cy.decisions, decision.Refuse{Stage: s.Key, UID: s.UID, Refusal: *refusal, PodSets: s.Demand.PodSets})
		}
	}
}

// awaitChanges notes for what a candidate waits that was refused.
func awaitChanges(m *model.Model, l *check.Candidate) {
	if !l.RetryAt.IsZero() {
		l.Queue.WakeAt(m, l.RetryAt)
	}
	for _, wait := range l.Waits {
		l.Queue.CohortTree.Park(l.Queue, wait.Topic)
	}
}
