package backfill

import (
	"slices"

	"github.com/tranche-dev/tranche/admission/internal/model"
	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/admission/safety"
)

// A Withheld is quota that a stage would need, and that is not released however long it waits.
type Withheld struct {
	// Lacks is how much the stage lacks.
	Lacks quota.Usage
	// Lenders are the ClusterQueues that use nominal quota of that, or reserve it for their own due stages. They are ordered by name. There are none if the stage
	// lacks quota even if they use nothing, because of what its own JobSet holds.
	Lenders []*model.ClusterQueue
	// IsBehind is true if a JobSet in the ClusterQueue of the stage holds quota, and does not release it since it waits for the lenders itself.
	IsBehind bool
}

// WithheldFrom returns what a stage, or the stages of a co-admission group, would lack if all quota that is in use in their own ClusterQueues were released,
// and all other ClusterQueues had returned what they have borrowed. It is nil if nothing is lacking: then both come true after finitely many completions once
// quota is kept for the stages.
//
// But a ClusterQueue may use its own nominal quota without end, also if all of its stages have time limits, since others take their place. So a stage that
// waits for that is not due: what would be kept for it could idle as long. Neither is one that waits for a JobSet of its own ClusterQueue which itself
// waits for that, and what its own JobSet holds is not released either.
func WithheldFrom(m *model.Model, dues []model.Due) *Withheld {
	var trees []*model.CohortTree
	for i := range dues {
		g := dues[i].Stage.QueuedIn.CohortTree
		if !slices.Contains(trees, g) && dependsOnLenders(m, &dues[i]) {
			trees = append(trees, g)
		}
	}
	var w Withheld
	for _, g := range trees {
		m.Tree.WhatIfEvicted(func() bool {
			w.add(m, g, slices.DeleteFunc(slices.Clone(dues), func(d model.Due) bool { return d.Stage.QueuedIn.CohortTree != g }))
			return true
		})
	}
	if len(w.Lacks) == 0 {
		return nil
	}
	return &w
}

// dependsOnLenders reports whether a stage can start only with quota that other ClusterQueues lend, since it or a JobSet in its ClusterQueue needs more than nominal
// quota. It does not if its victims are leaving.
func dependsOnLenders(m *model.Model, d *model.Due) bool {
	return d.Stage.PreemptQueue == nil && (ExceedsNominal(d.Stage.QueuedIn, d.Need) || len(borrowers(m, d)) > 0)
}

// borrowers returns the claims in the ClusterQueue of a stage of JobSets that come to need more than its nominal quota, and that hold quota which the stage
// needs. There are none if its victims are leaving.
func borrowers(m *model.Model, d *model.Due) []*safety.Claim {
	q := d.Stage.QueuedIn
	if d.Stage.PreemptQueue != nil {
		return nil
	}
	return slices.DeleteFunc(m.Bank.ClaimsUnderRoot(q.Bare.Root()), func(c *safety.Claim) bool {
		return c.Node != q.Bare || !slices.ContainsFunc(c.Held, func(h quota.Charge) bool { return d.Need.Of(h.ID) > 0 }) ||
			slices.ContainsFunc(c.Peaks, func(peak quota.Usage) bool { return !ExceedsNominal(q, peak) })
	})
}

// ExceedsNominal reports whether a stage that needs this has to borrow in a ClusterQueue.
func ExceedsNominal(q *model.ClusterQueue, need quota.Usage) bool {
	return slices.ContainsFunc(need, func(c quota.Charge) bool { return c.Amount > q.Node.Quota(c.ID).Nominal })
}

