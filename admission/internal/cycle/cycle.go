package cycle

import (
	"cmp"
	"slices"
	"time"

	"github.com/tranche-dev/tranche/admission/fairshare"
	"github.com/tranche-dev/tranche/admission/internal/backfill"
	"github.com/tranche-dev/tranche/admission/internal/check"
	"github.com/tranche-dev/tranche/admission/internal/decision"
	"github.com/tranche-dev/tranche/admission/internal/model"
	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/queue"
)

// A Cycle runs scheduling cycles.
type Cycle struct {
	m          *model.Model
	check      *check.Checker
	nextSample time.Time
	// withheld is what was kept for stages during the current call of Decide, until lenders left too little for them.
	withheld map[*model.Stage][]quota.Usage
	// deadlocked are the JobSets that wait for each other, and suspects those that may have come to.
	deadlocked, suspects map[*model.JobSet]struct{}
	// Held are the queues that a co-admission group has paused, and rests counts how often all others became idle meanwhile.
	Held  []*model.ClusterQueue
	rests uint64
	// surplus is the ChargeEpoch at which victims last released more than their preemptor needs, in the current cycle.
	surplus map[*quota.Node]uint64
	// revoked are the stages whose approval has been withdrawn since the last call of Revoked.
	revoked []decision.StageKey
	// decisions are those of the current call of Decide.
	decisions []decision.Decision
}

// New returns a Cycle that decides about the stages of a Model.
func New(m *model.Model, checker *check.Checker) *Cycle {
	return &Cycle{m: m, check: checker, rests: 1, withheld: map[*model.Stage][]quota.Usage{}, deadlocked: map[*model.JobSet]struct{}{}, suspects: map[*model.JobSet]struct{}{}, surplus: map[*quota.Node]uint64{}}
}

// runCycle runs one scheduling cycle of a cohort tree: it checks all stages that are not parked, until nothing more fits.
//
// The head of each queue that passes all checks is the nominee of its ClusterQueue. The best nominee is admitted, if it still passes, and
// the next stage of its queue takes its place.
func (cy *Cycle) runCycle(g *model.CohortTree) {
	var n nominees = &nomineeHeap{in: map[*model.ClusterQueue]*nominee{}}
	if cy.m.Config.FairSharing {
		n = &fairNominees{quota: cy.m.Tree, tree: fairshare.NewTournament(cy.m.Meter), root: g.Root, in: map[*quota.Node]*nominee{}}
	}
	cy.m.Cycles++
	clear(cy.surplus)
	cy.reserveForHeads(g)
	for {
		cy.nominateAll(g, n)
		for _, q := range cy.m.ChangedReservations {
			n.charged(q)
		}
		cy.m.ChangedReservations = cy.m.ChangedReservations[:0]
		winner := n.winner()
		if winner == nil && !cy.wakeForBorrowing(g) && !cy.endWithheld(g) && !cy.endFarAhead(g) && !backfill.WakeIfLater(cy.m, g) {
			return
		}
		if winner == nil {
			continue
		}
		delete(g.Nominated, winner.Queue)
		switch {
		case !cy.stillPasses(winner):
		case winner.Preempts():
			cy.makeRoom(winner.Candidate)
		case winner.GroupCandidate != nil:
			cy.admitTogether(winner.GroupCandidate)
			for _, l := range winner.GroupCandidate.Candidates {
				if l.Queue.CohortTree == g {
					n.charged(l.Queue)
				}
			}
			cy.settleTransfers()
		default:
			cy.admit(winner.Candidate)
			n.charged(winner.Queue)
			cy.settleTransfers()
		}
		cy.m.Schedule.ScheduleCycle(winner.Queue)
	}
}

// wakeForBorrowing wakes the stages that wait until other ClusterQueues borrow more, if these do since the last call, and reports whether that is so.
func (cy *Cycle) wakeForBorrowing(g *model.CohortTree) bool {
	borrowsMore := g.BorrowsMore
	if g.BorrowsMore = false; borrowsMore {
		cy.m.Schedule.WakeTopic(g, model.OthersBorrow)
	}
	return borrowsMore
}

// nominateAll nominates the head of each queue in which a stage may not be parked.
func (cy *Cycle) nominateAll(g *model.CohortTree, n nominees) {
	for len(g.Awake) > 0 {
		awake := g.Awake
		g.Awake = nil
		slices.SortFunc(awake, compareQueues)
		for _, q := range awake {
			q.IsScheduled = false
			if q.IsUsageBased && cy.m.Decay != nil {
				q.Reorder()
			}
			n.withdraw(q)
			delete(g.Nominated, q)
			cy.nominate(n, q)
		}
	}
}

