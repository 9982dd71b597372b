package admission

import (
	"cmp"
	"slices"

	"github.com/tranche-dev/tranche/admission/quota"
)

// A peak reservation is quota that policy Reserve reserves for the later stages of a JobSet. No pod uses it, so that the borrowed part of it can
// be released at once: it yields to a stage that stays within the nominal quota of its own ClusterQueue. The JobSet keeps the quota of its
// stages, and the rest of its peak is reserved again when it fits. Like the quota of its stages it is released when the JobSet is preempted.

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