// add adds what is withheld from some stages in a cohort tree. It changes what is charged.
func (w *Withheld) add(m *model.Model, g *model.CohortTree, dues []model.Due) {
	var ids quota.Usage
	for i := range dues {
		ids.AddAll(dues[i].Need)
		for _, c := range borrowers(m, &dues[i]) {
			for _, peak := range c.Peaks {
				ids.AddAll(peak)
			}
		}
	}
	isLender := func(q *model.ClusterQueue) bool {
		return !slices.ContainsFunc(dues, func(d model.Due) bool { return d.Stage.QueuedIn == q })
	}
	for _, q := range g.Queues {
		for _, c := range ids {
			used, left := q.Node.Used(c.ID), quota.Amount(0)
			if isLender(q) {
				left = min(used.Plus(reservedBefore(q, c.ID, dues[0].Stage)), q.Node.Quota(c.ID).Nominal)
			}
			q.Node.Release(quota.Usage{{ID: c.ID, Amount: max(0, used.Minus(left))}})
			q.Node.Charge(quota.Usage{{ID: c.ID, Amount: max(0, left.Minus(used))}})
		}
	}
	w.IsBehind = chargeLasting(m, dues) || w.IsBehind
	var lacks quota.Usage
	for i := range dues {
		d := &dues[i]
		for _, c := range d.Need {
			lacks.Add(c.ID, c.Amount.Minus(max(0, d.Stage.QueuedIn.Node.Available(c.ID))))
		}
		d.Stage.QueuedIn.Node.Charge(d.Need)
	}
	w.Lacks.AddAll(lacks)
	w.Lenders = append(w.Lenders, slices.DeleteFunc(slices.Clone(g.Queues), func(q *model.ClusterQueue) bool {
		return !isLender(q) || !slices.ContainsFunc(lacks, func(c quota.Charge) bool { return q.Node.Used(c.ID) > 0 })
	})...)
}

// chargeLasting charges what JobSets hold in the ClusterQueues of some stages that is not released before the stages start: their own JobSets, and those that could
// not get what they come to need even if nothing else were charged there. It reports whether there are such others.
func chargeLasting(m *model.Model, dues []model.Due) (hasOthers bool) {
	var lasting []*safety.Claim
	var in []*quota.Node
	add := func(c *safety.Claim, q *model.ClusterQueue) {
		if !slices.Contains(lasting, c) {
			lasting, in = append(lasting, c), append(in, q.Node)
		}
	}
	for i := range dues {
		q := dues[i].Stage.QueuedIn
		if own := m.JobSets[dues[i].Stage.OwnerUID]; own != nil && own.Claim != nil && own.ClaimQueue == q {
			add(own.Claim, q)
		}
	}
	own := len(lasting)
	for i := range dues {
		q := dues[i].Stage.QueuedIn
		for _, c := range borrowers(m, &dues[i]) {
			if !slices.ContainsFunc(c.Peaks, q.Node.Fits) {
				add(c, q)
			}
		}
	}
	for i, c := range lasting {
		in[i].Charge(c.Held)
	}
	return len(lasting) > own
}

// reservedBefore returns what a ClusterQueue reserves of its nominal quota for a due stage that comes before another stage. So stages that wait for each other's
// ClusterQueues are due in one order: past usage, which gives each ClusterQueue another one, does not count.
func reservedBefore(q *model.ClusterQueue, id quota.ID, s *model.Stage) quota.Amount {
	if q.Due == nil || q.IsUsageBased || s.QueuedIn.IsUsageBased || q.Due.Place.Compare(Place(s)) > 0 {
		return 0
	}
	return uncharged(q, id)
}

// EndWithheld ends the reservations of a cohort tree for stages that have to wait for lenders since others were admitted, and returns those.
func EndWithheld(m *model.Model, g *model.CohortTree) []*model.Due {
	var ended []*model.Due
	for _, q := range slices.Clone(g.DueQueues) {
		if q.Due != nil && q.Due.Borrows != dependsOnLenders(m, q.Due) {
			// JobSets of the ClusterQueue have begun or ended, or a preemptor no longer waits for victims: others that come first may overtake, or no longer.
			q.Due.Borrows = !q.Due.Borrows
			m.Schedule.WakeTopic(g, q.DueTopic)
		}
		if q.Due != nil && WithheldFrom(m, duesOf(q)) != nil {
			due := q.Due
			ended = append(ended, due)
			m.EndDue(q)
			m.Enqueue(due.Stage)
		}
	}
	return ended
}

// duesOf returns what is due together with the due stage of a ClusterQueue, and that itself.
func duesOf(q *model.ClusterQueue) []model.Due {
	var dues []model.Due
	for _, other := range q.Due.Queues {
		dues = append(dues, *other.Due)
	}
	return dues
}
