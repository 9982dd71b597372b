package cycle

import (
	"cmp"
	"slices"
	"time"

	"github.com/tranche-dev/tranche/admission/internal/backfill"
	"github.com/tranche-dev/tranche/admission/internal/check"
	"github.com/tranche-dev/tranche/admission/internal/decision"
	"github.com/tranche-dev/tranche/admission/internal/model"
)

// noteDue makes a refused stage the due stage of its ClusterQueue if it has waited for quota for long enough, and comes before the present one. Otherwise the
// ClusterQueue is woken when the stage will have. A stage that does not wait for quota is not due. It reports whether the stage has to be checked again before it
// is parked: the stages that it would delay may no longer be due, or reserve less, and what waited for that was woken already.
func (cy *Cycle) noteDue(l *check.Candidate, refusal *decision.Refusal) (again bool) {
	present := l.Queue.Due
	at, waits := l.AwaitsDue()
	switch {
	case !waits && present != nil && present.Stage == l.Stage:
		cy.m.EndDue(l.Queue)
		cy.m.Enqueue(l.Stage)
	case !waits || cy.isWithheld(l) || !mayTakeOver(l, present):
	case at.After(cy.m.Now):
		l.Queue.WakeAt(cy.m, at)
	case cy.setDue(l, at):
		check.AddReservation(cy.check, l, refusal)
		return l.Delays()
	}
	return false
}

// setDue makes a stage the due stage of its ClusterQueue, and reports whether it was not.
func (cy *Cycle) setDue(l *check.Candidate, at time.Time) bool {
	need, _ := check.DueNeed(cy.check, l)
	return backfill.Set(cy.m, model.Due{Stage: l.Stage, At: at, Need: need})
}

// endWithheld ends the reservations for stages that lenders no longer leave enough, and reports whether there were any.
func (cy *Cycle) endWithheld(g *model.CohortTree) bool {
	ended := backfill.EndWithheld(cy.m, g)
	for _, due := range ended {
		cy.withheld[due.Stage] = append(cy.withheld[due.Stage], due.Need)
	}
	return len(ended) > 0
}

// endFarAhead ends the reservations for stages that would prepare their JobSets too far ahead since others have taken accelerators, and reports whether there
// were any. Such a stage does not wait for quota. Check ignores the reservations of the stage's own JobSet and of stages behind it, so it may pass a stage for
// which Exceeds alone is true. noteDue goes by the same check, so that a reservation which ends here is not made again.
func (cy *Cycle) endFarAhead(g *model.CohortTree) bool {
	ended := false
	for _, q := range slices.Clone(g.DueQueues) {
		s := q.DueStage()
		if s == nil {
			continue
		}
		if _, exceeds := cy.check.Ahead.Exceeds(s, q, cy.m.JobSets[s.OwnerUID]); !exceeds {
			continue
		}
		l := cy.check.Candidate(s)
		refusal := cy.check.Check(l)
		if _, waits := l.AwaitsDue(); refusal != nil && !waits {
			cy.m.EndDue(q)
			cy.m.Enqueue(s)
			ended = true
		}
	}
	return ended
}

// isWithheld reports whether a stage is not due because of what is withheld from it. A reservation that ended in this call of Decide is not made again with the same
// need, so that Decide terminates.
func (cy *Cycle) isWithheld(l *check.Candidate) bool {
	ended := cy.withheld[l.Stage]
	switch {
	case len(ended) == 0:
		return l.IsWithheld()
	case l.IsWithheld() || l.GroupCandidate != nil:
		return true
	}
	need, _ := check.DueNeed(cy.check, l)
	return slices.ContainsFunc(ended, need.Equal)
}

// mayTakeOver reports whether a stage may be due in its ClusterQueue instead of the present due stage, if there is one: it comes before that, or is that.
func mayTakeOver(l *check.Candidate, present *model.Due) bool {
	return present == nil || backfill.IsFor(present, l.Stage) || backfill.HasPrecedence(l.Stage, present)
}

