package check

import (
	"fmt"
	"math"
	"slices"
	"strings"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/flavor"
	"github.com/tranche-dev/tranche/admission/internal/decision"
	"github.com/tranche-dev/tranche/admission/internal/model"
	"github.com/tranche-dev/tranche/admission/internal/queuespec"
	"github.com/tranche-dev/tranche/admission/internal/settings"
	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/queue"
)

// quotaFits chooses flavors with quota that is free now, or will be when victims have left: the flavors that flavorFungibility prefers, or if
// these do not fit together, the first that do.
func quotaFits(ck *Checker, l *Candidate) *decision.Refusal {
	if l.Choice != nil {
		// A part fits now, and more than that part exceeds the capacity.
		return nil
	}
	refusal, mayPreempt := ck.fitsByPreemption(l)
	switch {
	case refusal == nil && mayPreempt:
		return nil
	case ck.chooseWhatFits(l), ck.fitsInPart(l):
		l.Victims, l.awaits = nil, false
		return nil
	case refusal == nil:
		refusal = ck.short(l, l.whyNothingIsReclaimed())
	}
	return refusal
}

// fitsByPreemption makes the choice where the flavor walk counts on preemption. Without a refusal, ok is true if there is a choice.
func (ck *Checker) fitsByPreemption(l *Candidate) (refusal *decision.Refusal, ok bool) {
	if !l.Queue.MayPreempt() || l.Stage.CoAdmissionGroup() != nil {
		return nil, false
	}
	l.Choice = make(flavor.Choice, len(l.Items))
	walk := flavor.Walk{Node: l.Queue.Node, Fungibility: l.Queue.Fungibility, Preemption: ck.preemptionOracle(l)}
	verdict := walk.Choose(l.Items, l.Choice)
	l.Usage, l.Level = l.Choice.Usage(l.Items), verdict.Level
	if verdict.Mode == flavor.Fit {
		return nil, true
	}
	preferred := slices.Clone(l.Choice)
	if len(l.Items) > 1 && (ck.chooseWhatFits(l) || ck.chooseWhatIsReleased(l)) {
		return nil, true
	}
	if verdict.Mode > flavor.NoCandidates {
		l.Choice, l.Usage, l.Level = preferred, preferred.Usage(l.Items), verdict.Level
		if refusal = ck.preempts(l); refusal == nil {
			return nil, true
		}
	}
	if ck.chooseVictims(l) {
		return nil, true
	}
	l.Choice = nil
	return refusal, false
}

// short returns the refusal that lists the missing quota, and why no stage is preempted for it.
func (ck *Checker) short(l *Candidate, whyNobody string) *decision.Refusal {
	l.Effect, l.awaitsQuota = BlocksOthers, true
	if l.waitsForLater() {
		l.Effect = WaitsForChange
	}
	message := fmt.Sprintf("waits for quota in ClusterQueue %s: needs %s", l.Queue.Name, strings.Join(ck.shortages(l), ", or "))
	ck.waitForPart(l)
	waitForBorrowers(ck, l)
	l.suspectDeadlock()
	if refusal := ck.deadlockRefusal(l); refusal != nil {
		return refusal
	}
	if whyNobody != "" && l.RetryAt.IsZero() {
		message += "; preemption: " + whyNobody
	}
	return &decision.Refusal{Check: QuotaIsFree, Reason: kueue.WorkloadQuotaReservedReasonWaitingForQuota, Message: message}
}

// waitForBorrowers makes a stage that may reclaim quota wait until others borrow more. Only a ClusterQueue that borrows yields, and with fair sharing only one
// whose share is high enough: that of the stage's own ClusterQueue decreases when it borrows less of anything. Otherwise only what is missing decides the right to
// reclaim, and the stage waits for that anyway.
func waitForBorrowers(ck *Checker, l *Candidate) {
	node := l.Queue.Node
	if !queuespec.AllowsPreemption(l.Queue.Preemption.ReclaimWithinCohort) || node.Parent() == nil {
		return
	}
	l.wait(model.OthersBorrow, 0)
	if !ck.m.Config.FairSharing {
		return
	}
	for id := range quota.ID(ck.m.Tree.Index.Len()) { //nolint:gosec // there are few
		for n := node; n.Parent() != nil; n = n.Parent() {
			if n.Borrows(id, 0) { // part of its share
				l.wait(id, anyNews)
				break
			}
		}
	}
}

// chooseWhatFits chooses flavors for the items with quota that is free now, if there are any.
func (ck *Checker) chooseWhatFits(l *Candidate) bool {
	l.Choice = make(flavor.Choice, len(l.Items))
	walk := flavor.Walk{Node: l.Queue.Node, Fungibility: l.Queue.Fungibility}
	if verdict := walk.Choose(l.Items, l.Choice); verdict.Mode == flavor.Fit {
		l.Usage, l.Level = l.Choice.Usage(l.Items), verdict.Level
		return true
	}
	if len(l.Items) > 1 {
		for choice := range ck.fitting(l) {
			l.choose(choice)
			return true
		}
	}
	l.Choice = nil
	return false
}

// choose takes one of the combinations of flavors.
func (l *Candidate) choose(choice flavor.Choice) {
	l.Choice = slices.Clone(choice)
	l.Usage = choice.Usage(l.Items)
	l.Level = l.Queue.Node.LevelOf(l.Usage)
}

