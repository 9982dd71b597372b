// Package backfill decides which stages may overtake a due stage: one that has waited for quota for so long that quota is reserved for it.
//
// A stage may overtake if it cannot delay the due stage: it fits beside that in any case, or it surely ends before that can start. What counts is all that
// its JobSet may come to hold in the hold segment that it begins, since the later stages of a segment in progress overtake: stage safety has promised them
// quota, and the due stage may wait for what they hold.
//
// The due stage is entitled to nominal quota of its own ClusterQueue, whether it is free now or not. Beside it fits, in its own ClusterQueue, what stays
// within nominal quota together with it and all that JobSets in progress may still claim; and from other ClusterQueues, what borrows nothing that it needs.
// As long as its own ClusterQueue still uses nominal quota that it needs, they may borrow what it has not reserved yet. Decision 41 has the proof that it
// starts. A stage that needs more than that is due only while others leave it enough of their own nominal quota (decision 69).
package backfill

import (
	"slices"
	"time"

	"github.com/tranche-dev/tranche/admission/internal/model"
	"github.com/tranche-dev/tranche/admission/preempt"
	"github.com/tranche-dev/tranche/admission/quota"
)

// An Entrant is a stage that would be admitted.
type Entrant struct {
	Stage *model.Stage
	Queue *model.ClusterQueue
	// Peaks are alternatives for the most that its JobSet would hold in addition before it releases quota.
	Peaks []quota.Usage
	// End is when it has surely released its quota, or zero if it may hold it longer.
	End time.Time
	// Victims leave before it is admitted, and Yielding are preemptors whose reservations are not charged now.
	Victims  []preempt.Victim
	Yielding []*model.Stage
	// IsCharged is true if all charges and reservations of other ClusterQueues are charged now.
	IsCharged bool
}

// Delayed returns the due stage that the stage might delay: that of its own ClusterQueue, or the first of the others of its cohort tree, by the name of their
// ClusterQueues. It is nil if the stage may overtake all of them.
func (e *Entrant) Delayed(m *model.Model) *model.Due {
	// What a stage has evicted others for is not kept for another one: its victims, which may be due as soon as they have left, would start again and be
	// evicted again.
	if e.Stage.Element.Passes() || m.Finder.History.IsPreemptor(e.Stage.UID) {
		return nil
	}
	loans := e.loans(m)
	if q := e.Queue; q.Due != nil && e.delays(m, q, loans) {
		return q.Due
	}
	for _, q := range e.others(loans) {
		if q != e.Queue && e.delays(m, q, loans) {
			return q.Due
		}
	}
	return nil
}

// others returns the ClusterQueues whose due stages the stage might delay, besides that of its own: none if it borrows nothing, and only those that reserve
// quota if there is quota for it.
func (e *Entrant) others(loans []loan) []*model.ClusterQueue {
	switch {
	case slices.ContainsFunc(loans, func(l loan) bool { return len(l.borrowed) == 0 }):
		return nil
	case e.IsCharged && slices.ContainsFunc(loans, loan.fits):
		return e.Queue.CohortTree.ReservingQueues
	}
	return e.Queue.CohortTree.DueQueues
}

// delays reports whether the stage might delay the due stage of a ClusterQueue.
func (e *Entrant) delays(m *model.Model, q *model.ClusterQueue, loans []loan) bool {
	return !IsFor(q.Due, e.Stage) && !e.precedes(q) && !e.fitsBeside(m, q, loans) && !e.endsBefore(m, q)
}

// precedes reports whether the stage need not wait for the due stage of a ClusterQueue: it comes first in that queue, or could preempt it there, so that the
// two would take turns; or that one would borrow as well.
func (e *Entrant) precedes(q *model.ClusterQueue) bool {
	if q == e.Queue {
		return HasPrecedence(e.Stage, q.Due) || e.Stage.MayPreemptEarlier(q.Due.Stage, q)
	}
	return q.Due.Borrows && ComesFirst(e.Stage, q.Due)
}

// afterVictims calls a function as if the victims of the stage had left.
func (e *Entrant) afterVictims(m *model.Model, f func()) {
	m.Tree.WhatIfEvicted(func() bool {
		for _, v := range e.Victims {
			model.EvictionUnitOf(v.Holder).Queue.Node.Release(v.Holder.Usage)
		}
		f()
		return true
	})
}

// A loan is one of Peaks, as others see it.
type loan struct {
	peak quota.Usage
	// borrowed is the part of it with which the ClusterQueue would use more than its nominal quota: together with all that JobSets in progress there may
	// still claim.
	borrowed quota.Usage
	// spare is how much more of each part of the peak is available than it needs, or negative.
	spare []quota.Amount
}

// fits reports whether the peak is available.
func (l loan) fits() bool {
	return !slices.ContainsFunc(l.spare, func(a quota.Amount) bool { return a < 0 })
}

