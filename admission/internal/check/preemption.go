package check

import (
	"fmt"
	"slices"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/flavor"
	"github.com/tranche-dev/tranche/admission/internal/decision"
	"github.com/tranche-dev/tranche/admission/internal/level"
	"github.com/tranche-dev/tranche/admission/internal/model"
	"github.com/tranche-dev/tranche/admission/preempt"
	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/queue"
)

// preemptionOracle returns a function that reports to the flavor walk how an amount that is not free could be obtained.
func (ck *Checker) preemptionOracle(l *Candidate) func(quota.ID, quota.Amount) flavor.Verdict {
	if !l.Queue.MayPreempt() {
		return nil
	}
	return func(id quota.ID, amount quota.Amount) flavor.Verdict {
		result := ck.find(l, quota.Usage{{ID: id, Amount: amount}})
		switch result.Outcome {
		case preempt.Found, preempt.EvictionsPending, preempt.Fits:
		case preempt.TooLarge, preempt.NeedsBorrowing:
			return flavor.Verdict{Mode: flavor.NoFit}
		case preempt.NoCandidates, preempt.NotEnough, preempt.PeakTooLarge:
			return flavor.Verdict{Mode: flavor.NoCandidates, Level: l.Queue.Node.Level(id, amount)}
		}
		v := flavor.Verdict{Mode: flavor.Reclaim}
		if slices.ContainsFunc(result.Victims, func(victim preempt.Victim) bool { return victim.Reason == kueue.InClusterQueueReason }) {
			v.Mode = flavor.Preempt
		}
		// Stages that are already being evicted do not count either: a check that is repeated while its victims leave must return the same
		// answer.
		ck.m.Tree.WhatIfEvicted(func() bool {
			for _, victim := range result.Victims {
				model.EvictionUnitOf(victim.Holder).Queue.Node.Release(victim.Holder.Usage)
			}
			v.Level = l.Queue.Node.Level(id, amount)
			return true
		})
		return v
	}
}

// find searches for victims. For a stage that asks for one resource, the flavor walk asks the same question first; it is searched once.
func (ck *Checker) find(l *Candidate, usage quota.Usage) preempt.Result {
	if l.searched == nil || !l.searched.usage.Equal(usage) {
		l.searched = &search{usage, ck.m.Finder.Find(ck.request(l, usage))}
		l.retryAt(l.searched.result.RetryAt)
		if l.searched.result.Outcome == preempt.PeakTooLarge {
			l.waitForPeaks(ck.peaksWith(l, usage))
		}
		if l.searched.result.IsByShares {
			for id := range quota.ID(ck.m.Tree.Index.Len()) { //nolint:gosec // there are few
				l.wait(id, anyNews)
			}
		}
	}
	return l.searched.result
}

// waitForPeaks makes a stage wait for all that its JobSet may come to hold, which may be of other resources than those that the stage lacks.
func (l *Candidate) waitForPeaks(peaks []quota.Usage) {
	for _, peak := range peaks {
		for _, c := range peak {
			l.WaitFor(c.ID, c.Amount)
		}
	}
}

// retryAt notes when other stages may be preempted that have not run for their minimum runtime, if they are among the first.
func (l *Candidate) retryAt(at time.Time) {
	if !at.IsZero() && (l.RetryAt.IsZero() || at.Before(l.RetryAt)) {
		l.RetryAt = at
	}
}

// whyNothingIsReclaimed returns the reason for a stage whose JobSet may hold more at once than could be reclaimed, or nothing.
func (l *Candidate) whyNothingIsReclaimed() string {
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

func (ck *Checker) request(l *Candidate, usage quota.Usage) preempt.Request {
	p := l.Stage.Element.Position
	r := preempt.Request{Queue: l.Queue.Holders, UID: l.Stage.UID, Priority: int64(p.Priority), Queued: p.Since, Continues: p.Standing == queue.Continuing, Usage: usage, JobSet: l.Stage.OwnerUID, Now: ck.m.Now}
	if l.Queue.Holders.Level != nil {
		r.Precedes = func(h *preempt.Holder) bool { return level.Precedes(ck.m, l.Stage.LocalQueue, h) }
	}
	if l.HasPlan() && !l.Stage.IsGrowth {
		r.Peaks = func() []quota.Usage { return ck.peaksWith(l, usage) }
	}
	return r
}

// peaksWith returns the amounts that the JobSet of a stage may come to hold in addition, before it releases anything, once the stage is admitted
// with some usage. There are none if no stage would wait for quota then.
func (ck *Checker) peaksWith(l *Candidate, usage quota.Usage) []quota.Usage {
	before := ck.m.Progress(l.JobSet, l.Queue)
	var parts []model.PodSetCharge
	if l.Choice != nil && usage.Equal(l.Usage) {
		parts = l.Parts(l.Choice)
	}
	after := before.With(l.JobSet.UsageByHold(l.Stage.Index, usage, parts))
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

// preempts searches for victims for the chosen flavors, and refuses the stage if there are not enough.
func (ck *Checker) preempts(l *Candidate) *decision.Refusal {
	result := ck.find(l, l.Usage)
	switch {
	case result.Outcome == preempt.EvictionsPending:
		l.awaits = true
	case result.Outcome == preempt.Found && l.isOwn(result.Victims):
		return ck.short(l, fmt.Sprintf("only its own %s could be preempted", l.JobSet.Owner.Kind))
	case result.Outcome == preempt.Found && ck.isOutOfTurn(l, result.Victims):
		return ck.short(l, "fair sharing evicts for one stage at a time, and another stage comes first")
	case result.Outcome == preempt.Found:
		l.Victims = result.Victims
	default:
		return ck.short(l, result.Outcome.String())
	}
	return nil
}

// chooseWhatIsReleased chooses the first combination of flavors that fits when all stages that are being evicted have left. So a stage with several
// pod sets evicts no more stages while it waits for its victims.
func (ck *Checker) chooseWhatIsReleased(l *Candidate) bool {
	l.awaits = ck.m.Tree.WhatIfEvicted(func() bool {
		for choice := range ck.fitting(l) {
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
func (ck *Checker) chooseVictims(l *Candidate) bool {
	if len(l.Items) < 2 {
		return false
	}
	last := l.searched
	for choice := range flavor.Choices(l.Items, flavor.MaxChoices) {
		l.choose(choice)
		result := ck.find(l, l.Usage)
		if result.Outcome == preempt.Found && !l.isOwn(result.Victims) && !ck.isOutOfTurn(l, result.Victims) {
			l.Victims = result.Victims
			return true
		}
	}
	l.searched = last
	return false
}

// isOwn reports whether a stage would evict its own JobSet.
func (l *Candidate) isOwn(victims []preempt.Victim) bool {
	return slices.ContainsFunc(victims, func(v preempt.Victim) bool { return v.Holder.UID == l.Stage.OwnerUID })
}
