package check

import (
	"fmt"
	"slices"
	"strings"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/flavor"
	"github.com/tranche-dev/tranche/admission/internal/decision"
	"github.com/tranche-dev/tranche/admission/internal/model"
	"github.com/tranche-dev/tranche/admission/internal/settings"
	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/admission/safety"
)

// PeakFitsLimits refuses a JobSet that holds nothing, as at its first stage, if some later stage can never be admitted beside the stages that
// must hold quota then.
func PeakFitsLimits(ck *Checker, l *Candidate) *decision.Refusal {
	if !l.HasPlan() || l.Policy == settings.Greedy || l.JobSet.ClaimQueue != nil {
		return nil
	}
	finished := l.JobSet.Finished()
	if p := &l.JobSet.PeakCheck; p.Queue != l.Queue || p.Revision != ck.m.Schedule.Revision || !slices.Equal(p.Finished, finished) {
		*p = model.PeakCheck{Queue: l.Queue, Revision: ck.m.Schedule.Revision, Finished: finished, Refusal: ck.peakAboveLimits(l)}
	}
	return l.JobSet.PeakCheck.Refusal
}

// peakAboveLimits depends only on the rest of the plan and on the capacity of the ClusterQueue.
func (ck *Checker) peakAboveLimits(l *Candidate) *decision.Refusal {
	c := ck.m.Progress(l.JobSet, l.Queue)
	for s := range l.JobSet.Plan.Stages {
		hold := l.JobSet.PlanGraph.HoldOf(s, 0)
		if o := ck.m.Offer(l.JobSet.Stages[s], l.Queue); o.Infeasibility != nil && c.Items[hold] == nil && !c.Finished[hold] {
			refusal := LackRefusal(l.Queue, o.Infeasibility)
			advice := ""
			if o.Infeasibility.Oversized {
				advice = ck.largestWhole(l)
			}
			refusal.Message = fmt.Sprintf("stage %s could never be admitted%s: %s", l.JobSet.Plan.Stages[s].Name, inBrackets(advice), refusal.Message)
			return refusal
		}
	}
	peaks := c.PeaksToTheEnd()
	if slices.ContainsFunc(peaks, l.Queue.WithinCapacity) {
		return nil
	}
	message := "more than the quota"
	if len(peaks) > 0 {
		message = strings.Join(ck.AboveMost(l.Queue, peaks[0]), " and ")
	}
	return decision.NewRefusal(PeakWithinLimits, kueue.WorkloadQuotaReservedReasonExceedsMaxQuota,
		"the %s could never run to its end in ClusterQueue %s%s: stages that hold quota at the same time need up to %s%s",
		l.JobSet.Owner.Kind, l.Queue.Name, inBrackets(ck.largestWhole(l)), message, l.Overruled())
}

// stateStaysSafe selects the first choice that fits and that the stage-admission policy accepts.
func stateStaysSafe(ck *Checker, l *Candidate) *decision.Refusal {
	refusal := ck.Unsafe(l, l.Choice)
	if refusal == nil {
		return nil
	}
	for choice := range ck.fitting(l) {
		if !slices.Equal(choice, l.Choice) && ck.Unsafe(l, choice) == nil {
			l.choose(choice)
			return nil
		}
	}
	if ck.preemptsAtOnce(l) {
		return nil
	}
	l.Effect, l.awaitsQuota = BlocksOthers, true
	ck.WaitForOtherChoices(l)
	waitForBorrowers(ck, l) // for all that has to be free at once
	return refusal
}

// WaitForOtherChoices notes the amounts that must be free to make another choice of flavors, or other victims, possible.
func (ck *Checker) WaitForOtherChoices(l *Candidate) {
	for choice := range flavor.Choices(l.Items, flavor.MaxChoices) {
		for _, c := range choice.Usage(l.Items) {
			if c.Amount > l.Queue.Node.Available(c.ID) || l.Preempts() {
				l.WaitFor(c.ID, c.Amount)
			}
		}
	}
}