// nominate refuses the stages of a queue that do not pass the checks, up to the first that does.
func (cy *Cycle) nominate(n nominees, q *model.ClusterQueue) {
	for head := q.PendingQueue.Next(); head != nil; head = q.PendingQueue.Next() {
		l := cy.check.Candidate(head.Member)
		cy.m.Checked++
		switch refusal := cy.check.Check(l); {
		case refusal != nil && !head.IsFirst() && q.Strategy == queue.BestEffort:
			q.PendingQueue.OfferFirst(head) // what was offered instead passes no longer
			continue
		case refusal != nil:
			cy.refuse(l, refusal)
			continue
		case l.GroupCandidate != nil && !cy.isTurn(l):
			cy.holdLine(l)
		default:
			n.enter(&nominee{Candidate: l, asOf: cy.m.ChargeEpoch})
			q.CohortTree.Nominated[q] = struct{}{}
		}
		return
	}
}

// stillPasses reports whether a nominee still passes after the decisions since its nomination.
func (cy *Cycle) stillPasses(n *nominee) bool {
	if n.asOf == cy.m.ChargeEpoch || n.Preempts() && len(n.JobSet.PeakReservedIn(n.Queue)) == 0 && cy.stillHelps(n) && check.Delayed(cy.check, n.Candidate) == nil {
		return true
	}
	if n.Preempts() || n.GroupCandidate != nil {
		return false
	}
	if len(n.Reservers) > 0 {
		n.Reservers = cy.check.BorrowedPeaks(n.Candidate) // stages admitted since the nomination may have used some of them
	}
	return cy.check.IgnoringOwnReservations(n.Candidate, func() bool {
		waitsForPods := cy.m.Config.BlockAdmission && cy.m.Unready > 0
		return !waitsForPods && n.Queue.Node.Fits(n.Usage) && cy.check.Unsafe(n.Candidate, n.Choice) == nil && check.Delayed(cy.check, n.Candidate) == nil
	})
}

// sortTrees orders the cohort trees of a cycle. Under BlockAdmission only one stage of the whole cluster may be admitted at a time, so that the tree
// comes first whose first stage would come first if all were in one queue: otherwise a stage whose pods were not ready in time would be admitted again
// before one of another tree that has waited for it.
func sortTrees(m *model.Model, trees []*model.CohortTree) {
	if !m.Config.BlockAdmission {
		slices.SortFunc(trees, model.CompareGroups)
		return
	}
	firsts := make(map[*model.CohortTree]*model.Element, len(trees))
	for _, g := range trees {
		firsts[g] = firstOf(g)
	}
	slices.SortFunc(trees, func(a, b *model.CohortTree) int {
		switch first, other := firsts[a], firsts[b]; {
		case first != nil && other != nil:
			return cmp.Or(first.Compare(other.Position), model.CompareGroups(a, b))
		case first != nil:
			return -1
		case other != nil:
			return 1
		}
		return model.CompareGroups(a, b)
	})
}

// firstOf returns the first stage of a cohort tree that is not parked, or nil.
func firstOf(g *model.CohortTree) *model.Element {
	var first *model.Element
	for _, q := range g.Awake {
		if next := q.PendingQueue.Next(); next != nil && (first == nil || next.Compare(first.Position) < 0) {
			first = next
		}
	}
	return first
}

func compareQueues(a, b *model.ClusterQueue) int { return cmp.Compare(a.Name, b.Name) }

// Decide returns the new decisions, in the order in which to write them. Each decision counts as done at once. The same events, decisions and
// times give the same result.
func (cy *Cycle) Decide(now time.Time) []decision.Decision {
	cy.m.Now = now
	clear(cy.withheld)
	cy.m.RebuildTrees()
	fireTimers(cy.m)
	cy.settleAccounts()
	cy.retryPeaks()
	cy.drain()
	withdrawNotices(cy)
	endNotices(cy)
	cy.recoverFromDeadlock()
	cy.evictPartialGroups()
	cy.noteDeadlocks()
	for len(cy.m.Schedule.Dirty)+len(cy.Held) > 0 || cy.noteDeadlocks() || withdrawNotices(cy) {
		if len(cy.m.Schedule.Dirty) == 0 {
			cy.rest()
		}
		dirty := cy.m.Schedule.Dirty
		cy.m.Schedule.Dirty = nil
		sortTrees(cy.m, dirty)
		cy.findDue(dirty)
		reserveForRestored(cy)
		for _, g := range dirty {
			cy.runCycle(g)
			g.IsDirty = false
		}
		cy.m.RebuildTrees()
	}
	decisions := cy.decisions
	cy.decisions = nil
	return decisions
}
