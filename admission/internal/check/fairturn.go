package check

import (
	"slices"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/preempt"
)

// Preemption by fair sharing takes turns. The fair share depends on the demand, and the stages of a burst are observed one after the other: if
// each of them evicted at once, the first ones would evict more than their share. So a stage takes victims by fair sharing only while no earlier
// stage of its ClusterQueue waits for victims, and no stage that fair sharing has evicted is left in their ClusterQueues. In between, the stage
// whose ClusterQueue has the lowest share comes next. Victims of priority or of reclaimed nominal quota need no turn.

// isOutOfTurn reports whether a stage has to wait before it takes victims by fair sharing, and notes that it does.
func (ck *Checker) isOutOfTurn(l *Candidate, victims []preempt.Victim) bool {
	isTakenFairly := func(v preempt.Victim) bool { return v.Reason == kueue.InCohortFairSharingReason }
	if !slices.ContainsFunc(victims, isTakenFairly) {
		return false
	}
	isOut := slices.ContainsFunc(victims, func(v preempt.Victim) bool { return isTakenFairly(v) && v.Holder.Queue().IsInTurn() })
	for s := range l.Queue.Preemptors {
		isOut = isOut || l.Stage.ComesAfterPreemptor(s)
	}
	if isOut {
		l.Queue.CohortTree.AwaitsTurn[l.Queue] = struct{}{}
	}
	return isOut
}
