package cycle

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/tranche-dev/tranche/admission/internal/check"
	"github.com/tranche-dev/tranche/admission/internal/model"
)

// dropPeaks releases the peak reservations that yield to a stage and that no longer fit, since the stage has got part of their quota.
func (cy *Cycle) dropPeaks(l *check.Candidate) {
	for _, j := range l.Reservers {
		if len(j.PeakReserved) == 0 || cy.canStillHave(j.ClaimQueue, j.PeakReserved) {
			continue
		}
		model.ReleasePeaks(cy.m, []*model.JobSet{j}, func() {})
		cy.m.UnreservedPeaks[j] = struct{}{}
		cy.m.RenewEvictionUnitsOf(j)
		j.Epoch++
		for _, s := range j.Members {
			cy.m.Enqueue(s)
		}
	}
	l.Reservers = slices.DeleteFunc(l.Reservers, func(j *model.JobSet) bool { return len(j.PeakReserved) == 0 })
}

// reservePromisedPeak makes the peak reservation for an admitted stage if reservations that do not count for the stage were in its way. Otherwise
// the next stage of the cycle could take that quota.
func (cy *Cycle) reservePromisedPeak(l *check.Candidate) {
	if _, isUnreserved := cy.m.UnreservedPeaks[l.JobSet]; isUnreserved {
		cy.choosePeaks(l.Queue.CohortTree)
	}
}

// retryPeaks chooses the peak reservations of a cohort tree again if one of its JobSets does not have its first option. If all have, this is the
// choice that any order makes.
func (cy *Cycle) retryPeaks() {
	groups := map[*model.CohortTree]struct{}{}
	for j := range cy.m.UnreservedPeaks {
		groups[j.ClaimQueue.CohortTree] = struct{}{}
	}
	for _, g := range slices.SortedFunc(maps.Keys(groups), model.CompareGroups) {
		cy.choosePeaks(g)
	}
}

// choosePeaks makes the peak reservations of a cohort tree that follow from its charges. Preemptors whose reservations no longer fit are checked
// again, as all are after a restart.
func (cy *Cycle) choosePeaks(g *model.CohortTree) {
	choices := cy.peakChoices(g)
	cy.m.Tree.WhatIf(func() bool {
		withdrawReservations(g, choices)
		for i, c := range choices {
			if !c.Take(0) {
				letGiveWay(choices[:i], c)
			}
		}
		return true
	})
	choices = slices.DeleteFunc(choices, func(c *model.PeakChoice) bool { return c.Usage().Equal(c.JobSet.PeakReserved) })
	jobSets := make([]*model.JobSet, len(choices))
	for i, c := range choices {
		jobSets[i] = c.JobSet
	}
	model.ReleasePeaks(cy.m, jobSets, func() {
		for _, c := range choices {
			cy.m.ReserveChosenPeak(c)
		}
	})
	for _, j := range jobSets {
		cy.m.RenewEvictionUnitsOf(j)
		j.Epoch++
		for _, s := range j.Members {
			cy.m.Enqueue(s)
		}
	}
	if len(choices) > 0 {
		cy.dropPreemptReservations(g.Preemptors())
	}
}

// letGiveWay lets one of the JobSets that chose before another one take a later option, so that the other one fits, too: each was admitted with
// the promise of its peak. The last one is asked first, and only a few are.
func letGiveWay(before []*model.PeakChoice, c *model.PeakChoice) {
	const most = 16
	for i := len(before) - 1; i >= max(0, len(before)-most); i-- {
		if before[i].GiveWay(&c.Choice) {
			return
		}
	}
}

// peakChoices returns the JobSets of a cohort tree that reserve their peak, or could not. The one that has held quota for the longest time is
// first.
func (cy *Cycle) peakChoices(g *model.CohortTree) []*model.PeakChoice {
	var all []*model.PeakChoice
	for j := range cy.m.UnreservedPeaks {
		if j.ClaimQueue.CohortTree == g {
			all = append(all, model.NewPeakChoice(j))
		}
	}
	for _, q := range g.Queues {
		for j := range q.PeakReservers {
			if _, isListed := cy.m.UnreservedPeaks[j]; !isListed {
				all = append(all, model.NewPeakChoice(j))
			}
		}
	}
	slices.SortFunc(all, func(a, b *model.PeakChoice) int {
		heldSince := func(c *model.PeakChoice) time.Time { return c.JobSet.EvictionUnit.Holder.Reserved }
		return cmp.Or(heldSince(a).Compare(heldSince(b)), a.JobSet.Submitted.Compare(b.JobSet.Submitted), cmp.Compare(a.JobSet.UID, b.JobSet.UID))
	})
	return all
}

// withdrawReservations removes the peak reservations, and those of preemptors except where peaks have yielded to them. It must be called within WhatIf.
func withdrawReservations(g *model.CohortTree, peaks []*model.PeakChoice) {
	for q := range g.PreemptorQueues {
		for s := range q.Preemptors {
			if !s.PassesPeaks {
				q.Node.Unreserve(s.PreemptReserved)
			}
		}
	}
	for _, c := range peaks {
		c.JobSet.ClaimQueue.Node.Release(c.JobSet.PeakReserved)
	}
}
