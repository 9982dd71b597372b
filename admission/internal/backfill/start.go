package backfill

import (
	"cmp"
	"slices"
	"time"

	"github.com/tranche-dev/tranche/admission/internal/model"
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
		for _, ending := range endings(m, q.CohortTree) {
			if holder := ending.stage.Entry.ClusterQueue; holder == q && !ending.at.After(start) && !e.evicts(ending.stage) {
				holder.Node.Release(ending.stage.Entry.Usage)
			}
		}
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
	for _, e := range endings(m, q.CohortTree) {
		e.stage.Entry.ClusterQueue.Node.Release(e.stage.Entry.Usage)
		if needsFit(m, q, q.Due.Queues) {
			return e.at
		}
	}
	return time.Time{}
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

// endings returns the stages of a cohort tree that surely end, in the order of their ends.
func endings(m *model.Model, g *model.CohortTree) []ending {
	var all []ending
	for _, q := range g.Queues {
		for _, s := range q.Charged.Stages {
			if at := endOf(m, s); !at.IsZero() {
				all = append(all, ending{s, at})
			}
		}
	}
	slices.SortFunc(all, func(a, b ending) int { return cmp.Or(a.at.Compare(b.at), model.CompareStages(a.stage, b.stage)) })
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
