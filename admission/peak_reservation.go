package admission

import (
	"cmp"
	"slices"

	"github.com/tranche-dev/tranche/admission/quota"
)

// A peak reservation is what policy Reserve sets aside for the later stages of a JobSet. No pod uses it, so that the part of it that is borrowed
// can be given back at once: it yields to a stage that stays within the nominal quota of its own ClusterQueue. The JobSet keeps what its
// stages hold, and the rest of its peak is reserved again when it fits. Like the quota of its stages it is given back when the JobSet is
// preempted.

// borrowedPeaks are the JobSets whose peak reservations borrow from what a stage may ask for as its own: those of other ClusterQueues that have
// more than their nominal quota of some flavor and resource, and so have the Cohorts above them up to the one that both have a part in. The
// JobSet that was submitted last is first.
func (e *Engine) borrowedPeaks(l *look) []*jobSet {
	if e.peaks == 0 {
		return nil
	}
	var all []*jobSet
	for _, q := range l.q.group.queues {
		if q == l.q {
			continue
		}
		for j := range q.keptFor {
			if slices.ContainsFunc(j.kept, func(c quota.Charge) bool { return borrows(q.node, l.q.node, c.ID) }) {
				all = append(all, j)
			}
		}
	}
	slices.SortFunc(all, func(a, b *jobSet) int { return cmp.Or(b.submitted.Compare(a.submitted), cmp.Compare(b.uid, a.uid)) })
	return all
}

// dropPeaks takes back the peak reservations for which there is no quota left, of those that yield to a stage, since the stage has got part of it.
func (e *Engine) dropPeaks(l *look) {
	for _, j := range l.reservers {
		if len(j.kept) == 0 || e.canKeep(j) {
			continue
		}
		e.unkeep(j)
		e.unkept[j] = struct{}{}
		e.renewTenuresOf(j)
		j.turn++
		for _, s := range j.members {
			e.enqueue(s)
		}
	}
	l.reservers = slices.DeleteFunc(l.reservers, func(j *jobSet) bool { return j.keeper == nil })
}

// canKeep is true if there will be quota for a peak reservation when all that is being evicted has left.
func (e *Engine) canKeep(j *jobSet) bool {
	return e.tree.Later(func() bool {
		j.keeper.node.Release(j.kept)
		return j.keeper.node.Fits(j.kept)
	})
}
