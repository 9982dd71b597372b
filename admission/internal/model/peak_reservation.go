package model

import (
	"slices"

	"github.com/tranche-dev/tranche/admission/internal/alternative"
	"github.com/tranche-dev/tranche/admission/internal/queuespec"
	"github.com/tranche-dev/tranche/admission/internal/settings"
	"github.com/tranche-dev/tranche/admission/quota"
)

// A peak reservation is quota that policy Reserve reserves for the later stages of a JobSet, and policy Safe for those that start when a stage with
// accelerators is ready (see CoStarted). No pod uses it, so that the borrowed part of it can
// be released at once: it yields to a stage that stays within the nominal quota of its own ClusterQueue. The JobSet keeps the quota of its
// stages, and the rest of its peak is reserved again when it fits. Like the quota of its stages it is released when the JobSet is preempted.
//
// No object records a peak reservation. Each follows from the quota, the charges and the plans, so that it is the same after a restart: the
// JobSet that has held quota for the longest time has the first choice of flavors (retryPeaks).

// A PeakChoice is the choice of flavors for a peak reservation.
type PeakChoice struct {
	alternative.Choice
	JobSet *JobSet
}

// NewPeakChoice returns the choice for a JobSet with a claim, in which nothing is chosen yet.
func NewPeakChoice(j *JobSet) *PeakChoice {
	return &PeakChoice{Choice: alternative.New(j.ClaimQueue.Node, j.peakOptions), JobSet: j}
}

// peakOptionsOf returns what a JobSet with a claim may reserve, by preference.
func (m *Model) peakOptionsOf(j *JobSet) []quota.Usage {
	peaks := j.Claim.Peaks
	if m.Policy(j.ClaimQueue, j) != settings.Reserve {
		peaks = j.coStartPeaks(m)
	}
	options := make([]quota.Usage, len(peaks))
	for i, peak := range peaks {
		options[i] = peak.Without(j.Claim.Held)
	}
	return options
}

// HasStalePeakOptions reports whether a JobSet with a peak reservation, or without the one that it should have, could choose other ones than its last update has
// found.
func (m *Model) HasStalePeakOptions(j *JobSet) bool {
	_, isUnreserved := m.UnreservedPeaks[j]
	return (isUnreserved || len(j.PeakReserved) > 0) && !m.Schedule.IsStale && !slices.EqualFunc(j.peakOptions, m.peakOptionsOf(j), quota.Usage.Equal)
}

// reservePeak makes the peak reservation for a JobSet: the first of its peaks that fits now. If none fits, as after a quota cut,
// nothing is reserved until one does: two JobSets could each wait for the reservation of the other. Another engine would not respect it.
func (m *Model) reservePeak(j *JobSet) {
	j.peakOptions = nil
	isReserved := j.Claim != nil && j.ClaimQueue.CohortTree.Leader == queuespec.Tranche
	if !isReserved || m.Policy(j.ClaimQueue, j) == settings.Reserve {
		m.Timers.Drop(&j.Timer)
	} else {
		isReserved = j.setCoStartExpiry(m)
	}
	if !isReserved {
		return
	}
	j.peakOptions = m.peakOptionsOf(j)
	if c := NewPeakChoice(j); !c.IsEmpty() {
		m.Tree.WhatIf(func() bool { return c.Take(0) })
		m.ReserveChosenPeak(c)
	}
}

// ReserveChosenPeak makes the chosen reservation for a JobSet that has none.
func (m *Model) ReserveChosenPeak(c *PeakChoice) {
	j := c.JobSet
	if !c.IsFirst() {
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
	j.noteOutstanding()
	m.noteBorrowing(j.ClaimQueue, usage)
	m.noteUse(j.ClaimQueue)
	m.Peaks++
	m.noteReservation(j)
}

// A formerPeak is a peak reservation that has been released, and that its JobSet may get back in part.
type formerPeak struct {
	jobSet *JobSet
	queue  *ClusterQueue
	usage  quota.Usage
	// top is the topmost node that the release reaches.
	top *quota.Node
}

// ReleasePeaks releases the peak reservations of some JobSets, calls a function that makes others, and then wakes the stages that wait for what is left. So
// no stage is woken for quota that is reserved again at once.
func ReleasePeaks(m *Model, jobSets []*JobSet, reserve func()) {
	former := make([]formerPeak, len(jobSets))
	for i, j := range jobSets {
		former[i] = takePeak(m, j)
	}
	reserve()
	for _, f := range former {
		f.wake(m)
	}
}

// takePeak releases the peak reservation of a JobSet without waking any stage.
func takePeak(m *Model, j *JobSet) formerPeak {
	delete(m.UnreservedPeaks, j)
	if len(j.PeakReserved) == 0 {
		return formerPeak{}
	}
	m.Peaks--
	m.noteReservation(j)
	f := formerPeak{jobSet: j, queue: j.ClaimQueue, usage: j.PeakReserved}
	j.PeakReserved = nil
	j.noteOutstanding()
	delete(f.queue.PeakReservers, j)
	f.queue.AdvanceReserved.Take(f.usage)
	f.top = f.queue.Node.Release(f.usage)
	return f
}

// wake wakes the stages that wait for what the JobSet does not reserve any longer.
func (f formerPeak) wake(m *Model) {
	m.noteUse(f.queue)
	if rest := f.usage.Without(f.jobSet.PeakReservedIn(f.queue)); len(rest) > 0 {
		m.wake(f.top, rest, f.queue.CohortTree)
	}
}
