package check

import (
	"slices"

	"github.com/tranche-dev/tranche/admission/flavor"
	"github.com/tranche-dev/tranche/admission/internal/model"
	"github.com/tranche-dev/tranche/admission/internal/settings"
	"github.com/tranche-dev/tranche/admission/quota"
)

// The head of a ClusterQueue with StrictFIFO that has a right to nominal quota, and may not reclaim all of it from borrowers, reserves the idle
// nominal quota of its ClusterQueue: otherwise a stream of small borrowers could starve it. The reservation is like that of a preemptor, but
// blocks borrowers only: a stage that stays within the nominal quota of its own ClusterQueue ignores it. So does a stage that its JobSet has to
// run before it releases quota: stage safety has promised that quota.

// NominalReservation returns the usage to reserve for a stage that waits for quota, or nothing: with the first flavors with which the stage, or the
// peak that is admitted with it, would use only nominal quota of its ClusterQueue, or of a Cohort below the root. The part that fits is reserved with the rest. A member of a
// co-admission group reserves nothing: it needs quota of all ClusterQueues of the group at once. Nor does a stage that would delay a due one, which might
// wait for that quota.
func (ck *Checker) NominalReservation(l *Candidate) quota.Usage {
	if !l.awaitsQuota || l.delays || !l.Queue.MayReserveNominal() || l.Stage.Membership != nil {
		return nil
	}
	needs := ck.needs(l)
	var reserved quota.Usage
	ck.m.Tree.WhatIfEvicted(func() bool {
		if l.Stage.PreemptQueue == l.Queue {
			l.Queue.Node.Release(l.Stage.PreemptReserved)
		}
		for _, need := range needs {
			if usage, ok := entitledTo(l.Queue, need); ok {
				reserved = usage
				break
			}
		}
		return true
	})
	return reserved
}

// needs returns what has to be free for a stage, as alternatives: its usage or, under policy Reserve, the peak of its JobSet, if that holds nothing
// yet. It depends on no quota that is in use, so that the reservation is the same after a restart.
func (ck *Checker) needs(l *Candidate) []quota.Usage {
	if !l.HasPlan() || l.Policy != settings.Reserve || l.JobSet.ClaimQueue != nil {
		return Choices(l.Items)
	}
	before := ck.m.Progress(l.JobSet, l.Queue)
	var needs []quota.Usage
	for choice := range flavor.Choices(l.Items, flavor.MaxChoices) {
		after := l.Admitted(before, choice)
		if len(after.Ahead()) == 0 {
			needs = append(needs, choice.Usage(l.Items))
		} else {
			needs = append(needs, after.Peaks()...)
		}
	}
	return needs
}

// nominalReservers returns the stages whose nominal reservations do not count for a stage: those of other ClusterQueues if it stays within nominal
// quota itself, and all if its JobSet has to run it before releasing quota, since the others may wait for that. Stages that yield anyway are left
// out. The result is in reverse queue order.
func (l *Candidate) nominalReservers(yielding []*model.Stage) []*model.Stage {
	var kept []*model.Stage
	for s := range l.Queue.CohortTree.NominalReservers {
		isOwn := s.PreemptQueue == l.Queue
		isBehind := isOwn && (s == l.Stage || s.Element == nil || !s.Element.Precedes(l.Stage.Element))
		if s.Element != nil && !isBehind && (l.Stage.Element.Passes() || !isOwn) && !slices.Contains(yielding, s) {
			kept = append(kept, s)
		}
	}
	slices.SortFunc(kept, model.ComparePreemptors)
	return kept
}

// entitledTo returns the part of a usage that a ClusterQueue need not borrow, or only from a Cohort below the root. It is not ok if some of the
// usage is not available and would have to be borrowed from farther away.
func entitledTo(q *model.ClusterQueue, usage quota.Usage) (part quota.Usage, ok bool) {
	for _, c := range usage {
		nominal := q.Node.Quota(c.ID).Nominal
		switch unused := max(0, nominal.Minus(q.Node.Used(c.ID))); {
		case c.Amount <= nominal:
			part.Add(c.ID, min(c.Amount, unused))
		case q.Node.Level(c.ID, c.Amount) < q.Node.Root().Height():
			part.Add(c.ID, c.Amount)
		case c.Amount <= q.Node.Available(c.ID):
			part.Add(c.ID, unused)
		default:
			return nil, false
		}
	}
	return part, true
}
