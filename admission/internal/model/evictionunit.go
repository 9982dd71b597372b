package model

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/admission/preempt"
)

// An EvictionUnit is an eviction unit: a stage, or all stages of a JobSet, that hold quota of one ClusterQueue. Preemption sees it as a Holder. Only
// renew derives it from entries.
type evictionUnit struct {
	Holder *preempt.Holder
	Queue  *ClusterQueue
	// Stages are those that are evicted together.
	Stages []*Stage
}

// RenewEvictionUnits updates the eviction unit of a stage that belongs to no JobSet.
func (m *Model) RenewEvictionUnits(s *Stage) {
	if s.OwnerUID != "" {
		return
	}
	wasEvicting := s.evictionUnit.isEvicting()
	if !s.evictionUnit.isOf(s) {
		m.renew(&s.evictionUnit, s.UID, []*Stage{s}, nil)
	} else if !wasEvicting {
		m.noteUse(s.evictionUnit.Queue)
		m.wakeIfEvicting(&s.evictionUnit)
	}
}

// renew derives an eviction unit. It wakes the stages that wait until the evicted stages of its ClusterQueue have left; if its priority has been
// lowered, those that may now preempt it; and if it is evicted, those that wait for its quota.
func (m *Model) renew(t *evictionUnit, uid types.UID, stages []*Stage, j *JobSet) {
	q, before, wasEvicting := t.Queue, t.Holder, t.isEvicting()
	wasInTurn := q != nil && q.Holders.IsInTurn()
	t.renew(m, uid, stages, j)
	m.noteUse(q)
	m.noteUse(t.Queue)
	if wasInTurn {
		m.Schedule.endFairTurn(q)
	}
	m.Schedule.wakeIfLowered(before, t)
	if !wasEvicting {
		m.wakeIfEvicting(t)
	}
}

func (t *evictionUnit) isEvicting() bool { return t.Holder != nil && t.Holder.IsEvicting() }

// wakeIfEvicting wakes the stages that may count on the quota of a unit that is evicted. The quota of a victim is reserved for its preemptor: only
// the surplus is for others (cycle.wakeForSurplus).
func (m *Model) wakeIfEvicting(t *evictionUnit) {
	isVictim := func(s *Stage) bool { return (s.Evicting != 0 || s.Notice.Decision() != 0) && s.IsVictim }
	if t.isEvicting() && t.Queue.CohortTree != nil && !slices.ContainsFunc(t.Stages, isVictim) {
		m.wake(t.Queue.CohortTree.Root, t.Holder.Usage, t.Queue.CohortTree)
	}
}

// isOf reports whether the eviction unit of a stage that belongs to no JobSet is up to date. If only the eviction of the stage is new, it marks
// the holder as evicting.
func (t *evictionUnit) isOf(s *Stage) bool {
	h := t.Holder
	if h == nil || !s.Entry.IsCharged() {
		return h == nil && !s.Entry.IsCharged()
	}
	isSame := t.Queue == s.Entry.ClusterQueue && h.IsExempt == s.IsAdopted && h.Priority == int64(s.Priority) && h.Usage.Equal(s.Entry.Usage) &&
		h.Queued.Equal(s.Created) && h.Reserved.Equal(s.ReservedAt) && h.Started.Equal(s.startedAt())
	if isSame && s.IsLeaving() {
		if !h.IsEvicting() {
			h.IsTakenFairly = s.IsTakenFairly
		}
		t.Queue.Holders.Evict(h)
	}
	return isSame && h.IsEvicting() == s.IsLeaving()
}

// RenewEvictionUnitsOf updates the eviction unit of a JobSet, whose stages leave together. Stages that are charged to another ClusterQueue than the
// rest, which only an administrator can cause, leave with them, but are not searched as victims.
func (m *Model) RenewEvictionUnitsOf(j *JobSet) {
	stages := slices.SortedFunc(maps.Values(j.Members), CompareStages)
	m.renew(&j.EvictionUnit, j.UID, stages, j)
}

// renew derives the unit from the stages that hold quota. j is their JobSet, or nil.
func (t *evictionUnit) renew(m *Model, uid types.UID, stages []*Stage, j *JobSet) {
	stages = slices.DeleteFunc(stages, func(s *Stage) bool { return !s.Entry.IsCharged() })
	var now evictionUnit
	if len(stages) > 0 {
		now = newEvictionUnit(uid, stages)
		// A victim also releases its peak reservation.
		now.Holder.Usage = now.Holder.Usage.Plus(j.PeakReservedIn(now.Queue))
		now.Holder.Continues = j.hasFinishedStage()
		var savedAt time.Time
		if j != nil {
			savedAt = j.CheckpointedAt
		}
		for _, s := range stages {
			now.Holder.Work = append(now.Holder.Work, m.Config.WorkOn(m.Tree.Index, s.Entry.Usage, s.startedAt(), savedAt)...)
		}
	}
	if t.says(&now) {
		return
	}
	if t.Holder != nil {
		t.Queue.Holders.Remove(t.Holder)
	}
	*t = now
	if now.Holder != nil {
		now.Holder.Of = t
		now.Queue.Holders.Add(now.Holder)
		if slices.ContainsFunc(stages, (*Stage).takesAlong) {
			now.Queue.Holders.Evict(now.Holder)
		}
	}
}

func newEvictionUnit(uid types.UID, stages []*Stage) evictionUnit {
	t := evictionUnit{Queue: stages[0].Entry.ClusterQueue, Stages: stages}
	h := &preempt.Holder{UID: uid, Priority: int64(stages[0].Priority), Queued: stages[0].Created, Reserved: stages[0].ReservedAt}
	for _, s := range stages {
		if s.Entry.ClusterQueue == t.Queue {
			h.Usage = h.Usage.Plus(s.Entry.Usage)
		}
		h.Priority = max(h.Priority, int64(s.Priority))
		h.IsTakenFairly = h.IsTakenFairly || s.IsTakenFairly
		h.IsExempt = h.IsExempt || s.IsAdopted
		h.Queued = slices.MinFunc([]time.Time{h.Queued, s.Created}, time.Time.Compare)
		h.Reserved = slices.MinFunc([]time.Time{h.Reserved, s.ReservedAt}, time.Time.Compare)
		if at := s.startedAt(); !s.IsGrowth && at.After(h.Started) { // otherwise a JobSet that grows again and again is never preempted
			h.Started = at
		}
	}
	t.Holder = h
	return t
}

// startedAt returns when the pods of a stage were allowed to start, or zero if they are not yet. It is derived from the condition Admitted.
func (s *Stage) startedAt() time.Time {
	switch {
	case s.IsAdmitted:
		return s.AdmittedAt
	case s.Assumed != nil && s.Assumed.IsAdmitted:
		return s.ReservedAt
	}
	return time.Time{}
}

// says reports whether two units are the same for preemption.
func (t *evictionUnit) says(o *evictionUnit) bool {
	if t.Holder == nil || o.Holder == nil {
		return t.Holder == o.Holder
	}
	return t.Queue == o.Queue && t.Holder.IsLike(o.Holder) && t.Holder.IsEvicting() == slices.ContainsFunc(o.Stages, (*Stage).takesAlong) &&
		slices.Equal(t.Stages, o.Stages)
}

// EvictionUnitOf returns the eviction unit, of a JobSet or of a stage without one, that made a Holder. The unit may have another Holder now.
func EvictionUnitOf(h *preempt.Holder) *evictionUnit {
	return h.Of.(*evictionUnit) //nolint:forcetypeassert // nothing else makes Holders
}