// fitting yields the combinations of flavors with quota that is free now. The caller must not keep them.
func (ck *Checker) fitting(l *Candidate) func(func(flavor.Choice) bool) {
	return func(yield func(flavor.Choice) bool) {
		for choice := range flavor.Choices(l.Items, flavor.MaxChoices) {
			if l.Queue.Node.Fits(choice.Usage(l.Items)) && !yield(choice) {
				return
			}
		}
	}
}

// shortages returns the missing quota of each combination of flavors, and notes the amounts to wait for.
func (ck *Checker) shortages(l *Candidate) []string {
	const most = 4
	var short []string
	for choice := range flavor.Choices(l.Items, flavor.MaxChoices) {
		lacks := ck.Lacks(l, choice.Usage(l.Items))
		if text := strings.Join(lacks, " and "); !slices.Contains(short, text) {
			short = append(short, text)
		}
	}
	if len(short) > most {
		short = append(short[:most], "or one of the other combinations of flavors")
	}
	return short
}

// Lacks returns the missing quota of a usage, and notes the amounts to wait for.
func (ck *Checker) Lacks(l *Candidate, usage quota.Usage) []string {
	if l.Queue.Node.Fits(usage) {
		return nil
	}
	var lacks []string
	for fr, a := range ck.m.Tree.Index.ByName(usage) {
		id := ck.m.Tree.Index.ID(fr)
		free := l.Queue.Node.Available(id)
		if a <= free {
			continue
		}
		l.WaitFor(id, a)
		text := fmt.Sprintf("%s %s of flavor %s: %s of %s free", a.Format(fr.Resource), fr.Resource, fr.Flavor,
			max(free, 0).Format(fr.Resource), l.Queue.Node.Capacity(id).Format(fr.Resource))
		if kept := l.Queue.AdvanceReserved.Of(id) - l.JobSet.PeakReservedIn(l.Queue).Of(id) + l.reservedForOthers(id); kept > 0 {
			text += fmt.Sprintf(" (%s reserved for other stages)", kept.Format(fr.Resource))
		}
		lacks = append(lacks, text)
	}
	return lacks
}

// reservedForOthers returns the amount that is reserved for preemptors of its ClusterQueue that a stage has to wait for.
func (l *Candidate) reservedForOthers(id quota.ID) quota.Amount {
	var reserved quota.Amount
	for s := range l.Queue.Preemptors {
		if s != l.Stage && s.IsReservedAgainst(l.Stage) {
			reserved = reserved.Plus(s.PreemptReserved.Of(id))
		}
	}
	return reserved
}

// anyNews is the amount to wait for where any change may help. It is less than any available amount, however far that is below 0: charges and
// reservations together may exceed the quota.
const anyNews = math.MinInt64

// WaitFor notes an amount that must be available before the stage is worth another check.
func (l *Candidate) WaitFor(id quota.ID, amount quota.Amount) {
	need := int64(amount)
	if l.awaitsAnyNews() {
		need = anyNews
	}
	l.wait(id, need)
}

// awaitsAnyNews reports whether the available amount does not show what a stage could use: the peak reservation of its JobSet, or the reservation of the stage,
// is not in it; a part of the stage may need less; the holders of the rest may be preempted; and under policy Reserve peaks of others yield although this
// one borrows, if its usage does not.
func (l *Candidate) awaitsAnyNews() bool {
	return l.Policy == settings.Reserve && l.HasPlan() || len(l.JobSet.PeakReservedIn(l.Queue)) > 0 || spare(l.PodSets) > 0 || l.Queue.MayPreempt() || l.Queue.MayReserveNominal() || l.IsDue
}

// wait notes the amount of a topic that makes another check worthwhile. The least amount counts.
func (l *Candidate) wait(topic quota.ID, need int64) {
	for i := range l.Waits {
		if l.Waits[i].Topic == topic {
			l.Waits[i].Need = min(l.Waits[i].Need, need)
			return
		}
	}
	l.Waits = append(l.Waits, queue.Wait[quota.ID]{Topic: topic, Need: need})
}

// AlsoAwait makes a candidate wait for all that another one waits for.
func (l *Candidate) AlsoAwait(other *Candidate) {
	for _, w := range other.Waits {
		l.wait(w.Topic, w.Need)
	}
	l.retryAt(other.RetryAt)
}

// IgnoringOwnReservations returns the result of f as if some reservations were released: the peak reservation of the stage's own JobSet; the
// preemption reservations of the stage itself, of those behind it in its queue, and of those that yield to it; and the peak reservations of other
// JobSets that yield to it.
func (ck *Checker) IgnoringOwnReservations(l *Candidate, f func() bool) bool {
	kept := l.JobSet.PeakReservedIn(l.Queue)
	behind := ck.PreemptorsBehind(l)
	if l.Stage.PreemptQueue == l.Queue {
		behind = append(behind, l.Stage)
	}
	if len(kept) == 0 && len(behind) == 0 && len(l.Reservers) == 0 {
		return f()
	}
	return ck.m.Tree.WhatIf(func() bool {
		l.Queue.Node.Release(kept)
		for _, s := range behind {
			s.PreemptQueue.Node.Unreserve(s.PreemptReserved)
		}
		for _, j := range l.Reservers {
			if len(j.PeakReserved) > 0 { // victims have no peak reservation
				j.ClaimQueue.Node.Release(j.PeakReserved)
			}
		}
		return f()
	})
}
