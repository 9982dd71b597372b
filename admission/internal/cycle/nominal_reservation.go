package cycle

import (
	"slices"

	"github.com/tranche-dev/tranche/admission/internal/check"
	"github.com/tranche-dev/tranche/admission/internal/model"
)

// reserveForHeads reserves nominal quota for the heads of the queues that a cycle is about to check, before it admits any stage. The cycle itself checks
// such a head only after the stages before it have been admitted, and until then borrowers in other ClusterQueues could take the quota. So which stage
// gets it depends on the objects alone, and not on whether an earlier cycle, before a restart, had made the reservation already.
func (cy *Cycle) reserveForHeads(g *model.CohortTree) {
	for _, q := range slices.SortedFunc(slices.Values(g.Awake), compareQueues) {
		if q.MayReserveNominal() {
			cy.reserveForHead(q)
		}
	}
}

// reserveForHead reserves nominal quota for the first stage of a queue that waits. Stages before it that can be admitted now do not count, and
// nothing is reserved behind one that waits for victims, or for other gangs that are admitted together with it.
func (cy *Cycle) reserveForHead(q *model.ClusterQueue) {
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
