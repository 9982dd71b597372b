// Package backfill decides which stages may overtake a due stage: one that has waited for quota for so long that quota is reserved for it.
//
// A stage may overtake if it cannot delay the due stage: it fits beside that in any case, or it surely ends before that can start. What counts is all that
// its JobSet may come to hold in the hold segment that it begins, since the later stages of a segment in progress overtake: stage safety has promised them
// quota, and the due stage may wait for what they hold.
//
// The due stage is entitled to nominal quota of its own ClusterQueue, whether it is free now or not. Beside it fits, in its own ClusterQueue, what stays
// within nominal quota together with it and all that JobSets in progress may still claim; and from other ClusterQueues, what borrows nothing that it needs.
// As long as its own ClusterQueue still uses nominal quota that it needs, they may borrow what it has not reserved yet. Decision 41 has the proof that it
// starts.
package backfill

import (
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
	// Victims leave before it is admitted, and Yielding are stages whose reservations are not charged now.
	Victims  []preempt.Victim
	Yielding []*model.Stage
}

// Delayed returns what the stage might delay: the first of the due stages of its cohort tree, by the name of their ClusterQueues, that it may not overtake,
// or nil. It must be called as if the reservations of Yielding were released.
func (e *Entrant) Delayed(m *model.Model) *model.Due {
	if e.Stage.Element.Passes() {
		return nil
	}
	for _, q := range e.Queue.CohortTree.DueQueues {
		if !IsFor(q.Due, e.Stage) && !e.precedes(q) && !e.fitsBeside(m, q) && !e.endsBefore(m, q) {
			return q.Due
		}
	}
	return nil
}

// precedes reports whether the stage need not wait for the due stage of a ClusterQueue: it comes first in that queue, or could preempt it there, so that the
// two would take turns; or that one would borrow as well.
func (e *Entrant) precedes(q *model.ClusterQueue) bool {
	if q == e.Queue {
		return HasPrecedence(e.Stage, q.Due) || e.Stage.MayPreemptEarlier(q.Due.Stage, q)
	}
	return exceeds(q) && ComesFirst(e.Stage, q.Due)
}

// exceeds reports whether the due stage of a ClusterQueue needs more than its nominal quota.
func exceeds(q *model.ClusterQueue) bool {
	for _, c := range q.Due.Need {
		if c.Amount > q.Node.Quota(c.ID).Nominal {
			return true
		}
	}
	return false
}

// fitsBeside reports whether the stage fits beside the due stage of a ClusterQueue in any case.
func (e *Entrant) fitsBeside(m *model.Model, q *model.ClusterQueue) bool {
	fits := false
	m.Tree.WhatIfEvicted(func() bool {
		e.releaseVictims()
		fits = e.staysWithin(m, q)
		return true
	})
	return fits
}

func (e *Entrant) releaseVictims() {
	for _, v := range e.Victims {
		model.EvictionUnitOf(v.Holder).Queue.Node.Release(v.Holder.Usage)
	}
}

func (e *Entrant) staysWithin(m *model.Model, q *model.ClusterQueue) bool {
	need, claims := nominalNeed(q), e.claims(m)
	for _, peak := range e.Peaks {
		if q == e.Queue && isWithinNominal(q, need, peak, claims, uncharged(q, need)) {
			return true
		}
		if q != e.Queue && (isWithinNominal(e.Queue, need, peak, claims) || e.borrowsUnreserved(m, q, peak)) {
			return true
		}
	}
	return false
}

// borrowsUnreserved reports whether the stage may borrow although there is a due stage in another ClusterQueue: that one still uses nominal quota that the
// due stage needs, so that this one does not wait for borrowers alone.
func (e *Entrant) borrowsUnreserved(m *model.Model, q *model.ClusterQueue, peak quota.Usage) bool {
	need := nominalNeed(q)
	if isWithinNominal(q, need, uncharged(q, need)) {
		return false
	}
	return m.Tree.WhatIf(func() bool {
		for _, s := range e.Yielding {
			if s == q.Due.Stage && s.PreemptQueue != nil {
				s.PreemptQueue.Node.Reserve(s.PreemptReserved)
			}
		}
		return e.Queue.Node.Fits(peak)
	})
}

// nominalNeed returns what the due stage of a ClusterQueue needs of its nominal quota.
func nominalNeed(q *model.ClusterQueue) quota.Usage {
	var need quota.Usage
	for _, c := range q.Due.Need {
		if amount := min(c.Amount, q.Node.Quota(c.ID).Nominal); amount > 0 {
			need.Add(c.ID, amount)
		}
	}
	return need
}

// uncharged returns the part of the need of the due stage of a ClusterQueue that is not charged for it already, as for a preemptor.
func uncharged(q *model.ClusterQueue, need quota.Usage) quota.Usage {
	if s := q.Due.Stage; s.PreemptQueue == q && !s.ReservesNominal {
		return need.Without(s.PreemptReserved)
	}
	return need
}

// isWithinNominal reports whether a ClusterQueue would stay within its nominal quota with some more usages, of the resources that are
// needed.
func isWithinNominal(q *model.ClusterQueue, need, peak quota.Usage, more ...quota.Usage) bool {
	for _, c := range peak {
		if c.Amount == 0 || need.Of(c.ID) == 0 {
			continue
		}
		used := q.Node.Used(c.ID).Plus(c.Amount)
		for _, usage := range more {
			used = used.Plus(usage.Of(c.ID))
		}
		if used > q.Node.Quota(c.ID).Nominal {
			return false
		}
	}
	return true
}

// claims returns what the other JobSets in progress of the stage's ClusterQueue may still come to hold before they release quota, without what is
// reserved for them.
func (e *Entrant) claims(m *model.Model) quota.Usage {
	var sum quota.Usage
	for _, c := range m.Bank.ClaimsUnderRoot(e.Queue.Bare) {
		j := m.JobSets[c.OwnerUID]
		if c.Node != e.Queue.Bare || j == nil || c.OwnerUID == e.Stage.OwnerUID {
			continue
		}
		var most quota.Usage
		for _, peak := range c.Peaks {
			for _, more := range peak.Without(c.Held).Without(j.PeakReserved) {
				most.Add(more.ID, max(0, more.Amount.Minus(most.Of(more.ID))))
			}
		}
		sum.AddAll(most)
	}
	return sum
}
