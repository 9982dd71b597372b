package admission

import (
	"cmp"
	"slices"

	"github.com/tranche-dev/tranche/admission/fairshare"
	"github.com/tranche-dev/tranche/admission/quota"
)

// pass runs one scheduling cycle of a cohort tree: it checks all stages that are not parked, until nothing more fits.
//
// The head of each queue that passes all checks is the nominee of its ClusterQueue in a contest. The winner is admitted, if it still passes, and
// the next stage of its queue takes its place.
func (e *Engine) pass(g *group, decisions []Decision) []Decision {
	var c contest = &ranking{in: map[*clusterQueue]*contender{}}
	if e.config.FairSharing {
		c = &tournament{quota: e.tree, tree: fairshare.NewTournament(e.meter), root: g.root, in: map[*quota.Node]*contender{}}
	}
	e.passes++
	for {
		decisions = e.nominateAll(g, c, decisions)
		for _, q := range e.repledged {
			c.charged(q)
		}
		e.repledged = e.repledged[:0]
		winner := c.winner()
		if winner == nil {
			return decisions
		}
		switch {
		case !e.stillPasses(winner):
		case winner.preempts():
			decisions = e.makeRoom(winner.look, decisions)
		case winner.trial != nil:
			decisions = e.admitTogether(winner.trial, decisions)
			for _, l := range winner.trial.looks {
				if l.q.group == g {
					c.charged(l.q)
				}
			}
			e.settleTransfers()
		default:
			decisions = append(decisions, e.admit(winner.look))
			c.charged(winner.q)
			e.settleTransfers()
		}
		e.rouse(winner.q)
	}
}

// nominateAll nominates the head of each queue in which a stage may not be parked.
func (e *Engine) nominateAll(g *group, c contest, decisions []Decision) []Decision {
	for len(g.awake) > 0 {
		awake := g.awake
		g.awake = nil
		slices.SortFunc(awake, compareQueues)
		for _, q := range awake {
			q.isRoused = false
			if q.isUsageBased && e.decay != nil {
				q.pending.Reorder()
			}
			c.withdraw(q)
			decisions = e.nominate(c, q, decisions)
		}
	}
	return decisions
}

// nominate refuses the stages of a queue that do not pass the checks, up to the first that does.
func (e *Engine) nominate(c contest, q *clusterQueue, decisions []Decision) []Decision {
	for {
		head := q.pending.Next()
		if head == nil {
			return decisions
		}
		l := e.look(head.Member)
		if refusal := e.check(l); refusal != nil {
			decisions = e.refuse(l, refusal, decisions)
			continue
		}
		if l.trial != nil && !e.isTurn(l) {
			e.holdLine(l)
			return decisions
		}
		c.enter(&contender{look: l, asOf: e.takings})
		return decisions
	}
}

// stillPasses reports whether a nominee still passes after the decisions since its nomination.
func (e *Engine) stillPasses(n *contender) bool {
	if n.asOf == e.takings || n.preempts() && len(n.j.keptIn(n.q)) == 0 && e.stillHelps(n.look) {
		return true
	}
	if n.preempts() || n.trial != nil {
		return false
	}
	if len(n.reservers) > 0 {
		n.reservers = e.borrowedPeaks(n.look) // stages admitted since the nomination may have used some of them
	}
	refusal := e.asIfNothingWereKept(n.look, func() *Refusal {
		if !n.q.node.Fits(n.usage) || e.config.BlockAdmission && e.unready > 0 {
			return &Refusal{}
		}
		return e.unsafe(n.look, n.choice)
	})
	return refusal == nil
}

func compareQueues(a, b *clusterQueue) int { return cmp.Compare(a.name, b.name) }
