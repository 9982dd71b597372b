package admission

import (
	"fmt"
	"math"
	"slices"
	"strings"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/flavor"
	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/queue"
)

// quotaFits chooses flavors with quota that is free now, or will be when victims have left: the flavors that flavorFungibility prefers, or if
// these do not fit together, the first that do.
func quotaFits(e *Engine, l *candidate) *Refusal {
	if l.choice != nil {
		// A part fits now, and more than that part exceeds the capacity.
		return nil
	}
	refusal, mayPreempt := e.fitsByPreemption(l)
	switch {
	case refusal == nil && mayPreempt:
		return nil
	case e.chooseWhatFits(l), e.fitsInPart(l):
		l.victims, l.awaits = nil, false
		return nil
	case refusal == nil:
		refusal = e.short(l, l.whyNothingIsReclaimed())
	}
	return refusal
}

// fitsByPreemption makes the choice where the flavor walk counts on preemption. Without a refusal, ok is true if there is a choice.
func (e *Engine) fitsByPreemption(l *candidate) (refusal *Refusal, ok bool) {
	if !l.q.mayPreempt() || l.s.coAdmissionGroup() != nil {
		return nil, false
	}
	l.choice = make(flavor.Choice, len(l.items))
	walk := flavor.Walk{Node: l.q.node, Fungibility: l.q.fungibility, Preemption: e.preemptionOracle(l)}
	verdict := walk.Choose(l.items, l.choice)
	l.usage, l.level = l.choice.Usage(l.items), verdict.Level
	if verdict.Mode == flavor.Fit {
		return nil, true
	}
	preferred := slices.Clone(l.choice)
	if len(l.items) > 1 && (e.chooseWhatFits(l) || e.chooseWhatIsReleased(l)) {
		return nil, true
	}
	if verdict.Mode > flavor.NoCandidates {
		l.choice, l.usage, l.level = preferred, preferred.Usage(l.items), verdict.Level
		if refusal = e.preempts(l); refusal == nil {
			return nil, true
		}
	}
	if e.chooseVictims(l) {
		return nil, true
	}
	l.choice = nil
	return refusal, false
}

// short returns the refusal that lists the missing quota, and why no stage is preempted for it.
func (e *Engine) short(l *candidate, whyNobody string) *Refusal {
	l.effect, l.isShort = holdsUpOthers, true
	message := fmt.Sprintf("waits for quota in ClusterQueue %s: needs %s", l.q.name, strings.Join(e.shortages(l), ", or "))
	e.waitForPart(l)
	e.suspectDeadlock(l)
	if refusal := e.deadlockRefusal(l); refusal != nil {
		return refusal
	}
	if whyNobody != "" {
		message += "; preemption: " + whyNobody
	}
	return &Refusal{Check: quotaIsFree, Reason: kueue.WorkloadQuotaReservedReasonWaitingForQuota, Message: message}
}

// chooseWhatFits chooses flavors for the items with quota that is free now, if there are any.
func (e *Engine) chooseWhatFits(l *candidate) bool {
	l.choice = make(flavor.Choice, len(l.items))
	walk := flavor.Walk{Node: l.q.node, Fungibility: l.q.fungibility}
	if verdict := walk.Choose(l.items, l.choice); verdict.Mode == flavor.Fit {
		l.usage, l.level = l.choice.Usage(l.items), verdict.Level
		return true
	}
	if len(l.items) > 1 {
		for choice := range e.fitting(l) {
			l.choose(choice)
			return true
		}
	}
	l.choice = nil
	return false
}

// choose takes one of the combinations of flavors.
func (l *candidate) choose(choice flavor.Choice) {
	l.choice = slices.Clone(choice)
	l.usage = choice.Usage(l.items)
	l.level = l.q.node.LevelOf(l.usage)
}

// fitting yields the combinations of flavors with quota that is free now. The caller must not keep them.
func (e *Engine) fitting(l *candidate) func(func(flavor.Choice) bool) {
	return func(yield func(flavor.Choice) bool) {
		for choice := range flavor.Choices(l.items, flavor.MaxChoices) {
			if l.q.node.Fits(choice.Usage(l.items)) && !yield(choice) {
				return
			}
		}
	}
}

