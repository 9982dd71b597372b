package admission

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/tranche-dev/tranche/admission/quota"
)

// A peak reservation is quota that policy Reserve reserves for the later stages of a JobSet. No pod uses it, so that the borrowed part of it can
// be released at once: it yields to a stage that stays within the nominal quota of its own ClusterQueue. The JobSet keeps the quota of its
// stages, and the rest of its peak is reserved again when it fits. Like the quota of its stages it is released when the JobSet is preempted.
//
// No object records a peak reservation. Each follows from the quota, the charges and the plans, so that it is the same after a restart: the
// JobSet that has held quota for the longest time has the first choice of flavors (retryPeaks).

// borrowedPeaks returns the JobSets whose peak reservations borrow from the quota of a stage's own ClusterQueue: those of other ClusterQueues
// that use more than their nominal quota of some flavor and resource, as do the Cohorts above them up to the first common one. The JobSet that
// was submitted last is first.
func (e *Engine) borrowedPeaks(l *candidate) []*jobSet {
	if e.peaks == 0 {
		return nil
	}
	var all []*jobSet
	for _, q := range l.q.cohortTree.queues {
		if q == l.q {
			continue
		}
		for j := range q.keptFor {
			if slices.ContainsFunc(j.peakReserved, func(c quota.Charge) bool { return borrows(q.node, l.q.node, c.ID) }) {
				all = append(all, j)
			}
		}
	}
	slices.SortFunc(all, func(a, b *jobSet) int { return cmp.Or(b.submitted.Compare(a.submitted), cmp.Compare(b.uid, a.uid)) })
	return all
}

// dropPeaks releases the peak reservations that yield to a stage and that no longer fit, since the stage has got part of their quota.
func (e *Engine) dropPeaks(l *candidate) {
	for _, j := range l.reservers {
		if len(j.peakReserved) == 0 || e.canKeep(j) {
			continue
		}
		e.releasePeak(j)
		e.unkept[j] = struct{}{}
		e.renewEvictionUnitsOf(j)
		j.epoch++
		for _, s := range j.members {
			e.enqueue(s)
		}
	}
	l.reservers = slices.DeleteFunc(l.reservers, func(j *jobSet) bool { return j.keeper == nil })
}

// canKeep reports whether a peak reservation will fit when all stages that are being evicted have left.
func (e *Engine) canKeep(j *jobSet) bool {
	return e.tree.WhatIfEvicted(func() bool {
		j.keeper.node.Release(j.peakReserved)
		return j.keeper.node.Fits(j.peakReserved)
	})
}

// A peakChoice is the choice of flavors for a peak reservation.
type peakChoice struct {
	j *jobSet
	// options are what can be reserved, by preference, and chosen is the index of one of them, or noneFits.
	options []quota.Usage
	chosen  int
}

const noneFits = -1

func newPeakChoice(j *jobSet) *peakChoice {
	c := &peakChoice{j: j, chosen: noneFits}
	for _, peak := range j.claim.Peaks {
		c.options = append(c.options, peak.Without(j.claim.Held))
	}
	return c
}

// usage returns the chosen usage, or nothing.
func (c *peakChoice) usage() quota.Usage {
	if c.chosen == noneFits {
		return nil
	}
	return c.options[c.chosen]
}

// take charges the first option from an index on that fits, and reports whether there is one.
func (c *peakChoice) take(from int) bool {
	for i := from; i < len(c.options); i++ {
		if c.j.claimQueue.node.Fits(c.options[i]) {
			c.chosen = i
			c.j.claimQueue.node.Charge(c.options[i])
			return true
		}
	}
	c.chosen = noneFits
	return false
}

// giveWay takes a later option with which an option of another JobSet fits, and reports whether there is one.
func (c *peakChoice) giveWay(other *peakChoice) bool {
	before := c.chosen
	if before == noneFits || before == len(c.options)-1 {
		return false
	}
	c.j.claimQueue.node.Release(c.usage())
	for c.take(c.chosen + 1) {
		if other.take(0) {
			return true
		}
		c.j.claimQueue.node.Release(c.usage())
	}
	c.chosen = before
	c.j.claimQueue.node.Charge(c.usage())
	return false
}

