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
// none never end. It is not ok if that is not enough, or if the stage waits for its victims. It must be called as if the reservation of the due stage were
// released.
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

func firstFit(m *model.Model, q *model.ClusterQueue) time.Time {
	if q.Node.Fits(q.Due.Need) {
		return m.Now
	}
	for _, e := range endings(m, q.CohortTree) {
		e.stage.Entry.ClusterQueue.Node.Release(e.stage.Entry.Usage)
		if q.Node.Fits(q.Due.Need) {
			return e.at
		}
	}
	return time.Time{}
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
