package check

import (
	"slices"
	"time"

	"github.com/tranche-dev/tranche/admission/flavor"
	"github.com/tranche-dev/tranche/admission/internal/backfill"
	"github.com/tranche-dev/tranche/admission/internal/model"
	"github.com/tranche-dev/tranche/admission/quota"
)

// AwaitsDue reports whether a refused co-admission group gets reservations when it is due, and when that is. Nothing but quota may be missing.
func (g *GroupCandidate) AwaitsDue() (due time.Time, ok bool) {
	due, ok = g.DueAt()
	return due, ok && !slices.ContainsFunc(g.Candidates, func(l *Candidate) bool { return !l.awaitsQuota })
}

// DueAt returns when a co-admission group is due: when the last of its members has waited for long. It is not ok if one of its ClusterQueues does not reserve
// quota, or if members hold quota already.
func (g *GroupCandidate) DueAt() (due time.Time, ok bool) {
	for _, l := range g.Candidates {
		if l.DueAt.After(due) {
			due = l.DueAt
		}
	}
	return due, len(g.Candidates) > 0 && !g.IsPart && !slices.ContainsFunc(g.Candidates, func(l *Candidate) bool { return !l.reserves })
}

// Dues returns what each ClusterQueue of a co-admission group reserves when the group is due: for its first member, what all of its members need.
func Dues(ck *Checker, g *GroupCandidate) []model.Due {
	at, _ := g.DueAt()
	var dues []model.Due
	for i, l := range g.Candidates {
		if slices.ContainsFunc(g.Candidates[:i], func(other *Candidate) bool { return other.Queue == l.Queue }) {
			continue
		}
		first, items := l.Stage, l.Items
		for _, other := range g.Candidates[i+1:] {
			if other.Queue != l.Queue {
				continue
			}
			items = slices.Concat(items, other.Items)
			if other.Stage.Element.Precedes(first.Element) {
				first = other.Stage
			}
		}
		for need := range needsOf(l.Queue, items, func(choice flavor.Choice) []quota.Usage { return []quota.Usage{choice.Usage(items)} }) {
			dues = append(dues, model.Due{Stage: first, At: at, Need: need})
			break
		}
	}
	return dues
}

// noteGroupWithheld notes what lenders withhold from a refused group that would be due otherwise, and adds it to the refusals.
func noteGroupWithheld(ck *Checker, g *GroupCandidate) {
	at, waits := g.AwaitsDue()
	if !g.isRefused() || !waits || at.After(ck.m.Now) || g.Candidates[0].Queue.Due != nil && backfill.IsFor(g.Candidates[0].Queue.Due, g.Candidates[0].Stage) {
		return
	}
	w := backfill.WithheldFrom(ck.m, Dues(ck, g))
	g.IsWithheld = w != nil
	for i, l := range g.Candidates {
		addWithheld(ck, l, g.Refusals[i], at, w)
	}
}
