package backfill

import (
	"slices"
	"time"

	"github.com/tranche-dev/tranche/admission/internal/model"
	"github.com/tranche-dev/tranche/admission/quota"
)

// endsBefore reports whether the stage surely has released its quota when the due stage of a ClusterQueue can start, or fits beside it from then on.
func (e *Entrant) endsBefore(m *model.Model, q *model.ClusterQueue) bool {
	if q != e.Queue && e.End.IsZero() {
		return false
	}
	start, ok := Start(m, q)
	switch {
	case !ok:
		return false
	case !e.End.IsZero() && !e.End.After(start):
		return true
	case q != e.Queue:
		return false
	}
	fits := false
	e.afterVictims(m, func() {
		var ended []model.Ending
		for _, ending := range endings(m, []*model.ClusterQueue{q}) {
			if !ending.EndsAt.After(start) && !e.evicts(ending.Stage) {
				ended = append(ended, ending)
			}
		}
		release(ended)
		fits = e.fitsWithin(m, q)
	})
	return fits
}

func (e *Entrant) evicts(s *model.Stage) bool {
	for _, v := range e.Victims {
		if slices.Contains(model.EvictionUnitOf(v.Holder).Stages, s) {
			return true
		}
	}
	return false
}

// Start returns when the due stage of a ClusterQueue can start at the latest if the stages that have a time limit run for that long, and those that have
// none never end. It is not ok if that is not enough, or if the stage waits for its victims. For a co-admission group only the members of the cohort tree
// count: the group does not start before they can.
func Start(m *model.Model, q *model.ClusterQueue) (start time.Time, ok bool) {
	d := q.Due
	if state := m.Tree.State(); d.Cycle != m.Cycles || d.ChargeEpoch != m.ChargeEpoch || d.State != state {
		d.Start, d.Cycle, d.ChargeEpoch, d.State = time.Time{}, m.Cycles, m.ChargeEpoch, state
		if d.Stage.PreemptQueue == nil {
			m.Tree.WhatIfEvicted(func() bool {
				d.Start = firstFit(m, q)
				return true
			})
		}
		if d.Start.Before(d.Earliest) {
			d.Earliest = d.Start
		}
	}
	return d.Start, !d.Start.IsZero()
}

// never returns Earliest if no stage was refused for any start.
func never() time.Time { return time.Unix(1<<60, 0) }

// WakeIfLater wakes the stages of a cohort tree that would delay a due stage which starts later than when they were refused, since others have been admitted: they
// may end before it starts now. It reports whether there are any.
func WakeIfLater(m *model.Model, g *model.CohortTree) bool {
	woken := false
	for _, q := range g.DueQueues {
		d := q.Due
		if d.Earliest.Equal(never()) || d.WokenIn == m.ChargeEpoch || len(g.Parked[q.DueTopic]) == 0 {
			continue
		}
		if start, _ := Start(m, q); start.After(d.Earliest) && start.After(m.Now) { // what is overdue ends now, whenever that is
			d.Earliest, d.WokenIn = start, m.ChargeEpoch // once: a preemptor may see another start than others
			m.Schedule.WakeTopic(g, q.DueTopic)
			woken = true
		}
	}
	return woken
}

// Expected returns Start, if that is not in the past and is the start of all that has to start together.
func Expected(m *model.Model, q *model.ClusterQueue) (start time.Time, ok bool) {
	for _, other := range q.Due.Queues {
		if other.CohortTree != q.CohortTree {
			return time.Time{}, false
		}
	}
	start, ok = Start(m, q)
	return start, ok && start.After(m.Now)
}

func firstFit(m *model.Model, q *model.ClusterQueue) time.Time {
	if needsFit(m, q, q.Due.Queues) {
		return m.Now
	}
	all := endingsOf(m, q.CohortTree)
	// All before done have ended, and it does not fit yet. The next step is twice as long, so that little is released that need not be.
	for done, step := 0, 1; done < len(all); done, step = done+step, 2*step {
		next := all[done:min(done+step, len(all))]
		after := func(n int) bool {
			return m.Tree.WhatIf(func() bool {
				release(next[:n])
				return needsFit(m, q, q.Due.Queues)
			})
		}
		if after(len(next)) {
			return next[least(len(next), after)-1].EndsAt
		}
		release(next)
	}
	return time.Time{}
}

// endingsOf returns the stages of a cohort tree that surely end, the first first. They are the same for all due stages until something is charged.
func endingsOf(m *model.Model, g *model.CohortTree) []model.Ending {
	if c := &g.Endings; c.Cycle != m.Cycles || c.ChargeEpoch != m.ChargeEpoch || c.EntryEpoch != m.EntryEpoch {
		*c = model.Endings{Cycle: m.Cycles, ChargeEpoch: m.ChargeEpoch, EntryEpoch: m.EntryEpoch, All: endings(m, g.Queues)}
		slices.SortFunc(c.All, func(a, b model.Ending) int { return a.EndsAt.Compare(b.EndsAt) })
	}
	return g.Endings.All
}

// least returns the least number from 1 to a most for which a monotone predicate holds.
func least(most int, holds func(int) bool) int {
	low := 1
	for low < most {
		if middle := (low + most) / 2; holds(middle) {
			most = middle
		} else {
			low = middle + 1
		}
	}
	return low
}

// release releases the quota of stages that have ended, in one sum for each ClusterQueue.
func release(ended []model.Ending) {
	var queues []*model.ClusterQueue
	sums := map[*model.ClusterQueue]*quota.Sum{}
	for _, e := range ended {
		q := e.Stage.Entry.ClusterQueue
		if sums[q] == nil {
			sums[q] = &quota.Sum{}
			queues = append(queues, q)
		}
		sums[q].Add(e.Stage.Entry.Usage)
	}
	for _, q := range queues {
		q.Node.Release(sums[q].Usage())
	}
}

// needsFit reports whether what is needed in some ClusterQueues fits at once, in those of the cohort tree of one of them.
func needsFit(m *model.Model, of *model.ClusterQueue, queues []*model.ClusterQueue) bool {
	if len(queues) == 0 {
		return true
	}
	q := queues[0]
	if q.CohortTree != of.CohortTree {
		return needsFit(m, of, queues[1:])
	}
	return q.Node.Fits(q.Due.Need) && (len(queues) == 1 || m.Tree.WhatIf(func() bool {
		q.Node.Charge(q.Due.Need)
		return needsFit(m, of, queues[1:])
	}))
}

// endings returns the stages of some ClusterQueues that surely end.
func endings(m *model.Model, queues []*model.ClusterQueue) []model.Ending {
	var all []model.Ending
	for _, q := range queues {
		for _, s := range q.Charged.All {
			if at := endOf(m, s); !at.IsZero() {
				all = append(all, model.Ending{Stage: s, EndsAt: at})
			}
		}
	}
	return all
}

// endOf returns when a stage surely has released its quota, or zero if that is unknown: it has no limit, waits for AdmissionChecks, is being evicted, or
// another stage of its JobSet takes its place.
func endOf(m *model.Model, s *model.Stage) time.Time {
	j := m.JobSets[s.OwnerUID]
	if s.TimeLimit == 0 || s.Entry.Phase != model.Admitted || s.IsLeaving() || j != nil && j.Claim != nil {
		return time.Time{}
	}
	admitted := s.AdmittedAt
	if !s.IsAdmitted {
		admitted = s.ReservedAt
	}
	if end := admitted.Add(s.TimeLimit); end.After(m.Now) {
		return end
	}
	return m.Now
}
