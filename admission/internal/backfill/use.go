package backfill

import (
	"slices"

	"github.com/tranche-dev/tranche/admission/internal/model"
	"github.com/tranche-dev/tranche/admission/quota"
)

// Follow keeps up to date, for each due stage, what others may use. It must be called before the first event.
func Follow(m *model.Model) {
	m.UseChanged = func(q *model.ClusterQueue) { noteUse(m, q) }
	m.WakeBeside = func(q *model.ClusterQueue, id quota.ID) { wakeBeside(m, q, id) }
}

// LeftBeside returns at most how much of a flavor and resource a ClusterQueue has left of its nominal quota when its due stage has started, and the stages that
// have a time limit have ended. reserved is what is charged for the due stage already.
func LeftBeside(m *model.Model, q *model.ClusterQueue, id quota.ID, reserved quota.Amount) quota.Amount {
	used := q.Node.Used(id)
	m.Tree.WhatIfEvicted(func() bool {
		used = min(used, q.Node.Used(id).Minus(reserved))
		return true
	})
	left := q.Node.Quota(id).Nominal.Minus(used).Minus(q.Due.Need.Of(id))
	for _, s := range q.Charged.All {
		if s.TimeLimit > 0 {
			left = left.Plus(s.Entry.Usage.Of(id))
		}
	}
	return left
}

// wakeBeside wakes the stages of a queue that wait for no more than what is left beside its due stage. If none is due any longer, all have been woken.
func wakeBeside(m *model.Model, q *model.ClusterQueue, id quota.ID) {
	if q.Due == nil || !q.PendingQueue.Sleeps(model.BesideDue(id)) {
		return
	}
	reserved := quota.Amount(0)
	if s := q.Due.Stage; s.PreemptQueue == q {
		reserved = s.PreemptReserved.Of(id)
	}
	if q.PendingQueue.Wake(model.BesideDue(id), int64(LeftBeside(m, q, id, reserved))) {
		m.Schedule.ScheduleCycle(q)
	}
}

// noteUse must be called when the due stage of a ClusterQueue or its charges have changed. It wakes the stages of other ClusterQueues that must not borrow as
// long as the due stage waits only for lent quota, when it no longer does; and where others may not use all nominal quota, also if the reservation now may need
// less of what they may use.
func noteUse(m *model.Model, q *model.ClusterQueue) {
	d := q.Due
	awaitedLent := d.AwaitsLent
	m.Tree.WhatIfEvicted(func() bool {
		d.AwaitsLent = awaitsLent(q)
		if HoldsUp(q) != d.Reserves {
			d.Reserves = !d.Reserves
			toggle(&q.CohortTree.ReservingQueues, q)
		}
		return true
	})
	before := d.Shared
	d.Shared = sharedReservation(q)
	if awaitedLent && !d.AwaitsLent || len(before.Without(d.Shared)) > 0 {
		for _, other := range d.Queues {
			m.Schedule.WakeTopic(other.CohortTree, other.DueTopic)
		}
	}
}

// sharedReservation returns how much of what others may use the reservation of a ClusterQueue needs, where they may not use all of its quota. For a co-admission
// group it is how much the group needs: its members start together, so that those of other ClusterQueues may start earlier if it is less.
func sharedReservation(q *model.ClusterQueue) quota.Usage {
	if !q.Node.KeepsAny(q.Due.Need) {
		return nil
	}
	var shared quota.Usage
	needed := q.Due.Need
	if len(q.Due.Queues) < 2 {
		needed = Reservation(q)
	}
	for _, c := range needed {
		shared.Add(c.ID, q.Node.PassedOn(c.ID, c.Amount))
	}
	return shared
}

// toggle puts a ClusterQueue in an ordered list, or removes it from that.
func toggle(list *[]*model.ClusterQueue, q *model.ClusterQueue) {
	at, isListed := slices.BinarySearchFunc(*list, q, compareQueues)
	if isListed {
		*list = slices.Delete(*list, at, at+1)
	} else {
		*list = slices.Insert(*list, at, q)
	}
}

// HoldsUp reports whether the due stage of a ClusterQueue may hold up stages that borrow quota which is free: it waits only for lent quota, or there may be
// quota to reserve for it, since its ClusterQueue does not use all nominal quota that it needs, or it needs more. It must be called as if all evicted stages
// had left.
func HoldsUp(q *model.ClusterQueue) bool {
	return awaitsLent(q) || slices.ContainsFunc(q.Due.Need, func(c quota.Charge) bool {
		nominal := q.Node.Quota(c.ID).Nominal
		return c.Amount > nominal || q.Node.Used(c.ID) < nominal
	})
}

// awaitsLent reports whether the due stage of a ClusterQueue would be within its nominal quota, so that it waits only for others to return what they have
// borrowed.
func awaitsLent(q *model.ClusterQueue) bool {
	return !slices.ContainsFunc(q.Due.Need, func(c quota.Charge) bool {
		need := uncharged(q, c.ID)
		return need > 0 && q.Node.Used(c.ID).Plus(need) > q.Node.Quota(c.ID).Nominal
	})
}

// nominalNeed returns how much the due stage of a ClusterQueue needs of its nominal quota.
func nominalNeed(q *model.ClusterQueue, id quota.ID) quota.Amount {
	return min(q.Due.Need.Of(id), q.Node.Quota(id).Nominal)
}

// uncharged returns the part of nominalNeed that is not charged for the due stage already, as for a preemptor.
func uncharged(q *model.ClusterQueue, id quota.ID) quota.Amount {
	need := nominalNeed(q, id)
	if s := q.Due.Stage; s.PreemptQueue == q {
		need = max(0, need.Minus(s.PreemptReserved.Of(id)))
	}
	return need
}
