package backfill

import (
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/admission/internal/model"
	"github.com/tranche-dev/tranche/admission/quota"
)

// Set makes a stage the due stage of its ClusterQueue, or the members of a co-admission group those of all their ClusterQueues, and reports whether they
// were not. Place and Queues of each Due are set here.
func Set(m *model.Model, dues ...model.Due) bool {
	var queues []*model.ClusterQueue
	for i := range dues {
		queues = append(queues, dues[i].Stage.QueuedIn)
	}
	isNew := false
	for i, q := range queues {
		dues[i].Place, dues[i].Queues = Place(dues[i].Stage), queues
		isNew = isNew || q.DueStage() != dues[i].Stage || !slices.Equal(q.Due.Queues, queues)
	}
	if !isNew {
		for i, q := range queues {
			update(m, q, &dues[i])
		}
		return false
	}
	for _, q := range queues {
		if former := q.DueStage(); former != nil {
			m.EndDue(q)
			m.Enqueue(former)
		}
	}
	for i, q := range queues {
		place(m, q, &dues[i])
	}
	return true
}

// update changes what is known of the due stage of a ClusterQueue.
func update(m *model.Model, q *model.ClusterQueue, due *model.Due) {
	due.IsFirst = isFirst(q, due)
	if !q.Due.Need.Equal(due.Need) || q.Due.IsFirst != due.IsFirst || q.Due.Place.Compare(due.Place) != 0 || !q.Due.At.Equal(due.At) {
		q.Due = due
		m.ChargeEpoch++
		m.Schedule.WakeTopic(q.CohortTree, model.AnyDue)
	}
}

// place makes a stage the due stage of a ClusterQueue that has none.
func place(m *model.Model, q *model.ClusterQueue, due *model.Due) {
	g := q.CohortTree
	q.Due = due
	q.Due.IsFirst = isFirst(q, due)
	m.ChargeEpoch++
	at, _ := slices.BinarySearchFunc(g.DueQueues, q, compareQueues)
	g.DueQueues = slices.Insert(g.DueQueues, at, q)
	m.Enqueue(due.Stage)
	for _, other := range g.DueQueues {
		if other != q {
			m.Schedule.WakeQueue(other)
		}
	}
}

// isFirst reports whether a due stage comes before those of all other ClusterQueues of its cohort tree, except for its co-admission group.
func isFirst(q *model.ClusterQueue, due *model.Due) bool {
	for _, other := range q.CohortTree.DueQueues {
		if other != q && other.Due.Place.Compare(due.Place) < 0 {
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

// Reservers returns the due stages whose reservations do not count for a stage of a ClusterQueue: Delayed decides whether it overtakes them. Those of its own
// ClusterQueue that come after the stage do not count either. For a co-admission group all of them are returned: no other rule excepts them.
func Reservers(q *model.ClusterQueue, s *model.Stage) []*model.Stage {
	isGroup := s.CoAdmissionGroup() != nil
	var reservers []*model.Stage
	for _, other := range q.CohortTree.DueQueues {
		due := other.Due.Stage
		if due.ReservesNominal && (isGroup || other != q || due != s && due.IsReservedAgainst(s)) {
			reservers = append(reservers, due)
		}
	}
	return reservers
}