// noteGroupDue does the same for a refused co-admission group. It is due in all of its ClusterQueues or in none: so a reservation in one of them never waits for
// another stage that is due in another one. It reports whether the group has to be checked again, as noteDue does.
func noteGroupDue(cy *Cycle, g *check.GroupCandidate) (again bool) {
	at, waits := g.AwaitsDue()
	switch {
	case !waits:
		for _, l := range g.Candidates {
			if l.Queue.DueStage() == l.Stage {
				cy.m.EndDue(l.Queue)
			}
		}
	case g.IsWithheld || slices.ContainsFunc(g.Candidates, func(l *check.Candidate) bool { return cy.isWithheld(l) || !mayTakeOver(l, l.Queue.Due) }):
	case at.After(cy.m.Now):
		g.Candidates[0].Queue.WakeAt(cy.m, at)
	case backfill.Set(cy.m, check.Dues(cy.check, g)...):
		for i, l := range g.Candidates {
			check.AddReservation(cy.check, l, g.Refusals[i])
		}
		return slices.ContainsFunc(g.Candidates, (*check.Candidate).Delays)
	}
	return false
}

// findDue determines the due stages of some cohort trees before their first cycles. A cycle finds them only as it refuses them, and until then JobSets that
// have begun would come first. Before a restart the stages may have been due already.
func (cy *Cycle) findDue(trees []*model.CohortTree) {
	var byPlace []*check.Candidate
	for _, g := range trees {
		if !g.IsNew {
			continue
		}
		g.IsNew = false
		cy.m.Cycles++
		for _, q := range slices.SortedFunc(slices.Values(g.Queues), compareQueues) {
			switch {
			case q.Due != nil || !cy.m.Config.ReservationOf(&q.Spec).IsEnabled:
			case q.IsUsageBased:
				setFirstDue(cy, dueIn(cy, q), func(a, b *model.Stage) bool { return a.Element.HasPrecedence(b.Element) })
			default:
				byPlace = append(byPlace, dueIn(cy, q)...)
			}
		}
	}
	setFirstDue(cy, byPlace, func(a, b *model.Stage) bool { return backfill.Place(a).Compare(backfill.Place(b)) < 0 })
}

// dueIn returns the candidates of a ClusterQueue that have waited for long enough.
func dueIn(cy *Cycle, q *model.ClusterQueue) []*check.Candidate {
	var due []*check.Candidate
	for s := range q.PendingQueue.Ordered(nil) {
		if l := cy.check.Candidate(s); l.IsDue {
			due = append(due, l)
		}
	}
	return due
}

// setFirstDue makes the first of some candidates due in each of their ClusterQueues.
func setFirstDue(cy *Cycle, all []*check.Candidate, precedes func(a, b *model.Stage) bool) {
	slices.SortFunc(all, func(a, b *check.Candidate) int {
		switch {
		case precedes(a.Stage, b.Stage):
			return -1
		case precedes(b.Stage, a.Stage):
			return 1
		}
		return cmp.Compare(a.Stage.UID, b.Stage.UID)
	})
	for _, l := range all {
		if l.Queue.Due != nil {
			continue
		}
		refusal := cy.check.Check(l)
		if l.GroupCandidate != nil {
			setGroupDue(cy, l.GroupCandidate, refusal)
		} else if _, waits := l.AwaitsDue(); refusal == nil || waits && !l.IsWithheld() {
			cy.setDue(l, l.DueAt)
		}
	}
}

// setGroupDue makes a co-admission group due if it is, and none of its ClusterQueues has a due stage.
func setGroupDue(cy *Cycle, g *check.GroupCandidate, refusal *decision.Refusal) {
	_, waits := g.AwaitsDue()
	at, reserves := g.DueAt()
	if !g.IsWithheld && (waits || refusal == nil && reserves) && !at.After(cy.m.Now) && !slices.ContainsFunc(g.Candidates, func(l *check.Candidate) bool { return l.Queue.Due != nil }) {
		backfill.Set(cy.m, check.Dues(cy.check, g)...)
	}
}
