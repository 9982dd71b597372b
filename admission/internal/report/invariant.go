package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/admission/internal/backfill"
	"github.com/tranche-dev/tranche/admission/internal/model"
	"github.com/tranche-dev/tranche/admission/quota"
)

// Violations compares all totals with the state that they are derived from, and describes the differences, in order. There are none unless the
// Engine has a bug. Each call reads every stage, JobSet and queue once.
func (rp *Reporter) Violations() []string {
	a := &audit{
		m: rp.m, clusterQueues: map[*model.ClusterQueue]*model.QueueTotals{}, localQueues: map[*model.LocalQueue]*model.QueueTotals{},
		peakReserved: map[*model.ClusterQueue]quota.Usage{},
	}
	a.stages()
	a.queues()
	slices.Sort(a.violations)
	return a.violations
}

// An audit derives the totals again from the stages and the JobSets.
type audit struct {
	m             *model.Model
	clusterQueues map[*model.ClusterQueue]*model.QueueTotals
	localQueues   map[*model.LocalQueue]*model.QueueTotals
	// peakReserved has the sums of the peak reservations.
	peakReserved map[*model.ClusterQueue]quota.Usage
	violations   []string
}

func (a *audit) report(format string, args ...any) {
	a.violations = append(a.violations, fmt.Sprintf(format, args...))
}

// stages compares the entries of the stages, and adds them and the peak reservations to the totals.
func (a *audit) stages() {
	for key, s := range a.m.Stages {
		want := a.m.EntryOf(s)
		if !want.Equals(&s.Entry) {
			a.report("I4: %s is booked as %+v, and should be as %+v", key, s.Entry, want)
		}
		if want.Phase == model.Ineligible {
			continue
		}
		count(a.clusterQueues, want.ClusterQueue, &want)
		count(a.localQueues, want.LocalQueue, &want)
	}
	for uid, j := range a.m.JobSets {
		if a.m.HasStalePeakOptions(j) {
			a.report("I1: what JobSet %s may reserve has changed since it was computed", uid)
		}
		if len(j.PeakReserved) > 0 {
			sum := a.peakReserved[j.ClaimQueue]
			sum.AddAll(j.PeakReserved)
			a.peakReserved[j.ClaimQueue] = sum
		}
	}
}

// queues compares the totals of the queues, and what is charged to the quota tree.
func (a *audit) queues() {
	for name, q := range a.m.ClusterQueues {
		if q.Due != nil && q.CohortTree != nil && !a.m.Schedule.IsStale {
			if want := a.m.Tree.WhatIfEvicted(func() bool { return backfill.HoldsUp(q) }); want != slices.Contains(q.CohortTree.ReservingQueues, q) {
				a.report("I7: whether the due stage of ClusterQueue %s holds up others is %t, and is not noted so", name, want)
			}
		}
		if want := a.clusterQueues[q]; !q.QueueTotals.Equals(want) {
			a.report("I1: the totals of ClusterQueue %s are %+v, and should be %+v", name, q.QueueTotals, want)
		}
		peaks := a.peakReserved[q]
		if !peaks.Equal(q.AdvanceReserved.Usage()) {
			a.report("I1: the peak reservations in ClusterQueue %s are %v, and should be %v", name, q.AdvanceReserved.Usage(), peaks)
		}
		charged := q.QueueTotals.Reserved.Usage()
		charged.AddAll(peaks)
		for _, c := range charged {
			if used := q.Node.Used(c.ID); used != c.Amount {
				a.report("I1: ClusterQueue %s is charged %d %v, and should be %d", name, used, a.m.Tree.Index.Name(c.ID), c.Amount)
			}
		}
	}
	for key, q := range a.m.LocalQueues {
		if want := a.localQueues[q]; !q.QueueTotals.Equals(want) {
			a.report("I1: the totals of LocalQueue %s are %+v, and should be %+v", key, q.QueueTotals, want)
		}
	}
}

func count[K comparable](totals map[K]*model.QueueTotals, key K, n *model.Entry) {
	if totals[key] == nil {
		totals[key] = &model.QueueTotals{}
	}
	totals[key].Count(n, 1)
}

// Verify panics if the totals are wrong, in builds for tests.
func (rp *Reporter) Verify() {
	if !verifies {
		return
	}
	if violations := rp.Violations(); len(violations) > 0 {
		panic("admission: " + strings.Join(violations, "\n"))
	}
}
