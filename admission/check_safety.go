package admission

import (
	"fmt"
	"slices"
	"strings"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/flavor"
	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/admission/safety"
	"github.com/tranche-dev/tranche/queue"
)

// A peakCheck is the cached result of the peak check of a JobSet that holds nothing. It is valid while the queue, the limits and the set of
// finished stages stay the same.
type peakCheck struct {
	queue    *clusterQueue
	revision uint64
	finished []bool
	refusal  *Refusal
}

// peakFitsLimits refuses a JobSet that holds nothing, as at its first stage, if some later stage can never be admitted beside the stages that
// must hold quota then.
func peakFitsLimits(e *Engine, l *candidate) *Refusal {
	if !l.hasPlan() || l.policy == Greedy || l.j.claimQueue != nil {
		return nil
	}
	finished := l.j.finished()
	if p := &l.j.peakCheck; p.queue != l.q || p.revision != e.revision || !slices.Equal(p.finished, finished) {
		*p = peakCheck{l.q, e.revision, finished, e.peakAboveLimits(l)}
	}
	return l.j.peakCheck.refusal
}

// peakAboveLimits depends only on the rest of the plan and on the capacity of the ClusterQueue.
func (e *Engine) peakAboveLimits(l *candidate) *Refusal {
	c := e.progress(l.j, l.q)
	for s := range l.j.plan.Stages {
		hold := l.j.planGraph.HoldOf(s, 0)
		if o := e.offer(l.j.stages[s], l.q); o.infeasibility != nil && c.Items[hold] == nil && !c.Finished[hold] {
			refusal := lackRefusal(l.q, o.infeasibility)
			advice := ""
			if o.infeasibility.Oversized {
				advice = e.largestWhole(l)
			}
			refusal.Message = fmt.Sprintf("stage %s could never be admitted%s: %s", l.j.plan.Stages[s].Name, inBrackets(advice), refusal.Message)
			return refusal
		}
	}
	peaks := c.PeaksToTheEnd()
	if slices.ContainsFunc(peaks, l.q.withinCapacity) {
		return nil
	}
	message := "its stages hold more at once than there is"
	if len(peaks) > 0 {
		message = strings.Join(e.aboveMost(l.q, peaks[0]), " and ")
	}
	return &Refusal{
		Check: peakWithinLimits, Reason: kueue.WorkloadQuotaReservedReasonExceedsMaxQuota,
		Message: fmt.Sprintf("the JobSet could never run to its end in ClusterQueue %s%s: stages that hold quota at the same time need up to %s%s",
			l.q.name, inBrackets(e.largestWhole(l)), message, l.overruled()),
	}
}

// stateStaysSafe selects the first choice that fits and that the stage-admission policy accepts.
func stateStaysSafe(e *Engine, l *candidate) *Refusal {
	refusal := e.unsafe(l, l.choice)
	if refusal == nil {
		return nil
	}
	for choice := range e.fitting(l) {
		if !slices.Equal(choice, l.choice) && e.unsafe(l, choice) == nil {
			l.choose(choice)
			return nil
		}
	}
	l.effect = holdsUpOthers
	e.waitForOtherChoices(l)
	return refusal
}

// waitForOtherChoices notes the amounts that must be free to make another choice of flavors, or other victims, possible.
func (e *Engine) waitForOtherChoices(l *candidate) {
	for choice := range flavor.Choices(l.items, flavor.MaxChoices) {
		for _, c := range choice.Usage(l.items) {
			if c.Amount > l.q.node.Available(c.ID) || l.preempts() {
				l.waitFor(c.ID, c.Amount)
			}
		}
	}
}

// unsafe returns why the policy rejects a choice, or nil.
func (e *Engine) unsafe(l *candidate, choice flavor.Choice) *Refusal {
	if !l.hasPlan() || l.policy == Greedy {
		return nil
	}
	before := e.progress(l.j, l.q)
	after := l.admitted(before, choice)
	if len(after.Ahead()) == 0 {
		// The JobSet has nothing left to ask for: it will release its quota, and no other JobSet is worse off.
		return nil
	}
	if l.policy == Reserve {
		if refusal := e.unreserved(l, before, after); refusal != nil {
			l.waits = append(l.waits, queue.Wait[quota.ID]{Topic: anyClaim})
			return refusal
		}
		return nil
	}
	return e.unfinishable(l, after, choice.Usage(l.items))
}

// admitted returns the progress of the JobSet after the stage has been admitted with a choice.
func (l *candidate) admitted(before *safety.Progress, choice flavor.Choice) *safety.Progress {
	return before.With(l.j.usageByHold(l.s.index, choice.Usage(l.items), l.parts(choice)))
}

// unfinishable refuses the stage if, after the admission, the JobSet could no longer finish. Then JobSets that wait for its quota might not
// either.
func (e *Engine) unfinishable(l *candidate, after *safety.Progress, usage quota.Usage) *Refusal {
	heldUp := e.bank.Blocked(l.claim(after), e.leavers(l))
	if len(heldUp) == 0 {
		return nil
	}
	l.waitForClaims(e, heldUp)
	return e.deadlock(l, heldUp, usage)
}

