package check

import (
	"fmt"
	"slices"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/flavor"
	"github.com/tranche-dev/tranche/admission/internal/decision"
	"github.com/tranche-dev/tranche/admission/internal/model"
	"github.com/tranche-dev/tranche/admission/internal/packing"
	"github.com/tranche-dev/tranche/admission/internal/quorum"
	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/queue"
)

// A GroupCandidate is one check of a co-admission group: of all members that wait. Each is checked as if it were alone, and then all together. They use no
// quota that is reserved for preemptors, whatever its queue position, and preempt no stage. Nor do they delay due stages.
type GroupCandidate struct {
	CoAdmissionGroup *model.CoAdmissionGroup
	Candidates       []*Candidate
	// Refusals has the refusal of each of Candidates, or nil.
	Refusals []*decision.Refusal
	// position is the last of their queue positions.
	position queue.Position
	// IsWithheld is true if nothing is reserved for it although it is due, because lenders use what it would have to borrow.
	IsWithheld bool
	// IsPart is true if other members hold quota already and have to release it if these are refused.
	IsPart bool
}

// try checks a co-admission group.
func (ck *Checker) try(b *model.CoAdmissionGroup) *GroupCandidate {
	g := &GroupCandidate{CoAdmissionGroup: b}
	for _, s := range b.Sorted(model.IsWaiting) {
		if s.QueuedIn == nil {
			continue
		}
		if len(g.Candidates) == 0 || g.position.Compare(s.Element.Position) < 0 {
			g.position = s.Element.Position
		}
		g.Candidates = append(g.Candidates, ck.Candidate(s))
	}
	g.Refusals = make([]*decision.Refusal, len(g.Candidates))
	if ck.refuseAsCoAdmissionGroup(g) {
		return g
	}
	ignoringYielding(ck, g, func() { checkMembers(ck, g) })
	noteGroupWithheld(ck, g)
	for i, l := range g.Candidates {
		if g.Refusals[i] != nil {
			AddReservation(ck, l, g.Refusals[i])
		}
	}
	return g
}

// ignoringYielding calls f as if the reservations were released that do not count for one of the members.
func ignoringYielding(ck *Checker, g *GroupCandidate, f func()) {
	var reservers []*model.Stage
	for _, l := range g.Candidates {
		for _, s := range l.yielding {
			if !slices.Contains(reservers, s) {
				reservers = append(reservers, s)
			}
		}
	}
	ck.m.Tree.WhatIf(func() bool {
		for _, s := range reservers {
			s.PreemptQueue.Node.Unreserve(s.PreemptReserved)
		}
		f()
		return true
	})
}

// checkMembers checks each member, and then all together.
func checkMembers(ck *Checker, g *GroupCandidate) {
	for i, l := range g.Candidates {
		g.Refusals[i] = ck.FirstRefusal(l)
	}
	switch {
	case g.isRefused():
		ck.refuseWithOthers(g)
		return
	case !ck.pack(g, nil):
		ck.refuseTogether(g, func(l *Candidate) *decision.Refusal {
			return decision.NewRefusal(gangsPassTogether, kueue.WorkloadQuotaReservedReasonWaitingForQuota,
				"waits for quota in ClusterQueue %s: it fits alone, but not together with %s",
				l.Queue.Name, otherGangs(len(g.CoAdmissionGroup.Members)-1))
		})
		return
	}
	var dues []*model.Due
	delaysNone := func() bool {
		due := delayedTogether(ck, g)
		if due != nil && !slices.Contains(dues, due) {
			dues = append(dues, due)
		}
		return due == nil
	}
	if !delaysNone() && !ck.pack(g, delaysNone) {
		ck.refuseTogether(g, func(l *Candidate) *decision.Refusal {
			l.delays = true
			for _, due := range dues {
				waitUntilOver(l, due)
			}
			return delaying(ck, l, dues[0])
		})
		return
	}
	for i, l := range g.Candidates {
		g.Refusals[i] = checksAreFew(ck, l)
	}
	if g.isRefused() {
		ck.refuseWithOthers(g)
	}
}