// reservePeak makes the peak reservation of policy Reserve for a JobSet: the first of its peaks that fits now. If none fits, as after a quota cut,
// nothing is reserved until one does: two JobSets could each wait for the reservation of the other.
func (e *Engine) reservePeak(j *jobSet) {
	if j.claim == nil || e.policy(j.claimQueue, j) != Reserve {
		return
	}
	c := newPeakChoice(j)
	e.tree.WhatIf(func() bool { return c.take(0) })
	e.reserveChosenPeak(c)
}

// reserveChosenPeak makes the chosen reservation for a JobSet that has none.
func (e *Engine) reserveChosenPeak(c *peakChoice) {
	j := c.j
	if c.chosen != 0 {
		e.unkept[j] = struct{}{}
	}
	usage := c.usage()
	if len(usage) == 0 {
		return
	}
	j.keeper, j.peakReserved = j.claimQueue, usage
	j.keeper.advanceReserved.Add(j.peakReserved)
	j.keeper.keptFor[j] = struct{}{}
	j.keeper.node.Charge(j.peakReserved)
	e.peaks++
	e.noteReservation(j)
}

// retryPeaks chooses the peak reservations of a cohort tree again if one of its JobSets does not have its first option. If all have, this is the
// choice that any order makes.
func (e *Engine) retryPeaks() {
	groups := map[*cohortTree]struct{}{}
	for j := range e.unkept {
		groups[j.claimQueue.cohortTree] = struct{}{}
	}
	for _, g := range slices.SortedFunc(maps.Keys(groups), compareGroups) {
		e.choosePeaks(g)
	}
}

// choosePeaks makes the peak reservations of a cohort tree that follow from its charges. Preemptors whose reservations no longer fit are checked
// again, as all are after a restart.
func (e *Engine) choosePeaks(g *cohortTree) {
	choices := e.peakChoices(g)
	e.tree.WhatIf(func() bool {
		g.withdrawReservations(choices)
		for i, c := range choices {
			if !c.take(0) {
				letGiveWay(choices[:i], c)
			}
		}
		return true
	})
	choices = slices.DeleteFunc(choices, func(c *peakChoice) bool { return c.usage().Equal(c.j.peakReserved) })
	for _, c := range choices {
		e.releasePeak(c.j)
	}
	for _, c := range choices {
		e.reserveChosenPeak(c)
		e.renewEvictionUnitsOf(c.j)
		c.j.epoch++
		for _, s := range c.j.members {
			e.enqueue(s)
		}
	}
	if len(choices) > 0 {
		e.dropPreemptReservations(g.pledgers())
	}
}

// withdrawReservations removes the peak reservations, and those of preemptors except where peaks have yielded to them. It must be called within
// WhatIf.
func (g *cohortTree) withdrawReservations(peaks []*peakChoice) {
	for q := range g.pledging {
		for s := range q.preemptors {
			if !s.passesPeaks {
				q.node.Unreserve(s.preemptReserved)
			}
		}
	}
	for _, c := range peaks {
		c.j.claimQueue.node.Release(c.j.peakReserved)
	}
}

// letGiveWay lets one of the JobSets that chose before another one take a later option, so that the other one fits, too: each was admitted with
// the promise of its peak. The last one is asked first, and only a few are.
func letGiveWay(before []*peakChoice, c *peakChoice) {
	const most = 16
	for i := len(before) - 1; i >= max(0, len(before)-most); i-- {
		if before[i].giveWay(c) {
			return
		}
	}
}

// peakChoices returns the JobSets of a cohort tree that reserve their peak, or could not. The one that has held quota for the longest time is
// first.
func (e *Engine) peakChoices(g *cohortTree) []*peakChoice {
	var all []*peakChoice
	for j := range e.unkept {
		if j.claimQueue.cohortTree == g {
			all = append(all, newPeakChoice(j))
		}
	}
	for _, q := range g.queues {
		for j := range q.keptFor {
			if _, isListed := e.unkept[j]; !isListed {
				all = append(all, newPeakChoice(j))
			}
		}
	}
	slices.SortFunc(all, func(a, b *peakChoice) int {
		return cmp.Or(a.j.heldSince().Compare(b.j.heldSince()), a.j.submitted.Compare(b.j.submitted), cmp.Compare(a.j.uid, b.j.uid))
	})
	return all
}

// heldSince returns the time of the first reservation among the stages that hold quota.
func (j *jobSet) heldSince() time.Time {
	var first time.Time
	for _, s := range j.members {
		if s.entry.isCharged() && (first.IsZero() || s.reservedAt.Before(first)) {
			first = s.reservedAt
		}
	}
	return first
}
