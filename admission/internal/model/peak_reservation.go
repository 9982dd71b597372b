package model

import (
	"github.com/tranche-dev/tranche/admission/internal/queuespec"
	"github.com/tranche-dev/tranche/admission/quota"
)

// A peak reservation is quota that policy Reserve reserves for the later stages of a JobSet. No pod uses it, so that the borrowed part of it can
// be released at once: it yields to a stage that stays within the nominal quota of its own ClusterQueue. The JobSet keeps the quota of its
// stages, and the rest of its peak is reserved again when it fits. Like the quota of its stages it is released when the JobSet is preempted.
//
// No object records a peak reservation. Each follows from the quota, the charges and the plans, so that it is the same after a restart: the
// JobSet that has held quota for the longest time has the first choice of flavors (retryPeaks).

// A PeakChoice is the choice of flavors for a peak reservation.
type PeakChoice struct {
	JobSet *JobSet
	// options are what can be reserved, by preference, and chosen is the index of one of them, or noneFits.
	options []quota.Usage
	chosen  int
}

const noneFits = -1

// NewPeakChoice returns the choice for a JobSet with a claim, in which nothing is chosen yet.
func NewPeakChoice(j *JobSet) *PeakChoice {
	c := &PeakChoice{JobSet: j, chosen: noneFits}
	for _, peak := range j.Claim.Peaks {
		c.options = append(c.options, peak.Without(j.Claim.Held))
	}
	return c
}

// Usage returns the chosen usage, or nothing.
func (c *PeakChoice) Usage() quota.Usage {
	if c.chosen == noneFits {
		return nil
	}
	return c.options[c.chosen]
}

// Take charges the first option from an index on that fits, and reports whether there is one.
func (c *PeakChoice) Take(from int) bool {
	for i := from; i < len(c.options); i++ {
		if c.JobSet.ClaimQueue.Node.Fits(c.options[i]) {
			c.chosen = i
			c.JobSet.ClaimQueue.Node.Charge(c.options[i])
			return true
		}
	}
	c.chosen = noneFits
	return false
}

// GiveWay takes a later option with which an option of another JobSet fits, and reports whether there is one.
func (c *PeakChoice) GiveWay(other *PeakChoice) bool {
	before := c.chosen
	if before == noneFits || before == len(c.options)-1 {
		return false
	}
	c.JobSet.ClaimQueue.Node.Release(c.Usage())
	for c.Take(c.chosen + 1) {
		if other.Take(0) {
			return true
		}
		c.JobSet.ClaimQueue.Node.Release(c.Usage())
	}
	c.chosen = before
	c.JobSet.ClaimQueue.Node.Charge(c.Usage())
	return false
}

// reservePeak makes the peak reservation of policy Reserve for a JobSet: the first of its peaks that fits now. If none fits, as after a quota cut,
// nothing is reserved until one does: two JobSets could each wait for the reservation of the other. Another engine would not respect it.
func (m *Model) reservePeak(j *JobSet) {
	if j.Claim == nil || j.ClaimQueue.CohortTree.Leader != queuespec.Tranche || m.Policy(j.ClaimQueue, j) != Reserve {
		return
	}
	c := NewPeakChoice(j)
	m.Tree.WhatIf(func() bool { return c.Take(0) })
	m.ReserveChosenPeak(c)
}

// ReserveChosenPeak makes the chosen reservation for a JobSet that has none.
func (m *Model) ReserveChosenPeak(c *PeakChoice) {
	j := c.JobSet
	if c.chosen != 0 {
		m.UnreservedPeaks[j] = struct{}{}
	}
	usage := c.Usage()
	if len(usage) == 0 {
		return
	}
	j.PeakReserved = usage
	j.ClaimQueue.AdvanceReserved.Add(usage)
	j.ClaimQueue.PeakReservers[j] = struct{}{}
	j.ClaimQueue.Node.Charge(usage)
	m.Peaks++
	m.noteReservation(j)
}

// WithdrawReservations removes the peak reservations, and those of preemptors except where peaks have yielded to them. It must be called within
// WhatIf.
func (g *CohortTree) WithdrawReservations(peaks []*PeakChoice) {
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