// delayedTogether returns the first due stage that one of the members delays when all others have been admitted as well, or nil.
func delayedTogether(ck *Checker, g *GroupCandidate) *model.Due {
	var due *model.Due
	for _, l := range g.Candidates {
		ck.m.Tree.WhatIf(func() bool {
			for _, other := range g.Candidates {
				if other != l {
					other.Queue.Node.Charge(other.Usage)
				}
			}
			due = Delayed(ck, l)
			return true
		})
		if due != nil {
			return due
		}
	}
	return nil
}

func (g *GroupCandidate) isRefused() bool {
	return slices.ContainsFunc(g.Refusals, func(r *decision.Refusal) bool { return r != nil })
}

// gangsPassTogether is the check that refuses members which pass alone.
const gangsPassTogether = "GangsPassTogether"

// refuseAsCoAdmissionGroup refuses all members for problems of the group that do not depend on quota.
func (ck *Checker) refuseAsCoAdmissionGroup(g *GroupCandidate) bool {
	b := g.CoAdmissionGroup
	for i, l := range g.Candidates {
		g.Refusals[i] = quorum.Lacks(b, l.Stage)
	}
	g.IsPart = b.IsWhole() && b.Counts[model.IsHolding] > 0 && b.Counts[model.IsAssumed]+b.Counts[model.IsGoing] == 0
	return g.isRefused()
}

// refuseWithOthers refuses the members that pass because of the first that does not. If all obstacles are missing quota, all members block their
// queues. Otherwise none does: no queue waits for a member in another queue whose obstacle is not quota, or that is behind other stages.
func (ck *Checker) refuseWithOthers(g *GroupCandidate) {
	first, holdsUp, awaitsQuota := -1, true, true
	for i, l := range g.Candidates {
		if g.Refusals[i] != nil {
			holdsUp = holdsUp && l.Effect == BlocksOthers
			awaitsQuota = awaitsQuota && l.awaitsQuota
			if first < 0 {
				first = i
			}
		}
	}
	if holdsUp && !ck.fitsAtBest(g) {
		ck.refuseForGood(g)
		return
	}
	refused := slices.Clone(g.Refusals)
	for i, l := range g.Candidates {
		switch {
		case holdsUp:
			l.Effect, l.awaitsQuota = BlocksOthers, awaitsQuota
		case l.Effect == BlocksOthers:
			l.Effect = WaitsForChange
		}
		if refused[i] == nil {
			g.Refusals[i] = because(l.Stage, g.Candidates[first], refused[first])
		}
	}
}

// because refuses a stage that passes because of another member that does not.
func because(s *model.Stage, other *Candidate, refusal *decision.Refusal) *decision.Refusal {
	message := fmt.Sprintf("waits for %s, which is admitted together with it", quorum.NameOf(s, other.Stage))
	switch {
	case other.Stage.Key.Namespace != s.Key.Namespace:
	case refusal.Reason == kueue.WorkloadQuotaReservedReasonWaitingForQuota:
		message += fmt.Sprintf(" and waits for quota in ClusterQueue %s", other.Queue.Name)
	default:
		message += ": " + refusal.Message
	}
	return &decision.Refusal{Check: gangsPassTogether, Reason: refusal.Reason, Message: message}
}

// refuseTogether refuses all members, if each would pass alone but not all together. Any release of quota that one of them could use wakes them.
func (ck *Checker) refuseTogether(g *GroupCandidate, refuse func(*Candidate) *decision.Refusal) {
	if !ck.fitsAtBest(g) {
		ck.refuseForGood(g)
		return
	}
	for i, l := range g.Candidates {
		l.Effect, l.awaitsQuota = BlocksOthers, true
		for choice := range flavor.Choices(l.Items, flavor.MaxChoices) {
			for _, c := range choice.Usage(l.Items) {
				l.wait(c.ID, anyNews)
			}
		}
		g.Refusals[i] = refuse(l)
	}
}

func otherGangs(n int) string {
	if n == 1 {
		return "the other gang that is admitted with it"
	}
	return fmt.Sprintf("the other %d gangs that are admitted with it", n)
}

// refuseForGood refuses members that would not fit together even if nothing were charged.
func (ck *Checker) refuseForGood(g *GroupCandidate) {
	for i, l := range g.Candidates {
		l.Effect, l.Waits, l.awaitsQuota, l.delays = WaitsForChange, nil, false, false
		g.Refusals[i] = decision.NewRefusal(WithinLimits, kueue.WorkloadQuotaReservedReasonExceedsMaxQuota,
			"can never fit: the %d gangs that are admitted together need more quota at the same time than ClusterQueue %s or the ClusterQueue of another one has",
			len(g.CoAdmissionGroup.Members), l.Queue.Name)
	}
}

