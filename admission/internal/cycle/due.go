package cycle

import (
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
