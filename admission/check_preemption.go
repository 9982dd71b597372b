package admission

import (
	"fmt"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/flavor"
	"github.com/tranche-dev/tranche/admission/preempt"
	"github.com/tranche-dev/tranche/admission/quota"
)

func allowsPreemption(policy kueue.PreemptionPolicy) bool {
	return policy != "" && policy != kueue.PreemptionPolicyNever
}

// mayPreempt reports whether the policies of a ClusterQueue let its stages preempt others.
func (q *clusterQueue) mayPreempt() bool {
	return allowsPreemption(q.preemption.WithinClusterQueue) || allowsPreemption(q.preemption.ReclaimWithinCohort)
}

// preemptionOracle tells the flavor walk how an amount that is not free could be had.
func (e *Engine) preemptionOracle(l *look) func(quota.ID, quota.Amount) flavor.Verdict {
	if !l.q.mayPreempt() {
		return nil
	}
	return func(id quota.ID, amount quota.Amount) flavor.Verdict {
		result := e.find(l, quota.Usage{{ID: id, Amount: amount}})
		switch result.Outcome {
		case preempt.Found, preempt.Awaits, preempt.Fits:
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
		// Who is on the way out already does not count either: whoever looks again while its victims leave must come to the same answer.
		e.tree.Later(func() bool {
			for _, victim := range result.Victims {
				tenureOf(victim.Holder).queue.node.Release(victim.Holder.Usage)
			}
			v.Level = l.q.node.Level(id, amount)
			return true
		})
		return v
	}
}

// find searches for victims. A stage that asks for one resource only asks for it twice, first as the flavor walk does.
func (e *Engine) find(l *look, usage quota.Usage) preempt.Result {
	if l.searched == nil || !l.searched.usage.Equal(usage) {
		l.searched = &search{usage, e.finder.Find(e.request(l, usage))}
	}
	return l.searched.result
}

// whyNothingIsReclaimed says so of a stage whose JobSet may hold more at once than could be reclaimed.
func (l *look) whyNothingIsReclaimed() string {
	if l.searched == nil || l.searched.result.Outcome != preempt.PeakTooLarge {
		return ""
	}
	return l.searched.result.Outcome.String()
}

// A search is the last question to the Finder.
type search struct {
	usage  quota.Usage
	result preempt.Result
}

func (e *Engine) request(l *look, usage quota.Usage) preempt.Request {
	p := l.s.ticket.Position
	r := preempt.Request{Queue: l.q.holders, UID: l.s.uid, Priority: int64(p.Priority), Queued: p.Since, Usage: usage, JobSet: l.s.owner}
	if l.hasPlan() && !l.s.isGrowth {
		r.Peaks = func() []quota.Usage { return e.peaksWith(l, usage) }
	}
	return r
}

// peaksWith returns what the JobSet of a stage may come to hold on top, before it gives anything back, once the stage is admitted with some usage.
// There are none if no stage would wait for quota then.
func (e *Engine) peaksWith(l *look, usage quota.Usage) []quota.Usage {
	before := e.course(l.j, l.q)
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

// tenureOf returns the tenure, of a JobSet or of a stage without one, that made a Holder. It may know another one now.
func tenureOf(h *preempt.Holder) *tenure {
	return h.Of.(*tenure) //nolint:forcetypeassert // nobody else makes Holders
}

// preempts finds out who has to leave for the flavors that have been chosen, and refuses if that cannot be.
func (e *Engine) preempts(l *look) *Refusal {
	result := e.find(l, l.usage)
	switch {
	case result.Outcome == preempt.Awaits:
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

// isOwn tells whether a stage would evict its own JobSet.
func (e *Engine) isOwn(l *look, victims []preempt.Victim) bool {
	for _, v := range victims {
		if v.Holder.UID == l.s.owner {
			return true
		}
	}
	return false
}

// stillHelps tells whether victims of the stage's own ClusterQueue, which nobody else may take, are still there and enough.
func (e *Engine) stillHelps(l *look) bool {
	for _, v := range l.victims {
		if v.Reason != kueue.InClusterQueueReason || tenureOf(v.Holder).holder != v.Holder || v.Holder.IsEvicting() {
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

// makeRoom evicts those who have to leave, and pledges what a stage needs to it, so that nobody else takes what they give back.
//
// Who gave its pledge up in the same pass, because another took what it counted on, gets no new one for what is on its way out
// anyway: two could take turns at that for ever. It is looked at again when somebody has left.
func (e *Engine) makeRoom(l *look, decisions []Decision) []Decision {
	missing := e.list(e.missing(l))
	if len(l.victims) > 0 || l.s.gaveUp != e.passes {
		behind := e.pledgedBehind(l)
		e.pledge(l.s, l.q, l.usage)
		e.enqueue(l.s)
		e.dropPledges(behind)
		e.dropPeaks(l)
	}
	for _, v := range l.victims {
		message := fmt.Sprintf("preempted in ClusterQueue %s: %s", l.q.name, v.Reason)
		if from := tenureOf(v.Holder).queue; from != l.q {
			message += fmt.Sprintf(", reclaims %s from ClusterQueue %s", missing, from.name)
		}
		for _, s := range tenureOf(v.Holder).stages {
			if s.isLeaving() {
				continue
			}
			decisions = append(decisions, e.evict(s, Evict{
				Reason:  kueue.WorkloadEvictedByPreemption,
				Message: message,
				Preemption: &Preemption{
					Preemptor: l.s.key, PreemptorUID: l.s.uid, ClusterQueue: l.q.name, Reason: v.Reason,
					PreemptorPath: l.q.node.Path(), VictimPath: tenureOf(v.Holder).queue.node.Path(),
				},
			}))
			e.account(s)
		}
		e.repledged = append(e.repledged, tenureOf(v.Holder).queue)
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

// missing returns what a stage needs and is not free, and will not be when all have left that are being evicted already.
func (e *Engine) missing(l *look) quota.Usage {
	var missing quota.Usage
	e.asIfNothingWereKept(l, func() *Refusal {
		e.tree.Later(func() bool {
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

// fitsAlready tells whether there is quota for a stage although its victims have not left yet: what was kept for their later stages is free at
// once.
func (e *Engine) fitsAlready(l *look) bool {
	return e.asIfNothingWereKept(l, func() *Refusal {
		if !l.q.node.Fits(l.usage) {
			return &Refusal{}
		}
		return nil
	}) == nil
}

// lookAgain wakes everybody in a line, and all in its group who wait for others to leave.
func (e *Engine) lookAgain(q *clusterQueue) {
	if q == nil || e.isStale || q.group == nil {
		return
	}
	e.wakeLine(q)
	for _, other := range q.group.queues {
		if len(other.pledged) > 0 {
			e.wakeLine(other)
		}
	}
}
