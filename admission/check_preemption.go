package admission

import (
	"fmt"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/flavor"
	"github.com/tranche-dev/tranche/admission/preempt"
	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/queue"
)

func allowsPreemption(policy kueue.PreemptionPolicy) bool {
	return policy != "" && policy != kueue.PreemptionPolicyNever
}

// mayPreempt reports whether the policies of a ClusterQueue let its stages preempt others.
func (q *queueSpec) mayPreempt() bool {
	return allowsPreemption(q.preemption.WithinClusterQueue) || allowsPreemption(q.preemption.ReclaimWithinCohort)
}

// preemptionOracle returns a function that reports to the flavor walk how an amount that is not free could be obtained.
func (e *Engine) preemptionOracle(l *candidate) func(quota.ID, quota.Amount) flavor.Verdict {
	if !l.q.mayPreempt() {
		return nil
	}
	return func(id quota.ID, amount quota.Amount) flavor.Verdict {
		result := e.find(l, quota.Usage{{ID: id, Amount: amount}})
		switch result.Outcome {
		case preempt.Found, preempt.EvictionsPending, preempt.Fits:
		case preempt.TooLarge, preempt.NeedsBorrowing:
			return flavor.Verdict{Mode: flavor.NoFit}
		case preempt.NoCandidates, preempt.NotEnough, preempt.PeakTooLarge:
			return flavor.Verdict{Mode: flavor.NoCandidates, Level: l.q.node.Level(id, amount)}
		}
		v := flavor.Verdict{Mode: flavor.Reclaim}
		for _, victim := range result.Victims {
			if victim.Reason == kueue.InClusterQueueReason {
				v.Mode = flavor.Preempt
			}
		}
		// Stages that are already being evicted do not count either: a check that is repeated while its victims leave must return the same
		// answer.
		e.tree.WhatIfEvicted(func() bool {
			for _, victim := range result.Victims {
				evictionUnitOf(victim.Holder).queue.node.Release(victim.Holder.Usage)
			}
			v.Level = l.q.node.Level(id, amount)
			return true
		})
		return v
	}
}

// find searches for victims. For a stage that asks for one resource, the flavor walk asks the same question first; it is searched once.
func (e *Engine) find(l *candidate, usage quota.Usage) preempt.Result {
	if l.searched == nil || !l.searched.usage.Equal(usage) {
		l.searched = &search{usage, e.finder.Find(e.request(l, usage))}
	}
	return l.searched.result
}

// whyNothingIsReclaimed returns the reason for a stage whose JobSet may hold more at once than could be reclaimed, or nothing.
func (l *candidate) whyNothingIsReclaimed() string {
	if l.searched == nil || l.searched.result.Outcome != preempt.PeakTooLarge {
		return ""
	}
	return l.searched.result.Outcome.String()
}

// A search is the last request to the Finder, with its result.
type search struct {
	usage  quota.Usage
	result preempt.Result
}

func (e *Engine) request(l *candidate, usage quota.Usage) preempt.Request {
	p := l.s.element.Position
	r := preempt.Request{Queue: l.q.holders, UID: l.s.uid, Priority: int64(p.Priority), Queued: p.Since, Continues: p.Standing == queue.Continuing, Usage: usage, JobSet: l.s.owner}
	if l.hasPlan() && !l.s.isGrowth {
		r.Peaks = func() []quota.Usage { return e.peaksWith(l, usage) }
	}
	return r
}

// peaksWith returns the amounts that the JobSet of a stage may come to hold in addition, before it releases anything, once the stage is admitted
// with some usage. There are none if no stage would wait for quota then.
func (e *Engine) peaksWith(l *candidate, usage quota.Usage) []quota.Usage {
	before := e.progress(l.j, l.q)
	var parts []podSetCharge
	if l.choice != nil && usage.Equal(l.usage) {
		parts = l.parts(l.choice)
	}
	after := before.With(l.j.usageByHold(l.s.index, usage, parts))
	if len(after.Ahead()) == 0 {
		return nil
	}
	held := before.HeldNow()
	var peaks []quota.Usage
	for _, peak := range after.Peaks() {
		peaks = append(peaks, peak.Without(held))
	}
	return peaks
}

// evictionUnitOf returns the eviction unit, of a JobSet or of a stage without one, that made a Holder. The unit may have another Holder now.
func evictionUnitOf(h *preempt.Holder) *evictionUnit {
	return h.Of.(*evictionUnit) //nolint:forcetypeassert // nothing else makes Holders
}

// preempts searches for victims for the chosen flavors, and refuses the stage if there are not enough.
func (e *Engine) preempts(l *candidate) *Refusal {
	result := e.find(l, l.usage)
	switch {
	case result.Outcome == preempt.EvictionsPending:
		l.awaits = true
	case result.Outcome == preempt.Found && e.isOwn(l, result.Victims):
		return e.short(l, "only its own JobSet could be preempted")
	case result.Outcome == preempt.Found && e.isOutOfTurn(l, result.Victims):
		return e.short(l, "fair sharing evicts for one stage after the other, and another one comes before it")
	case result.Outcome == preempt.Found:
		l.victims = result.Victims
	default:
		return e.short(l, result.Outcome.String())
	}
	return nil
}

// chooseWhatIsReleased chooses the first combination of flavors that fits when all stages that are being evicted have left. So a stage with several
// pod sets evicts no more stages while it waits for its victims.
func (e *Engine) chooseWhatIsReleased(l *candidate) bool {
	l.awaits = e.tree.WhatIfEvicted(func() bool {
		for choice := range e.fitting(l) {
			l.choose(choice)
			return true
		}
		return false
	})
	return l.awaits
}

