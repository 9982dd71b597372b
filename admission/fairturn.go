package admission

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
func (e *Engine) isOutOfTurn(l *candidate, victims []preempt.Victim) bool {
	isTakenFairly := func(v preempt.Victim) bool { return v.Reason == kueue.InCohortFairSharingReason }
	if !slices.ContainsFunc(victims, isTakenFairly) {
		return false
	}
	isOut := slices.ContainsFunc(victims, func(v preempt.Victim) bool { return isTakenFairly(v) && v.Holder.Queue().IsInTurn() })
	for s := range l.q.preemptors {
		isOut = isOut || l.s.comesAfterPreemptor(s)
	}
	if isOut {
		l.q.cohortTree.awaitsTurn[l.q] = struct{}{}
	}
	return isOut
}

// comesAfterPreemptor reports whether another stage of its ClusterQueue waits for victims and precedes it. A head that reserves nominal quota
// waits for no victims. A stage that its JobSet has to run does not wait for preceding stages: these may wait for quota that the JobSet holds.
func (s *stage) comesAfterPreemptor(other *stage) bool {
	return other != s && !other.keepsNominal && !s.element.Passes && other.element != nil && other.element.Precedes(s.element)
}

// endFairTurn wakes the stages that wait for their turn when the last stage that fair sharing has evicted from a ClusterQueue has left.
func (e *Engine) endFairTurn(q *clusterQueue) {
	if e.isStale || q.cohortTree == nil || q.holders.IsInTurn() {
		return // rebuilding the cohort trees wakes all stages
	}
	waiting := q.cohortTree.awaitsTurn
	q.cohortTree.awaitsTurn = map[*clusterQueue]struct{}{}
	for other := range waiting {
		e.wakeLine(other)
	}
}