// Unsafe returns why the policy rejects a choice, or nil.
func (ck *Checker) Unsafe(l *Candidate, choice flavor.Choice) *decision.Refusal {
	if !l.HasPlan() || l.Policy == settings.Greedy {
		return nil
	}
	before := ck.m.Progress(l.JobSet, l.Queue)
	after := l.Admitted(before, choice)
	if len(after.Ahead()) == 0 {
		// The JobSet has nothing left to ask for: it will release its quota, and no other JobSet is worse off.
		return nil
	}
	if l.Policy == settings.Reserve {
		return ck.unreserved(l, before, after)
	}
	if refusal := ck.unfinishable(l, after, choice.Usage(l.Items)); refusal != nil {
		return refusal
	}
	return ck.startsAlone(l, before, after, choice.Usage(l.Items))
}

// Admitted returns the progress of the JobSet after the stage has been admitted with a choice.
func (l *Candidate) Admitted(before *safety.Progress, choice flavor.Choice) *safety.Progress {
	return before.With(l.JobSet.UsageByHold(l.Stage.Index, choice.Usage(l.Items), l.Parts(choice)))
}

// unfinishable refuses the stage if, after the admission, the JobSet could no longer finish. Then JobSets that wait for its quota might not
// either.
func (ck *Checker) unfinishable(l *Candidate, after *safety.Progress, usage quota.Usage) *decision.Refusal {
	heldUp := ck.m.Bank.Blocked(l.Claim(after), ck.Leavers(l))
	if len(heldUp) == 0 {
		return nil
	}
	l.waitForClaims(ck, heldUp)
	return ck.deadlock(l, heldUp, usage)
}

// Claim returns the claim of the JobSet after the admission.
func (l *Candidate) Claim(after *safety.Progress) *safety.Claim {
	return &safety.Claim{OwnerUID: l.JobSet.UID, Node: l.Queue.Bare, Held: after.HeldNow(), Peaks: after.Peaks()}
}

// Leavers returns the claims that an admission replaces: that of the JobSet itself, and those of its victims.
func (ck *Checker) Leavers(l *Candidate) []*safety.Claim {
	var leavers []*safety.Claim
	if l.JobSet.Claim != nil {
		leavers = append(leavers, l.JobSet.Claim)
	}
	for _, v := range l.Victims {
		if j := ck.m.JobSets[v.Holder.UID]; j != nil && j.Claim != nil && j != l.JobSet {
			leavers = append(leavers, j.Claim)
		}
	}
	return leavers
}

// waitForClaims parks the stage until one of these claims becomes smaller: all other JobSets can finish, and their actual progress cannot free
// more than that.
func (l *Candidate) waitForClaims(ck *Checker, heldUp []*safety.Claim) {
	const most = 8
	topics := []quota.ID{model.AnyClaim}
	if len(heldUp) <= most {
		topics = nil
		for _, c := range heldUp {
			if c.OwnerUID != l.JobSet.UID {
				topics = append(topics, ck.m.JobSets[c.OwnerUID].Topic)
			}
		}
	}
	for _, topic := range topics {
		l.wait(topic, 0)
	}
}

// deadlock returns a refusal that names the JobSets and gangs that would wait for each other.
func (ck *Checker) deadlock(l *Candidate, blocked []*safety.Claim, usage quota.Usage) *decision.Refusal {
	with := ""
	if others := ck.Others(l.JobSet.Owner, blocked); len(others) > 0 {
		with = " and " + strings.Join(others, ", ")
	}
	return decision.NewRefusal(StageUnsafe, kueue.WorkloadQuotaReservedReasonWaitingForQuota,
		"fits in ClusterQueue %s, but admitting it could deadlock this %s%s on quota for later stages: %s%s",
		l.Queue.Name, l.JobSet.Owner.Kind, with, ck.LeftFor(l.Queue, blocked, usage), l.Overruled())
}
