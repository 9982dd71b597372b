package admission

import (
	"cmp"
	"slices"

	"github.com/tranche-dev/tranche/admission/fairshare"
	"github.com/tranche-dev/tranche/admission/quota"
)

// runCycle runs one scheduling cycle of a cohort tree: it checks all stages that are not parked, until nothing more fits.
//
// The head of each queue that passes all checks is the nominee of its ClusterQueue. The best nominee is admitted, if it still passes, and
// the next stage of its queue takes its place.
func (e *Engine) runCycle(g *cohortTree, decisions []Decision) []Decision {
	var n nominees = &nomineeHeap{in: map[*clusterQueue]*nominee{}}
	if e.config.FairSharing {
		n = &fairNominees{quota: e.tree, tree: fairshare.NewTournament(e.meter), root: g.root, in: map[*quota.Node]*nominee{}}
	}
	e.cycles++
	for {
		decisions = e.nominateAll(g, n, decisions)
		for _, q := range e.changedReservations {
			n.charged(q)
		}
		e.changedReservations = e.changedReservations[:0]
		winner := n.winner()
		if winner == nil {
			return decisions
		}
		switch {
		case !e.stillPasses(winner):
		case winner.preempts():
			decisions = e.makeRoom(winner.candidate, decisions)
		case winner.groupCandidate != nil:
			decisions = e.admitTogether(winner.groupCandidate, decisions)
			for _, l := range winner.groupCandidate.candidates {
				if l.q.cohortTree == g {
					n.charged(l.q)
				}
			}
			e.settleTransfers()
		default:
			decisions = append(decisions, e.admit(winner.candidate))
			n.charged(winner.q)
			e.settleTransfers()
		}
		e.scheduleCycle(winner.q)
	}
}

// nominateAll nominates the head of each queue in which a stage may not be parked.
func (e *Engine) nominateAll(g *cohortTree, n nominees, decisions []Decision) []Decision {
	for len(g.awake) > 0 {
		awake := g.awake
		g.awake = nil
		slices.SortFunc(awake, compareQueues)
		for _, q := range awake {
			q.isScheduled = false
			if q.isUsageBased && e.decay != nil {
				q.pendingQueue.Reorder()
			}
			n.withdraw(q)
			decisions = e.nominate(n, q, decisions)
		}
	}
	return decisions
}

// nominate refuses the stages of a queue that do not pass the checks, up to the first that does.
func (e *Engine) nominate(n nominees, q *clusterQueue, decisions []Decision) []Decision {
	for {
		head := q.pendingQueue.Next()
		if head == nil {
			return decisions
		}
		l := e.candidate(head.Member)
		if refusal := e.check(l); refusal != nil {
			decisions = e.refuse(l, refusal, decisions)
			continue
		}
		if l.groupCandidate != nil && !e.isTurn(l) {
			e.holdLine(l)
			return decisions
		}
		n.enter(&nominee{candidate: l, asOf: e.chargeEpoch})
		return decisions
	}
}

// stillPasses reports whether a nominee still passes after the decisions since its nomination.
func (e *Engine) stillPasses(n *nominee) bool {
	if n.asOf == e.chargeEpoch || n.preempts() && len(n.j.keptIn(n.q)) == 0 && e.stillHelps(n.candidate) {
		return true
	}
	if n.preempts() || n.groupCandidate != nil {
		return false
	}
	if len(n.reservers) > 0 {
		n.reservers = e.borrowedPeaks(n.candidate) // stages admitted since the nomination may have used some of them
	}
	refusal := e.ignoringOwnReservations(n.candidate, func() *Refusal {
		if !n.q.node.Fits(n.usage) || e.config.BlockAdmission && e.unready > 0 {
			return &Refusal{}
		}
		return e.unsafe(n.candidate, n.choice)
	})
	return refusal == nil
}

func compareQueues(a, b *clusterQueue) int { return cmp.Compare(a.name, b.name) }
