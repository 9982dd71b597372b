package admission

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/admission/safety"
	"github.com/tranche-dev/tranche/queue"
)

// peakFitsLimits refuses a JobSet at its first stage if some later stage can never be admitted beside what must then be held.
func peakFitsLimits(e *Engine, l *look) *Refusal {
	if !l.hasPlan() || l.policy == Greedy || l.j.continues() {
		return nil
	}
	c := e.course(l.j, l.q)
	for s := range l.j.plan.Stages {
		if o := e.offer(l.j.stages[s], l.q); o.lack != nil && c.Items[s] == nil {
			refusal := lackRefusal(l.q, o.lack)
			refusal.Message = fmt.Sprintf("stage %s could never be admitted: %s", l.j.plan.Stages[s].Name, refusal.Message)
			return refusal
		}
	}
	peaks := c.PeaksToTheEnd()
	for _, peak := range peaks {
		if len(e.aboveMost(l.q, peak)) == 0 {
			return nil
		}
	}
	message := "its stages hold more at once than there is"
	if len(peaks) > 0 {
		message = strings.Join(e.aboveMost(l.q, peaks[0]), " and ")
	}
	return &Refusal{
		Check: peakWithinLimits, Reason: kueue.WorkloadQuotaReservedReasonExceedsMaxQuota,
		Message: fmt.Sprintf("the JobSet could never run to its end in ClusterQueue %s: stages that hold quota at the same time need up to %s", l.q.name, message),
	}
}

// stateStaysSafe takes the first choice that fits and that the stage-admission policy lets through.
func stateStaysSafe(e *Engine, l *look) *Refusal {
	refusal := e.unsafe(l, l.usage)
	if refusal == nil {
		return nil
	}
	for choice := range e.fitting(l) {
		if !slices.Equal(choice, l.choice) && e.unsafe(l, choice.Usage(l.items)) == nil {
			l.choose(choice)
			return nil
		}
	}
	l.effect = holdsUpOthers
	l.waits = append(l.waits, queue.Wait[quota.ID]{Topic: anyClaim})
	return refusal
}

// unsafe asks the policy about one choice.
func (e *Engine) unsafe(l *look, usage quota.Usage) *Refusal {
	if !l.hasPlan() || l.policy == Greedy {
		return nil
	}
	before := e.course(l.j, l.q)
	after := before.With(l.s.index, usage)
	if len(after.Ahead()) == 0 {
		// Nothing is left to ask for: it gives back what it holds, and nobody else is worse off.
		return nil
	}
	if l.policy == Reserve {
		return e.unreserved(l, before, after)
	}
	return e.unfinishable(l, after, usage)
}

// unfinishable asks whether, after the admission, somebody could no longer finish who can now, or the JobSet itself could not. If
// the state is safe now, that means that it must stay safe; if it is not, as after a quota cut, that it must get no worse.
func (e *Engine) unfinishable(l *look, after *safety.Course, usage quota.Usage) *Refusal {
	claims := e.claimsAfter(l, after)
	blocked := safety.Blocked(e.bare, claims)
	if len(blocked) == 0 {
		return nil
	}
	others := claims[1:]
	if l.j.claim != nil && l.j.home == l.q {
		others = append(others, l.j.claim)
	}
	blockedBefore := safety.Blocked(e.bare, others)
	for _, c := range blocked {
		if !slices.Contains(blockedBefore, c) {
			return e.deadlock(l, blocked, usage)
		}
	}
	return nil
}

// claimsAfter are the claims after the admission, that of the stage's own JobSet first.
func (e *Engine) claimsAfter(l *look, after *safety.Course) []*safety.Claim {
	claims := []*safety.Claim{{JobSet: l.j.key.String(), Node: l.q.bare, Held: after.HeldNow(), Peaks: after.Peaks()}}
	for _, uid := range slices.Sorted(maps.Keys(l.q.group.claimants)) {
		if uid != l.j.uid && !e.leavesFor(l, uid) {
			claims = append(claims, l.q.group.claimants[uid].claim)
		}
	}
	return claims
}

// unreserved asks whether all that the JobSet may come to hold in this hold segment is free now.
func (e *Engine) unreserved(l *look, before, after *safety.Course) *Refusal {
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
		Message: fmt.Sprintf("waits for quota in ClusterQueue %s: this stage and those that may hold quota beside it are admitted together (policy Reserve) and need %s",
			l.q.name, strings.Join(lacks, " and ")),
	}
}

// deadlock names who would wait for whom.
func (e *Engine) deadlock(l *look, blocked []*safety.Claim, usage quota.Usage) *Refusal {
	const most = 3
	var others []string
	for _, c := range blocked {
		if c.JobSet != l.j.key.String() {
			others = append(others, c.JobSet)
		}
	}
	slices.Sort(others)
	with := ""
	if len(others) > most {
		others = append(others[:most], fmt.Sprintf("%d more", len(others)-most))
	}
	if len(others) > 0 {
		with = " and " + strings.Join(others, ", ")
	}
	return &Refusal{
		Check: stageUnsafe, Reason: kueue.WorkloadQuotaReservedReasonWaitingForQuota,
		Message: fmt.Sprintf("fits ClusterQueue %s now, but then this JobSet%s could wait for ever for quota of later stages: %s",
			l.q.name, with, e.leftFor(l, blocked, usage)),
	}
}

// leftFor says what would stay free of what a blocked JobSet needs most.
func (e *Engine) leftFor(l *look, blocked []*safety.Claim, usage quota.Usage) string {
	for _, c := range blocked {
		for _, peak := range c.Peaks {
			for fr, more := range e.tree.Index.ByName(peak.Without(c.Held)) {
				id := e.tree.Index.ID(fr)
				if left := l.q.node.Available(id).Minus(usage.Of(id)); more > left {
					return fmt.Sprintf("%s of %s %s of flavor %s would stay free, and up to %s more may be needed at once",
						max(left, 0).Format(fr.Resource), l.q.node.Most(id).Format(fr.Resource), fr.Resource, fr.Flavor, more.Format(fr.Resource))
				}
			}
		}
	}
	return "the flavors of a later stage are short"
}
