package report

import (
	"slices"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/internal/check"
	"github.com/tranche-dev/tranche/admission/internal/decision"
	"github.com/tranche-dev/tranche/admission/internal/model"
	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/admission/safety"
	"github.com/tranche-dev/tranche/apis/visibility"
)

// Explain returns why a stage is not admitted, as of now. It is empty for a stage that is charged or finished, that does not exist, or that only
// waits for the next call of Decide.
func (rp *Reporter) Explain(key decision.StageKey) []decision.Refusal {
	rp.m.RebuildTrees()
	s := rp.m.Stages[key]
	switch {
	case s == nil || s.Entry.Phase != model.Waiting && s.Entry.Phase != model.Ineligible:
		return nil
	case s.QueuedIn == nil:
		return []decision.Refusal{absenceOf(s)}
	}
	if refusal := rp.check.Check(rp.check.Candidate(s)); refusal != nil {
		return []decision.Refusal{*refusal}
	}
	return nil
}

// absenceOf returns why a stage that waits is not pending in a queue.
func absenceOf(s *model.Stage) decision.Refusal {
	switch {
	case s.Entry.Phase == model.Ineligible && s.ClosedBy == nil:
		return decision.Refusal{
			Check: "BackoffIsOver", Reason: kueue.WorkloadQuotaReservedReasonPendingEvaluation,
			Message: "may be admitted again from " + s.RequeueAt.UTC().Format(time.RFC3339) + " on (status.requeueState.requeueAt)",
		}
	case s.Entry.Phase == model.Ineligible:
		return decision.Refusal{Check: "IsOpen", Reason: s.ClosedBy.Reason, Message: s.ClosedBy.Text()}
	}
	return decision.Refusal{
		Check: "PlanIsKnown", Reason: kueue.WorkloadQuotaReservedReasonPendingEvaluation,
		Message: "the manager has not read the stage plan of its JobSet or gang yet",
	}
}

// Explanation returns the same as Explain, and the details: which limit of which node fails, and the holders of the missing quota. It reads all
// holders in the Cohort, so it is meant for queries of users, not for every refusal. ok is false for a stage that does not exist, that is
// charged, or that has finished.
func (rp *Reporter) Explanation(key decision.StageKey) (x visibility.Explanation, ok bool) {
	rp.m.RebuildTrees()
	s := rp.m.Stages[key]
	if s == nil || s.Entry.Phase != model.Waiting && s.Entry.Phase != model.Ineligible {
		return x, false
	}
	if s.QueuedIn == nil {
		return explanationOf(absenceOf(s)), true
	}
	l := rp.check.Candidate(s)
	if s.CoAdmissionGroup() != nil {
		if refusal := rp.check.Check(l); refusal != nil {
			x = explanationOf(*refusal)
			rp.elaborate(l, &x)
		}
		return x, true
	}
	rp.check.IgnoringOwnReservations(l, func() bool {
		switch refusal := rp.check.FirstRefusal(l); {
		case refusal != nil:
			check.NoteWithheld(rp.check, l, refusal)
			x = explanationOf(*refusal)
			rp.elaborate(l, &x)
		case l.Preempts():
			x = explanationOf(*rp.check.RoomIsMade(l))
			x.Alternatives = rp.alternatives(rp.shortageFinder(l, l.IsOnTheWayOut()), l.Usage)
		}
		return true
	})
	return x, true
}

func explanationOf(r decision.Refusal) visibility.Explanation {
	return visibility.Explanation{Check: r.Check, Reason: r.Reason, Message: r.Message}
}