// checkTogether is check for a member of a co-admission group.
func (ck *Checker) checkTogether(l *Candidate, b *model.CoAdmissionGroup) *decision.Refusal {
	g := ck.try(b)
	i := g.index(l.Stage)
	if i < 0 {
		l.GroupCandidate = g
		return nil
	}
	*l = *g.Candidates[i]
	l.GroupCandidate, g.Candidates[i] = g, l
	return g.Refusals[i]
}

// Has reports whether a stage is in the group candidate.
func (g *GroupCandidate) Has(s *model.Stage) bool { return g.index(s) >= 0 }

func (g *GroupCandidate) index(s *model.Stage) int {
	return slices.IndexFunc(g.Candidates, func(l *Candidate) bool { return l.Stage == s })
}

// ComesBefore reports whether a member is this stage, or precedes it in its queue.
func (g *GroupCandidate) ComesBefore(other *model.Element, q *model.ClusterQueue) bool {
	return slices.ContainsFunc(g.Candidates, func(l *Candidate) bool {
		return l.Queue == q && (l.Stage.Element == other || l.Stage.Element.Precedes(other))
	})
}

// fitsAtBest reports whether all members, including those that hold quota already, would fit together if nothing were charged.
func (ck *Checker) fitsAtBest(g *GroupCandidate) bool {
	var queuedDemands []model.QueuedDemand
	for _, l := range g.Candidates {
		queuedDemands = append(queuedDemands, model.QueuedDemand{Demand: l.Stage.Demand, Queue: l.Queue})
	}
	for _, s := range g.CoAdmissionGroup.Sorted(model.IsHolding) {
		queuedDemands = append(queuedDemands, model.QueuedDemand{Demand: s.Demand, Queue: s.Entry.ClusterQueue})
	}
	if f := &g.CoAdmissionGroup.Feasibility; f.Revision != ck.m.Schedule.Revision || !slices.Equal(f.QueuedDemands, queuedDemands) {
		*f = model.Feasibility{Revision: ck.m.Schedule.Revision, QueuedDemands: queuedDemands, Fits: ck.packAtBest(queuedDemands)}
	}
	return g.CoAdmissionGroup.Feasibility.Fits
}

func (ck *Checker) packAtBest(queuedDemands []model.QueuedDemand) bool {
	parts := make([]packing.Part, len(queuedDemands))
	for i, queuedDemand := range queuedDemands {
		parts[i] = packing.Part{Node: queuedDemand.Queue.Bare, Items: ck.m.Offer(queuedDemand.Demand, queuedDemand.Queue).Items}
	}
	return ck.m.SafetyTree.WhatIf(func() bool {
		var emptied []*quota.Node
		for _, queuedDemand := range queuedDemands {
			root := queuedDemand.Queue.Bare.Root()
			if slices.Contains(emptied, root) {
				continue
			}
			emptied = append(emptied, root)
			for _, c := range ck.m.Bank.ClaimsUnderRoot(queuedDemand.Queue.Bare) {
				c.Node.Release(c.Held)
			}
		}
		return packing.Fits(ck.m.SafetyTree, parts, nil)
	})
}

// pack selects a choice for each member with which all fit at once and which are accepted, and reports whether there are any. accepts may be nil. It is called
// while no member is charged.
func (ck *Checker) pack(g *GroupCandidate, accepts func() bool) bool {
	parts := make([]packing.Part, len(g.Candidates))
	for i, l := range g.Candidates {
		parts[i] = packing.Part{Node: l.Queue.Node, Items: l.Items, Preferred: l.Choice}
	}
	choose := func() {
		for i, l := range g.Candidates {
			l.choose(parts[i].Choice)
		}
	}
	fits := packing.Fits(ck.m.Tree, parts, func() bool {
		return accepts == nil || ck.m.Tree.WhatIf(func() bool {
			choose()
			for _, l := range g.Candidates {
				l.Queue.Node.Release(l.Usage)
			}
			return accepts()
		})
	})
	if !fits {
		for i := range parts {
			parts[i].Choice = parts[i].Preferred
		}
	}
	choose()
	return fits
}
