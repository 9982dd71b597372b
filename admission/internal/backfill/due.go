package backfill

import (
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/admission/internal/model"
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
		dues[i].Place, dues[i].Queues, dues[i].Borrows = Place(dues[i].Stage), queues, dependsOnLenders(m, &dues[i])
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
	if !q.Due.Need.Equal(due.Need) || q.Due.Place.Compare(due.Place) != 0 || !q.Due.At.Equal(due.At) || q.Due.Borrows != due.Borrows {
		due.AwaitsLent, due.Reserves, due.Earliest = q.Due.AwaitsLent, q.Due.Reserves, q.Due.Earliest
		q.Due = due
		m.ChargeEpoch++
		noteUse(m, q)
		m.Schedule.WakeTopic(q.CohortTree, q.DueTopic)
		wakeBehind(m, q)
	}
}

// place makes a stage the due stage of a ClusterQueue that has none.
func place(m *model.Model, q *model.ClusterQueue, due *model.Due) {
	g := q.CohortTree
	q.Due = due
	due.Earliest = never()
	m.ChargeEpoch++
	noteUse(m, q)
	at, _ := slices.BinarySearchFunc(g.DueQueues, q, compareQueues)
	g.DueQueues = slices.Insert(g.DueQueues, at, q)
	m.Enqueue(due.Stage)
	wakeBehind(m, q)
}

// wakeBehind wakes the stages that would delay other due stages which need more than nominal quota: less is reserved for them if that of a ClusterQueue comes
// first.
func wakeBehind(m *model.Model, q *model.ClusterQueue) {
	for _, other := range q.CohortTree.DueQueues {
		if other != q && other.Due.Borrows {
			m.Schedule.WakeTopic(q.CohortTree, other.DueTopic)
		}
	}
}

func compareQueues(a, b *model.ClusterQueue) int { return strings.Compare(a.Name, b.Name) }