// elaborate adds the details of a refusal.
func (rp *Reporter) elaborate(l *check.Candidate, x *visibility.Explanation) {
	switch x.Check {
	case decision.StrictFIFO:
		if blocker := l.Queue.PendingQueue.Blocker(l.Stage.Element); blocker != nil {
			x.Behind = &visibility.Reference{Namespace: blocker.Member.Key.Namespace, Name: blocker.Member.Key.Name}
		}
	case check.DelaysNone:
		if due := check.Delayed(rp.check, l); due != nil {
			x.Behind = &visibility.Reference{Namespace: due.Stage.Key.Namespace, Name: due.Stage.Key.Name}
		}
	case check.WithinLimits:
		supply := rp.m.Supply(l.Queue)
		supply.Most = func(quota.ID) quota.Amount { return quota.MaxAmount }
		items, _ := supply.Items(l.PodSets)
		x.Alternatives = rp.alternativesAtBest(l, check.Choices(items)...)
	case check.PeakWithinLimits:
		x.Alternatives = rp.alternativesAtBest(l, rp.m.Progress(l.JobSet, l.Queue).PeaksToTheEnd()...)
	case check.QuotaIsFree:
		x.Alternatives = rp.alternatives(rp.shortageFinder(l, anyStage), check.Choices(l.Items)...)
	case check.PeakFits, check.CoStartFits:
		x.Alternatives = rp.alternatives(rp.shortageFinder(l, anyStage), rp.check.NeededAtOnce(l)...)
	case check.StageUnsafe:
		rp.elaborateDeadlock(l, x)
	}
}

// elaborateDeadlock adds what the first of the JobSets in the deadlock still needs, if nothing were charged but what those JobSets hold.
func (rp *Reporter) elaborateDeadlock(l *check.Candidate, x *visibility.Explanation) {
	own, gone := l.Claim(l.Admitted(rp.m.Progress(l.JobSet, l.Queue), l.Choice)), rp.check.Leavers(l)
	blocked := rp.m.Bank.Blocked(own, gone)
	if len(blocked) == 0 {
		return
	}
	claims := slices.DeleteFunc(rp.m.Bank.ClaimsUnderRoot(l.Queue.Bare), func(c *safety.Claim) bool { return slices.Contains(gone, c) })
	claims = append(claims, own)
	rp.m.SafetyTree.WhatIf(func() bool {
		own.Node.Charge(own.Held)
		for _, c := range gone {
			c.Node.Release(c.Held)
		}
		var more []quota.Usage
		for _, peak := range blocked[0].Peaks {
			more = append(more, peak.Without(blocked[0].Held))
		}
		x.Alternatives = rp.alternatives(&shortageFinder{tree: rp.m.SafetyTree, node: blocked[0].Node, holdings: func(id quota.ID, under *quota.Node) []holding {
			return rp.claimed(claims, own, blocked[0], id, under)
		}}, more...)
		return true
	})
}

// alternativesAtBest is like alternatives, as if nothing were charged.
func (rp *Reporter) alternativesAtBest(l *check.Candidate, usages ...quota.Usage) []visibility.Alternative {
	var told []visibility.Alternative
	rp.m.SafetyTree.WhatIf(func() bool {
		for _, c := range rp.m.Bank.ClaimsUnderRoot(l.Queue.Bare) {
			c.Node.Release(c.Held)
		}
		told = rp.alternatives(&shortageFinder{tree: rp.m.SafetyTree, node: l.Queue.Bare}, usages...)
		return true
	})
	return told
}

// alternatives returns the shortages of some usages, in the given order, without duplicates.
func (rp *Reporter) alternatives(at *shortageFinder, usages ...quota.Usage) []visibility.Alternative {
	const most = 4
	var told []visibility.Alternative
	var short []quota.Usage
	for _, usage := range usages {
		lacks := slices.DeleteFunc(usage.Clone(), func(c quota.Charge) bool { return c.Amount <= at.node.Available(c.ID) })
		if len(lacks) == 0 || len(told) == most || slices.ContainsFunc(short, lacks.Equal) {
			continue
		}
		short = append(short, lacks)
		var a visibility.Alternative
		for fr, amount := range rp.m.Tree.Index.ByName(lacks) {
			a.Shortages = append(a.Shortages, at.shortage(fr, rp.m.Tree.Index.ID(fr), amount))
		}
		told = append(told, a)
	}
	return told
}
