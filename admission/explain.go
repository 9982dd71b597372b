package admission

import (
	"fmt"
	"slices"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/flavor"
	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/admission/safety"
	"github.com/tranche-dev/tranche/apis/visibility"
)

// Explain returns why a stage is not admitted, as of now. It is empty for a stage that is charged or finished, that does not exist, or that only
// waits for the next call of Decide.
func (e *Engine) Explain(key StageKey) []Refusal {
	e.rebuildTrees()
	s := e.stages[key]
	switch {
	case s == nil || s.entry.phase != waiting && s.entry.phase != ineligible:
		return nil
	case s.queuedIn == nil:
		return []Refusal{s.absence()}
	}
	if refusal := e.check(e.candidate(s)); refusal != nil {
		return []Refusal{*refusal}
	}
	return nil
}

// absence returns why a stage that waits is not pending in a queue.
func (s *stage) absence() Refusal {
	switch {
	case s.entry.phase == ineligible && s.closed == "":
		return Refusal{
			Check: "BackoffIsOver", Reason: kueue.WorkloadQuotaReservedReasonPendingEvaluation,
			Message: "may be admitted again from " + s.requeueAt.UTC().Format(time.RFC3339) + " on (status.requeueState.requeueAt)",
		}
	case s.entry.phase == ineligible:
		return Refusal{Check: "IsOpen", Reason: kueue.WorkloadAdmissionGated, Message: s.closed}
	}
	return Refusal{
		Check: "PlanIsKnown", Reason: kueue.WorkloadQuotaReservedReasonPendingEvaluation,
		Message: "the stage plan of its JobSet has not been seen yet",
	}
}

// Explanation returns the same as Explain, and the details: which limit of which node fails, and the holders of the missing quota. It reads all
// holders in the Cohort, so it is meant for queries of users, not for every refusal. ok is false for a stage that does not exist, that is
// charged, or that has finished.
func (e *Engine) Explanation(key StageKey) (x visibility.Explanation, ok bool) {
	e.rebuildTrees()
	s := e.stages[key]
	if s == nil || s.entry.phase != waiting && s.entry.phase != ineligible {
		return x, false
	}
	if s.queuedIn == nil {
		return explanationOf(s.absence()), true
	}
	l := e.candidate(s)
	if s.coAdmissionGroup() != nil {
		if refusal := e.check(l); refusal != nil {
			x = explanationOf(*refusal)
			e.elaborate(l, &x)
		}
		return x, true
	}
	e.ignoringOwnReservations(l, func() *Refusal {
		switch refusal := e.firstRefusal(l); {
		case refusal != nil:
			x = explanationOf(*refusal)
			e.elaborate(l, &x)
		case l.preempts():
			x = explanationOf(roomIsMade(l))
			x.Alternatives = e.alternatives(e.shortageFinder(l, l.isOnTheWayOut()), l.usage)
		}
		return nil
	})
	return x, true
}

func explanationOf(r Refusal) visibility.Explanation {
	return visibility.Explanation{Check: r.Check, Reason: r.Reason, Message: r.Message}
}

// The checks that are explained further.
const (
	withinLimits     = "WithinLimits"
	peakWithinLimits = "PeakWithinLimits"
	quotaIsFree      = "QuotaFits"
	peakFits         = "PeakFits"
	stageUnsafe      = "StageUnsafe"
)

// elaborate adds the details of a refusal.
func (e *Engine) elaborate(l *candidate, x *visibility.Explanation) {
	switch x.Check {
	case strictFIFO:
		if blocker := l.q.pendingQueue.Blocker(l.s.element); blocker != nil {
			x.Behind = &visibility.Reference{Namespace: blocker.Member.key.Namespace, Name: blocker.Member.key.Name}
		}
	case withinLimits:
		supply := e.supply(l.q)
		supply.Most = func(quota.ID) quota.Amount { return quota.MaxAmount }
		items, _ := supply.Items(l.podSets)
		x.Alternatives = e.alternativesAtBest(l, choices(items)...)
	case peakWithinLimits:
		x.Alternatives = e.alternativesAtBest(l, e.progress(l.j, l.q).PeaksToTheEnd()...)
	case quotaIsFree:
		x.Alternatives = e.alternatives(e.shortageFinder(l, everybody), choices(l.items)...)
	case peakFits:
		before := e.progress(l.j, l.q)
		var more []quota.Usage
		for _, peak := range l.admitted(before, l.choice).Peaks() {
			more = append(more, peak.Without(before.HeldNow()))
		}
		x.Alternatives = e.alternatives(e.shortageFinder(l, everybody), more...)
	case stageUnsafe:
		e.elaborateDeadlock(l, x)
	}
}

// choices returns the usages of the first combinations of flavors.
func choices(items []flavor.Item) []quota.Usage {
	var usages []quota.Usage
	for choice := range flavor.Choices(items, flavor.MaxChoices) {
		usages = append(usages, choice.Usage(items))
	}
	return usages
}

// elaborateDeadlock adds what the first of the JobSets in the deadlock still needs, if nothing were charged but what those JobSets hold.
func (e *Engine) elaborateDeadlock(l *candidate, x *visibility.Explanation) {
	own, gone := l.claim(l.admitted(e.progress(l.j, l.q), l.choice)), e.leavers(l)
	blocked := e.bank.Blocked(own, gone)
	if len(blocked) == 0 {
		return
	}
	claims := slices.DeleteFunc(e.bank.ClaimsUnderRoot(l.q.bare), func(c *safety.Claim) bool { return slices.Contains(gone, c) })
	claims = append(claims, own)
	e.safetyTree.WhatIf(func() bool {
		own.Node.Charge(own.Held)
		for _, c := range gone {
			c.Node.Release(c.Held)
		}
		var more []quota.Usage
		for _, peak := range blocked[0].Peaks {
			more = append(more, peak.Without(blocked[0].Held))
		}
		x.Alternatives = e.alternatives(&shortageFinder{tree: e.safetyTree, node: blocked[0].Node, holdings: func(id quota.ID, under *quota.Node) []holding {
			return claimed(claims, own, blocked[0], id, under)
		}}, more...)
		return true
	})
}

// alternativesAtBest is like alternatives, as if nothing were charged.
func (e *Engine) alternativesAtBest(l *candidate, usages ...quota.Usage) []visibility.Alternative {
	var told []visibility.Alternative
	e.safetyTree.WhatIf(func() bool {
		for _, c := range e.bank.ClaimsUnderRoot(l.q.bare) {
			c.Node.Release(c.Held)
		}
		told = e.alternatives(&shortageFinder{tree: e.safetyTree, node: l.q.bare}, usages...)
		return true
	})
	return told
}

// alternatives returns the shortages of some usages, in the given order, without duplicates.
func (e *Engine) alternatives(at *shortageFinder, usages ...quota.Usage) []visibility.Alternative {
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
		for fr, amount := range e.tree.Index.ByName(lacks) {
			a.Shortages = append(a.Shortages, at.shortage(fr, e.tree.Index.ID(fr), amount))
		}
		told = append(told, a)
	}
	return told
}

// roomIsMade refuses a stage that waits for its victims to leave.
func roomIsMade(l *candidate) Refusal {
	return Refusal{
		Check: "RoomIsMade", Reason: kueue.WorkloadQuotaReservedReasonWaitingForPreemptedWorkloads,
		Message: fmt.Sprintf("waits until the pods of stages that are preempted for it in ClusterQueue %s have ended", l.q.name),
	}
}