// shortages returns the missing quota of each combination of flavors, and notes the amounts to wait for.
func (e *Engine) shortages(l *candidate) []string {
	const most = 4
	var short []string
	for choice := range flavor.Choices(l.items, flavor.MaxChoices) {
		lacks := e.lacks(l, choice.Usage(l.items))
		if text := strings.Join(lacks, " and "); !slices.Contains(short, text) {
			short = append(short, text)
		}
	}
	if len(short) > most {
		short = append(short[:most], "or one of the other combinations of flavors")
	}
	return short
}

// lacks returns the missing quota of a usage, and notes the amounts to wait for.
func (e *Engine) lacks(l *candidate, usage quota.Usage) []string {
	if l.q.node.Fits(usage) {
		return nil
	}
	var lacks []string
	for fr, a := range e.tree.Index.ByName(usage) {
		id := e.tree.Index.ID(fr)
		free := l.q.node.Available(id)
		if a <= free {
			continue
		}
		l.waitFor(id, a)
		text := fmt.Sprintf("%s %s of flavor %s: %s of %s free", a.Format(fr.Resource), fr.Resource, fr.Flavor,
			max(free, 0).Format(fr.Resource), l.q.node.Capacity(id).Format(fr.Resource))
		if kept := l.q.advanceReserved.Of(id) - l.j.keptIn(l.q).Of(id) + l.reservedForOthers(id); kept > 0 {
			text += fmt.Sprintf(" (%s kept for stages to come)", kept.Format(fr.Resource))
		}
		lacks = append(lacks, text)
	}
	return lacks
}

// reservedForOthers returns the amount that is reserved for preemptors of its ClusterQueue that precede a stage.
func (l *candidate) reservedForOthers(id quota.ID) quota.Amount {
	var reserved quota.Amount
	for s := range l.q.preemptors {
		if s != l.s && (s.element == nil || s.element.Precedes(l.s.element)) {
			reserved = reserved.Plus(s.preemptReserved.Of(id))
		}
	}
	return reserved
}

// anyNews is the amount to wait for where any change may help. It is less than any available amount, however far that is below 0: charges and
// reservations together may exceed the quota.
const anyNews = math.MinInt64

// waitFor notes an amount that must be available before the stage is worth another check.
func (l *candidate) waitFor(id quota.ID, amount quota.Amount) {
	for i := range l.waits {
		if l.waits[i].Topic == id {
			l.waits[i].Need = min(l.waits[i].Need, int64(amount))
			return
		}
	}
	need := int64(amount)
	if len(l.j.keptIn(l.q)) > 0 || spare(l.podSets) > 0 || l.q.mayPreempt() || l.q.mayKeepNominal() {
		// The peak reservation of the JobSet, or the reservation of the stage, itself does not show in the amount that is available to all; a
		// part of the stage may need less; and the holders of the rest may be preempted.
		need = anyNews
	}
	l.waits = append(l.waits, queue.Wait[quota.ID]{Topic: id, Need: need})
}

// keptIn returns the peak reservation of a JobSet, which may be nil, in a ClusterQueue.
func (j *jobSet) keptIn(q *clusterQueue) quota.Usage {
	if j == nil || j.keeper != q {
		return nil
	}
	return j.peakReserved
}

// ignoringOwnReservations runs f as if some reservations were released: the peak reservation of the stage's own JobSet; the preemption reservations
// of the stage itself, of those behind it in its queue, and of those that yield to it; and the peak reservations of other JobSets that yield to
// it.
func (e *Engine) ignoringOwnReservations(l *candidate, f func() *Refusal) *Refusal {
	kept := l.j.keptIn(l.q)
	behind := e.pledgedBehind(l)
	if l.s.preemptQueue == l.q {
		behind = append(behind, l.s)
	}
	if len(kept) == 0 && len(behind) == 0 && len(l.reservers) == 0 {
		return f()
	}
	var refusal *Refusal
	e.tree.WhatIf(func() bool {
		l.q.node.Release(kept)
		for _, s := range behind {
			s.preemptQueue.node.Unreserve(s.preemptReserved)
		}
		for _, j := range l.reservers {
			if j.keeper != nil { // victims have no peak reservation
				j.keeper.node.Release(j.peakReserved)
			}
		}
		refusal = f()
		return true
	})
	return refusal
}
