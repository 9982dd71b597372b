package cycle

import (
	"cmp"
	"slices"

	"github.com/tranche-dev/tranche/admission/internal/backfill"
	"github.com/tranche-dev/tranche/admission/internal/check"
	"github.com/tranche-dev/tranche/admission/internal/decision"
	"github.com/tranche-dev/tranche/admission/internal/model"
)

// noteDue makes a refused stage the due stage of its ClusterQueue if it has waited for quota for long enough, and comes before the present one. Otherwise the
// ClusterQueue is woken when the stage will have. A stage that does not wait for quota is not due.
func (cy *Cycle) noteDue(l *check.Candidate, refusal *decision.Refusal) {
	present := l.Queue.DueStage()
	at, waits := l.AwaitsDue()
	switch {
	case !waits && present == l.Stage:
		cy.m.Schedule.EndDue(l.Queue)
		cy.m.Enqueue(l.Stage)
	case !waits || present != nil && present != l.Stage && !l.Stage.Element.HasPrecedence(present.Element):
	case at.After(cy.m.Now):
		l.Queue.WakeAt(cy.m, at)
	case backfill.Set(cy.m, l.Queue, model.Due{Stage: l.Stage, At: at, Need: check.DueNeed(cy.check, l)}):
		check.AddReservation(cy.check, l, refusal)
	}
}

// findDue determines the due stages of the ClusterQueues of a cohort tree before its first cycle. A cycle finds them only as it refuses them, and until then
// JobSets that have begun would come first. Before a restart the stage may have been due already.
func (cy *Cycle) findDue(g *model.CohortTree) {
	if !g.IsNew {
		return
	}
	g.IsNew = false
	for _, q := range slices.SortedFunc(slices.Values(g.Queues), compareQueues) {
		if q.Due == nil && cy.m.Config.ReservationOf(&q.Spec).IsEnabled {
			findDueIn(cy, q)
		}
	}
}

func findDueIn(cy *Cycle, q *model.ClusterQueue) {
	var due []*check.Candidate
	for s := range q.PendingQueue.Ordered(nil) {
		if l := cy.check.Candidate(s); l.IsDue {
			due = append(due, l)
		}
	}
	slices.SortFunc(due, func(a, b *check.Candidate) int {
		switch {
		case a.Stage.Element.HasPrecedence(b.Stage.Element):
			return -1
		case b.Stage.Element.HasPrecedence(a.Stage.Element):
			return 1
		}
		return cmp.Compare(a.Stage.UID, b.Stage.UID)
	})
	for _, l := range due {
		refusal := cy.check.Check(l)
		if _, waits := l.AwaitsDue(); refusal == nil || waits {
			backfill.Set(cy.m, q, model.Due{Stage: l.Stage, At: l.DueAt, Need: check.DueNeed(cy.check, l)})
			return
		}
	}
}