// chooseVictims chooses the first combination of flavors for which there are victims. The flavor walk chooses for one pod set after the other, and
// prefers free quota to that of victims, so that it can miss all of these combinations. Since they count here, it makes no difference to a stage
// that waits whether quota is free or held by a stage that it may preempt: an admission of such a stage needs to wake no other.
func (e *Engine) chooseVictims(l *candidate) bool {
	if len(l.items) < 2 {
		return false
	}
	last := l.searched
	for choice := range flavor.Choices(l.items, flavor.MaxChoices) {
		l.choose(choice)
		result := e.find(l, l.usage)
		if result.Outcome == preempt.Found && !e.isOwn(l, result.Victims) && !e.isOutOfTurn(l, result.Victims) {
			l.victims = result.Victims
			return true
		}
	}
	l.searched = last
	return false
}

// isOwn reports whether a stage would evict its own JobSet.
func (e *Engine) isOwn(l *candidate, victims []preempt.Victim) bool {
	for _, v := range victims {
		if v.Holder.UID == l.s.owner {
			return true
		}
	}
	return false
}

// stillHelps reports whether the victims, all of the stage's own ClusterQueue, which no other stage may take, are still valid and enough.
func (e *Engine) stillHelps(l *candidate) bool {
	for _, v := range l.victims {
		if v.Reason != kueue.InClusterQueueReason || evictionUnitOf(v.Holder).holder != v.Holder || v.Holder.IsEvicting() {
			return false
		}
	}
	return len(l.victims) > 0 && e.tree.WhatIf(func() bool {
		for _, v := range l.victims {
			l.q.node.Release(v.Holder.Usage)
		}
		return l.q.node.Fits(l.usage)
	})
}

// makeRoom evicts the victims, and reserves the usage of the stage for it, so that no other stage takes the quota that they release.
//
// A stage that lost its reservation in the same cycle, because another stage took quota that it counted on, gets no new reservation for
// quota that is being released anyway: two stages could take turns at that forever. The stage is checked again when a victim has left.
func (e *Engine) makeRoom(l *candidate, decisions []Decision) []Decision {
	missing := e.list(e.missing(l))
	if len(l.victims) > 0 || l.s.gaveUp != e.cycles {
		behind, passesPeaks := e.pledgedBehind(l), l.s.passesPeaks || len(l.reservers) > 0
		e.reserveForPreemptor(l.s, l.q, l.usage)
		l.s.passesPeaks = passesPeaks
		e.enqueue(l.s)
		e.dropPreemptReservations(behind)
		e.dropPeaks(l)
	}
	for _, v := range l.victims {
		message := fmt.Sprintf("preempted in ClusterQueue %s: %s", l.q.name, v.Reason)
		if from := evictionUnitOf(v.Holder).queue; from != l.q {
			message += fmt.Sprintf(", reclaims %s from ClusterQueue %s", missing, from.name)
		}
		for _, s := range evictionUnitOf(v.Holder).stages {
			if s.isLeaving() {
				continue
			}
			decisions = append(decisions, e.evict(s, Evict{
				Reason:  kueue.WorkloadEvictedByPreemption,
				Message: message,
				Preemption: &Preemption{
					Preemptor: l.s.key, PreemptorUID: l.s.uid, ClusterQueue: l.q.name, Reason: v.Reason,
					PreemptorPath: l.q.node.Path(), VictimPath: evictionUnitOf(v.Holder).queue.node.Path(),
				},
			}))
			e.refresh(s)
		}
		e.changedReservations = append(e.changedReservations, evictionUnitOf(v.Holder).queue)
	}
	e.finder.History.Record(l.s.uid, l.victims)
	l.effect = holdsUpOthers
	l.waits = nil
	for _, c := range l.usage {
		l.waitFor(c.ID, 0)
	}
	e.waitForOtherChoices(l)
	refusal := roomIsMade(l)
	decisions = e.refuse(l, &refusal, decisions)
	if len(l.victims) > 0 && e.fitsAlready(l) {
		e.wakeLine(l.q)
	}
	return decisions
}

// missing returns the usage of a stage that is not free, and will not be when all stages that are already being evicted have left.
func (e *Engine) missing(l *candidate) quota.Usage {
	var missing quota.Usage
	e.ignoringOwnReservations(l, func() *Refusal {
		e.tree.WhatIfEvicted(func() bool {
			for _, c := range l.usage {
				if free := max(0, l.q.node.Available(c.ID)); c.Amount > free {
					missing.Add(c.ID, c.Amount.Minus(free))
				}
			}
			return true
		})
		return nil
	})
	return missing
}

// fitsAlready reports whether there is quota for a stage although its victims have not left yet: the peak reservations of its victims are
// released at once.
func (e *Engine) fitsAlready(l *candidate) bool {
	return e.ignoringOwnReservations(l, func() *Refusal {
		if !l.q.node.Fits(l.usage) {
			return &Refusal{}
		}
		return nil
	}) == nil
}

// candidateAgain wakes all pending stages of a ClusterQueue, and all in its cohort tree that wait for victims to leave.
func (e *Engine) candidateAgain(q *clusterQueue) {
	if q == nil || e.isStale || q.cohortTree == nil {
		return
	}
	e.wakeLine(q)
	for _, other := range q.cohortTree.queues {
		if len(other.preemptors) > 0 {
			e.wakeLine(other)
		}
	}
}
