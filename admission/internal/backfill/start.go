package backfill

import (
	"slices"
	"time"

	"github.com/tranche-dev/tranche/admission/internal/model"
	"github.com/tranche-dev/tranche/admission/quota"
)

// An ending is a stage that surely has released its quota at some time.
type ending struct {
	stage *model.Stage
	at    time.Time
}

// endsBefore reports whether the stage surely has released its quota when the due stage of a ClusterQueue can start, or fits beside it from then on.
func (e *Entrant) endsBefore(m *model.Model, q *model.ClusterQueue) bool {
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
	m.Tree.WhatIfEvicted(func() bool {
		e.releaseVictims()
		var ended []ending
		for _, ending := range endings(m, []*model.ClusterQueue{q}) {
			if !ending.at.After(start) && !e.evicts(ending.stage) {
				ended = append(ended, ending)
			}
		}
		release(ended)
		fits = e.staysWithin(m, q)
		return true
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
// none never end. It is not ok if that is not enough, or if the stage waits for its victims. It must be called as if the reservations of all due stages of the
// cohort tree were released. For a co-admission group only the members of the cohort tree count: the group does not start before they can.
func Start(m *model.Model, q *model.ClusterQueue) (start time.Time, ok bool) {
	d := q.Due
	if d.Cycle != m.Cycles || d.ChargeEpoch != m.ChargeEpoch {
		d.Start, d.Cycle, d.ChargeEpoch = time.Time{}, m.Cycles, m.ChargeEpoch
		if d.Stage.PreemptQueue == nil || d.Stage.ReservesNominal {
			m.Tree.WhatIfEvicted(func() bool {
				d.Start = firstFit(m, q)
				return true
			})
		}
	}
	return d.Start, !d.Start.IsZero()
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
	all := endings(m, q.CohortTree.Queues)
	fitsAfter := func(n int) bool {
		return n > 0 && m.Tree.WhatIf(func() bool {
			release(all[:n])
			return needsFit(m, q, q.Due.Queues)
		})
	}
	if !fitsAfter(len(all)) {
		return time.Time{}
	}
	slices.SortFunc(all, func(a, b ending) int { return a.at.Compare(b.at) })
	return all[least(len(all), fitsAfter)-1].at
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
func release(ended []ending) {
	var queues []*model.ClusterQueue
	sums := map[*model.ClusterQueue]*quota.Sum{}
	for _, e := range ended {
		q := e.stage.Entry.ClusterQueue
		if sums[q] == nil {
			sums[q] = &quota.Sum{}
			queues = append(queues, q)
		}
		sums[q].Add(e.stage.Entry.Usage)
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
func endings(m *model.Model, queues []*model.ClusterQueue) []ending {
	var all []ending
	for _, q := range queues {
		for _, s := range q.Charged.All {
			if at := endOf(m, s); !at.IsZero() {
				all = append(all, ending{s, at})
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
