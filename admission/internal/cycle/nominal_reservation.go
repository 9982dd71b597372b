package cycle

import (
	"slices"

	"github.com/tranche-dev/tranche/admission/internal/check"
	"github.com/tranche-dev/tranche/admission/internal/model"
	"github.com/tranche-dev/tranche/admission/quota"
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

// reserveForHead reserves nominal quota for the first stage of a queue that waits, once the stages before it that can be admitted now have been. Nothing is
// reserved behind one that waits for victims, or for other gangs that are admitted together with it.
func (cy *Cycle) reserveForHead(q *model.ClusterQueue) {
	var head *check.Candidate
	var reserved quota.Usage
	refused := map[model.EquivalenceKey]bool{}
	cy.m.Tree.WhatIf(func() bool {
		for s := range q.PendingQueue.Contenders() {
			if s.CoAdmissionGroup() != nil {
				return false
			}
			if refused[s.Element.Shape()] {
				continue
			}
			l := cy.check.Candidate(s)
			refusal := cy.check.Check(l)
			switch {
			case l.Preempts():
				return false
			case refusal == nil:
				q.Node.Charge(l.Usage)
			case l.Effect == check.BlocksOthers:
				head, reserved = l, cy.check.NominalReservation(l)
				return false
			default:
				refused[s.Element.Shape()] = true
			}
		}
		return false
	})
	cy.setNominal(head, reserved)
}