// loans returns those of Peaks.
func (e *Entrant) loans(m *model.Model) []loan {
	loans := make([]loan, len(e.Peaks))
	e.afterVictims(m, func() {
		for i, peak := range e.Peaks {
			l := loan{peak: peak, spare: make([]quota.Amount, len(peak))}
			for k, c := range peak {
				l.spare[k] = e.Queue.Node.Available(c.ID).Minus(c.Amount)
				if c.Amount > 0 && e.wouldUse(m, c) > e.Queue.Node.Quota(c.ID).Nominal {
					l.borrowed = append(l.borrowed, c)
				}
			}
			loans[i] = l
		}
	})
	return loans
}

// wouldUse returns what the ClusterQueue of the stage would use with another charge, and with all that its other JobSets in progress may still claim.
func (e *Entrant) wouldUse(m *model.Model, c quota.Charge) quota.Amount {
	claimed := e.Queue.Outstanding.Of(c.ID).Minus(m.JobSets[e.Stage.OwnerUID].OutstandingIn(e.Queue).Of(c.ID))
	return e.Queue.Node.Used(c.ID).Plus(c.Amount).Plus(claimed)
}

// fitsBeside reports whether the stage fits beside the due stage of a ClusterQueue in any case.
func (e *Entrant) fitsBeside(m *model.Model, q *model.ClusterQueue, loans []loan) bool {
	if q != e.Queue && slices.ContainsFunc(loans, func(l loan) bool { return !needsOf(q, l.borrowed) }) {
		return true
	}
	fits := false
	e.afterVictims(m, func() {
		if q == e.Queue {
			fits = e.fitsWithin(m, q)
		} else {
			fits = !awaitsLent(q) && e.fitsBesideReserved(m, q, loans)
		}
	})
	return fits
}

// needsOf reports whether the due stage of a ClusterQueue needs nominal quota of a flavor and resource of a usage.
func needsOf(q *model.ClusterQueue, u quota.Usage) bool {
	return slices.ContainsFunc(u, func(c quota.Charge) bool { return nominalNeed(q, c.ID) > 0 })
}

// fitsWithin reports whether the stage fits within the nominal quota that the due stage of its own ClusterQueue leaves.
func (e *Entrant) fitsWithin(m *model.Model, q *model.ClusterQueue) bool {
	return slices.ContainsFunc(e.Peaks, func(peak quota.Usage) bool {
		return !slices.ContainsFunc(peak, func(c quota.Charge) bool {
			return c.Amount > 0 && nominalNeed(q, c.ID) > 0 && e.wouldUse(m, c).Plus(uncharged(q, c.ID)) > q.Node.Quota(c.ID).Nominal
		})
	})
}

// fitsBesideReserved reports whether there is quota for one of the peaks beside what the due stage of another ClusterQueue reserves.
func (e *Entrant) fitsBesideReserved(m *model.Model, q *model.ClusterQueue, loans []loan) bool {
	s := q.Due.Stage
	reserved := s.PreemptReserved
	switch {
	case s.PreemptQueue == nil:
		reserved = Reservation(q)
	case !slices.Contains(e.Yielding, s):
		reserved = nil
	}
	return slices.ContainsFunc(loans, func(l loan) bool {
		return l.fits() && (l.isFar(reserved) || m.Tree.WhatIf(func() bool {
			q.Node.Reserve(reserved)
			return e.Queue.Node.Fits(l.peak)
		}))
	})
}

// isFar reports whether the peak is available whatever ClusterQueue a reservation is in.
func (l loan) isFar(reserved quota.Usage) bool {
	for i, c := range l.peak {
		if l.spare[i] < reserved.Of(c.ID) {
			return false
		}
	}
	return true
}

// Reservation returns what the due stage of a ClusterQueue reserves: what its ClusterQueue does not use of its nominal quota, up to its need, and all of its
// need if that is more than the nominal quota and the stage is the first due one of the cohort tree. It is not charged: Delayed counts with it.
func Reservation(q *model.ClusterQueue) quota.Usage {
	var reserved quota.Usage
	for _, c := range q.Due.Need {
		nominal := q.Node.Quota(c.ID).Nominal
		amount := min(c.Amount, max(0, nominal.Minus(q.Node.Used(c.ID))))
		if c.Amount > nominal && isFirst(q) {
			amount = c.Amount
		}
		reserved.Add(c.ID, amount)
	}
	return reserved
}

// isFirst reports whether the due stage of a ClusterQueue comes before those of all others of its cohort tree, except for its co-admission group.
func isFirst(q *model.ClusterQueue) bool {
	return !slices.ContainsFunc(q.CohortTree.DueQueues, func(other *model.ClusterQueue) bool { return other.Due.Place.Compare(q.Due.Place) < 0 })
}
