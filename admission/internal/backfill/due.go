package backfill

import (
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/admission/internal/model"
	"github.com/tranche-dev/tranche/admission/quota"
)

// Set makes a stage the due stage of its ClusterQueue, and reports whether it was another one.
func Set(m *model.Model, q *model.ClusterQueue, due model.Due) bool {
	due.IsFirst = isFirst(q, due.Stage)
	if q.DueStage() == due.Stage {
		if !q.Due.Need.Equal(due.Need) || q.Due.IsFirst != due.IsFirst {
			*q.Due = due
			m.ChargeEpoch++
		}
		return false
	}
	if former := q.DueStage(); former != nil {
		m.Schedule.EndDue(q)
		if former.ReservesNominal {
			m.CancelReservation(former)
		}
		m.Enqueue(former)
	}
	q.Due = &due
	m.ChargeEpoch++
	g := q.CohortTree
	at, _ := slices.BinarySearchFunc(g.DueQueues, q, compareQueues)
	g.DueQueues = slices.Insert(g.DueQueues, at, q)
	m.Enqueue(due.Stage)
	for _, other := range g.DueQueues {
		if other != q {
			m.Schedule.WakeQueue(other)
		}
	}
	return true
}

// isFirst reports whether a stage comes before the due stages of all other ClusterQueues of its cohort tree.
func isFirst(q *model.ClusterQueue, s *model.Stage) bool {
	for _, other := range q.CohortTree.DueQueues {
		if other != q && ComesFirst(other.Due.Stage, s) {
			return false
		}
	}
	return true
}

func compareQueues(a, b *model.ClusterQueue) int { return strings.Compare(a.Name, b.Name) }

// Reservation returns what the due stage of a ClusterQueue reserves: what its ClusterQueue does not use of its nominal quota, up to its need, and all of its
// need if that is more than the nominal quota and the stage is the first due one of the cohort tree.
func Reservation(m *model.Model, q *model.ClusterQueue) quota.Usage {
	var reserved quota.Usage
	m.Tree.WhatIfEvicted(func() bool {
		if s := q.Due.Stage; s.PreemptQueue == q {
			q.Node.Release(s.PreemptReserved)
		}
		for _, c := range q.Due.Need {
			nominal := q.Node.Quota(c.ID).Nominal
			amount := min(c.Amount, max(0, nominal.Minus(q.Node.Used(c.ID))))
			if q.Due.IsFirst && c.Amount > nominal {
				amount = c.Amount
			}
			if amount > 0 {
				reserved.Add(c.ID, amount)
			}
		}
		return true
	})
	return reserved
}

// Reservers returns the due stages whose reservations do not count for a stage of a ClusterQueue: Delayed decides whether it overtakes them.
func Reservers(q *model.ClusterQueue, s *model.Stage) []*model.Stage {
	var reservers []*model.Stage
	for _, other := range q.CohortTree.DueQueues {
		due := other.Due.Stage
		if due.ReservesNominal && (other != q || due != s && due.IsReservedAgainst(s)) {
			reservers = append(reservers, due)
		}
	}
	return reservers
}
