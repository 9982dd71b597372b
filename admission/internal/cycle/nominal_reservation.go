package cycle

import (
	"maps"
	"slices"

	"github.com/tranche-dev/tranche/admission/internal/check"
	"github.com/tranche-dev/tranche/admission/internal/model"
)

// reserveNominal reserves nominal quota for a stage that waits for it, and reports whether there is any to reserve.
func (cy *Cycle) reserveNominal(l *check.Candidate) bool {
	reserved := cy.check.NominalReservation(l)
	if len(reserved) == 0 {
		return false
	}
	if !l.Stage.ReservesNominal || l.Stage.PreemptQueue != l.Queue || !l.Stage.PreemptReserved.Equal(reserved) {
		cy.m.ReserveForPreemptor(l.Stage, l.Queue, reserved)
		l.Stage.ReservesNominal = true
		l.Queue.CohortTree.NominalReservers[l.Stage] = struct{}{}
		cy.m.Enqueue(l.Stage)
	}
	return true
}

// restoreNominal makes the reservations of nominal quota again that an Engine made before a restart, since no object records them. It must be called
// once, before the first scheduling cycle: that checks a stage only after those before it have been admitted, and until then borrowers in other
// ClusterQueues could take the quota.
func (cy *Cycle) restoreNominal() {
	if cy.isRestored {
		return
	}
	cy.isRestored = true
	for _, q := range slices.SortedFunc(maps.Values(cy.m.ClusterQueues), compareQueues) {
		if q.Decides() && q.MayReserveNominal() {
			cy.restoreNominalIn(q)
		}
	}
}

// restoreNominalIn reserves nominal quota for the first stage of a queue that waits. Stages before it that can be admitted now do not count, and
// nothing is reserved behind one that waits for victims, or for other gangs that are admitted together with it.
func (cy *Cycle) restoreNominalIn(q *model.ClusterQueue) {
	passing := map[model.EquivalenceKey]struct{}{}
	for s := range q.PendingQueue.Ordered(nil) {
		if _, passes := passing[s.Element.Shape]; passes {
			continue
		}
		if s.CoAdmissionGroup() != nil {
			return
		}
		l := cy.check.Candidate(s)
		refusal := cy.check.Check(l)
		switch {
		case refusal != nil && l.Effect == check.BlocksOthers:
			cy.reserveNominal(l)
			return
		case l.Preempts():
			return
		case refusal == nil:
			passing[s.Element.Shape] = struct{}{}
		}
	}
}