// claim returns the claim of the JobSet after the admission.
func (l *candidate) claim(after *safety.Progress) *safety.Claim {
	return &safety.Claim{JobSet: l.j.key.String(), Owner: l.j.uid, Node: l.q.bare, Held: after.HeldNow(), Peaks: after.Peaks()}
}

// leavers returns the claims that an admission replaces: that of the JobSet itself, and those of its victims.
func (e *Engine) leavers(l *candidate) []*safety.Claim {
	var leavers []*safety.Claim
	if l.j.claim != nil {
		leavers = append(leavers, l.j.claim)
	}
	for _, v := range l.victims {
		if j := e.jobSets[v.Holder.UID]; j != nil && j.claim != nil && j != l.j {
			leavers = append(leavers, j.claim)
		}
	}
	return leavers
}

// waitForClaims parks the stage until one of these claims becomes smaller: all other JobSets can finish, and their actual progress cannot free
// more than that.
func (l *candidate) waitForClaims(e *Engine, heldUp []*safety.Claim) {
	const most = 8
	topics := []quota.ID{anyClaim}
	if len(heldUp) <= most {
		topics = nil
		for _, c := range heldUp {
			if c.Owner != l.j.uid {
				topics = append(topics, e.jobSets[c.Owner].topic)
			}
		}
	}
	for _, topic := range topics {
		if !slices.ContainsFunc(l.waits, func(w queue.Wait[quota.ID]) bool { return w.Topic == topic }) {
			l.waits = append(l.waits, queue.Wait[quota.ID]{Topic: topic})
		}
	}
}

// unreserved refuses the stage unless all that the JobSet may come to hold in this hold segment is free now.
func (e *Engine) unreserved(l *candidate, before, after *safety.Progress) *Refusal {
	held := before.HeldNow()
	lacks := []string{"a flavor that takes each of the stages to come"}
	for i, peak := range after.Peaks() {
		short := e.lacks(l, peak.Without(held))
		if len(short) == 0 {
			return nil
		}
		if i == 0 {
			lacks = short
		}
	}
	return &Refusal{
		Check: peakFits, Reason: kueue.WorkloadQuotaReservedReasonWaitingForQuota,
		Message: fmt.Sprintf("waits for quota in ClusterQueue %s: this stage and those that may hold quota beside it are admitted together (policy Reserve) and need %s%s",
			l.q.name, strings.Join(lacks, " and "), l.overruled()),
	}
}

// deadlock returns a refusal that names the JobSets that would wait for each other.
func (e *Engine) deadlock(l *candidate, blocked []*safety.Claim, usage quota.Usage) *Refusal {
	with := ""
	if others := l.others(blocked); len(others) > 0 {
		with = " and " + strings.Join(others, ", ")
	}
	return &Refusal{
		Check: stageUnsafe, Reason: kueue.WorkloadQuotaReservedReasonWaitingForQuota,
		Message: fmt.Sprintf("fits ClusterQueue %s now, but then this JobSet%s could wait for ever for quota of later stages: %s%s",
			l.q.name, with, e.leftFor(l, blocked, usage), l.overruled()),
	}
}

// others names the other JobSets of the namespace among some claims, and counts those of other namespaces, which are not disclosed.
func (l *candidate) others(claims []*safety.Claim) []string {
	const most = 3
	var others []string
	strangers := 0
	for _, c := range claims {
		switch {
		case c.JobSet == l.j.key.String():
		case strings.HasPrefix(c.JobSet, l.j.key.Namespace+"/"):
			others = append(others, c.JobSet)
		default:
			strangers++
		}
	}
	slices.Sort(others)
	if len(others) > most {
		others = append(others[:most], fmt.Sprintf("%d more", len(others)-most))
	}
	switch {
	case strangers == 1:
		others = append(others, "1 of another namespace")
	case strangers > 1:
		others = append(others, fmt.Sprintf("%d of other namespaces", strangers))
	}
	return others
}

// leftFor describes how much would stay free of the resource that a blocked JobSet needs most.
func (e *Engine) leftFor(l *candidate, blocked []*safety.Claim, usage quota.Usage) string {
	for _, c := range blocked {
		for _, peak := range c.Peaks {
			for fr, more := range e.tree.Index.ByName(peak.Without(c.Held)) {
				id := e.tree.Index.ID(fr)
				if left := l.q.node.Available(id).Minus(usage.Of(id)); more > left {
					return fmt.Sprintf("%s of %s %s of flavor %s would stay free, and up to %s more may be needed at once",
						max(left, 0).Format(fr.Resource), l.q.node.Capacity(id).Format(fr.Resource), fr.Resource, fr.Flavor, more.Format(fr.Resource))
				}
			}
		}
	}
	return "the flavors of a later stage are short"
}
