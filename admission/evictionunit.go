package admission

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/admission/preempt"
	"github.com/tranche-dev/tranche/admission/quota"
)

// An evictionUnit is an eviction unit: a stage, or all stages of a JobSet, that hold quota of one ClusterQueue. Preemption sees it as a Holder. Only
// renew derives it from entries.
type evictionUnit struct {
	holder *preempt.Holder
	queue  *clusterQueue
	// stages are those that are evicted together.
	stages []*stage
}

// renewEvictionUnits updates the eviction unit of a stage that belongs to no JobSet.
func (e *Engine) renewEvictionUnits(s *stage) {
	if s.owner != "" {
		return
	}
	wasEvicting := s.evictionUnit.isEvicting()
	if !s.evictionUnit.isOf(s) {
		e.renew(&s.evictionUnit, s.uid, []*stage{s}, nil)
	} else if !wasEvicting {
		e.wakeIfEvicting(&s.evictionUnit)
	}
}

// renew derives an eviction unit. It wakes the stages that wait until the evicted stages of its ClusterQueue have left; if its priority has been
// lowered, those that may now preempt it; and if it is evicted, those that wait for its quota.
func (e *Engine) renew(t *evictionUnit, uid types.UID, stages []*stage, j *jobSet) {
	q, before, wasEvicting := t.queue, t.holder, t.isEvicting()
	wasInTurn := q != nil && q.holders.IsInTurn()
	t.renew(uid, stages, j)
	if wasInTurn {
		e.endFairTurn(q)
	}
	e.wakeIfLowered(before, t)
	if !wasEvicting {
		e.wakeIfEvicting(t)
	}
}

func (t *evictionUnit) isEvicting() bool { return t.holder != nil && t.holder.IsEvicting() }

// wakeIfEvicting wakes the stages that wait for quota of a unit that others than the Engine evict and that may preempt: that quota counts as free
// for them, so that there may be enough victims. The Engine evicts for a preemptor, which reserves the quota: to wake all others each time costs
// too much.
func (e *Engine) wakeIfEvicting(t *evictionUnit) {
	isDecided := func(s *stage) bool { return s.evicting != 0 }
	if e.isStale || !t.isEvicting() || t.queue.cohortTree == nil || slices.ContainsFunc(t.stages, isDecided) {
		return
	}
	for _, c := range t.holder.Usage {
		for q := range t.queue.cohortTree.asleep[c.ID] {
			if q.mayPreempt() && q.pendingQueue.Wake(c.ID, 0) {
				e.scheduleCycle(q)
			}
		}
	}
}

// wakeIfLowered makes the next call of Decide check all stages that may preempt a unit of which the priority has been lowered: in its own
// ClusterQueue, and in those that reclaim quota.
func (e *Engine) wakeIfLowered(before *preempt.Holder, now *evictionUnit) {
	if e.isStale || before == nil || now.holder == nil || now.holder.Priority >= before.Priority || now.queue.cohortTree == nil {
		return
	}
	for _, q := range now.queue.cohortTree.queues {
		policy := q.preemption.ReclaimWithinCohort
		if q == now.queue {
			policy = q.preemption.WithinClusterQueue
		}
		if allowsPreemption(policy) {
			e.wakeLine(q)
		}
	}
}

// isOf reports whether the eviction unit of a stage that belongs to no JobSet is up to date. If only the eviction of the stage is new, it marks
// the holder as evicting.
func (t *evictionUnit) isOf(s *stage) bool {
	h := t.holder
	if h == nil || !s.entry.isCharged() {
		return h == nil && !s.entry.isCharged()
	}
	isSame := t.queue == s.entry.clusterQueue && h.Priority == int64(s.priority) && h.Usage.Equal(s.entry.usage) &&
		h.Queued.Equal(s.created) && h.Reserved.Equal(s.reservedAt)
	if isSame && s.isLeaving() {
		if !h.IsEvicting() {
			h.IsTakenFairly = s.isTakenFairly
		}
		t.queue.holders.Evict(h)
	}
	return isSame && h.IsEvicting() == s.isLeaving()
}

// renewEvictionUnitsOf updates the eviction unit of a JobSet, whose stages leave together. Stages that are charged to another ClusterQueue than the
// rest, which only an administrator can cause, leave with them, but are not searched as victims.
func (e *Engine) renewEvictionUnitsOf(j *jobSet) {
	stages := slices.SortedFunc(maps.Values(j.members), compareStages)
	e.renew(&j.evictionUnit, j.uid, stages, j)
}

// renew derives the unit from the stages that hold quota. j is their JobSet, or nil.
func (t *evictionUnit) renew(uid types.UID, stages []*stage, j *jobSet) {
	stages = slices.DeleteFunc(stages, func(s *stage) bool { return !s.entry.isCharged() })
	var now evictionUnit
	if len(stages) > 0 {
		now = newEvictionUnit(uid, stages)
		// A victim also releases its peak reservation.
		now.holder.Usage = plus(now.holder.Usage, j.keptIn(now.queue))
		now.holder.Continues = j.hasFinishedStage()
	}
	if t.says(&now) {
		return
	}
	if t.holder != nil {
		t.queue.holders.Remove(t.holder)
	}
	*t = now
	if now.holder != nil {
		now.holder.Of = t
		now.queue.holders.Add(now.holder)
		if slices.ContainsFunc(stages, (*stage).takesAlong) {
			now.queue.holders.Evict(now.holder)
		}
	}
}

func newEvictionUnit(uid types.UID, stages []*stage) evictionUnit {
	t := evictionUnit{queue: stages[0].entry.clusterQueue, stages: stages}
	h := &preempt.Holder{UID: uid, Priority: int64(stages[0].priority), Queued: stages[0].created, Reserved: stages[0].reservedAt}
	for _, s := range stages {
		if s.entry.clusterQueue == t.queue {
			h.Usage = plus(h.Usage, s.entry.usage)
		}
		h.Priority = max(h.Priority, int64(s.priority))
		h.IsTakenFairly = h.IsTakenFairly || s.isTakenFairly
		h.Queued, h.Reserved = earlier(h.Queued, s.created), earlier(h.Reserved, s.reservedAt)
	}
	t.holder = h
	return t
}

func plus(a, b quota.Usage) quota.Usage {
	if len(a) == 0 {
		return b
	}
	sum := a.Clone()
	sum.AddAll(b)
	return sum
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// says reports whether two units are the same for preemption.
func (t *evictionUnit) says(o *evictionUnit) bool {
	if t.holder == nil || o.holder == nil {
		return t.holder == o.holder
	}
	return t.queue == o.queue && t.holder.Usage.Equal(o.holder.Usage) && t.holder.Priority == o.holder.Priority &&
		t.holder.Continues == o.holder.Continues && t.holder.Queued.Equal(o.holder.Queued) && t.holder.Reserved.Equal(o.holder.Reserved) &&
		t.holder.IsEvicting() == slices.ContainsFunc(o.stages, (*stage).takesAlong) && slices.Equal(t.stages, o.stages)
}
