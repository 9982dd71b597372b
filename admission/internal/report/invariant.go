package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/admission/internal/model"
	"github.com/tranche-dev/tranche/admission/quota"
)

// Violations compares all totals with the state that they are derived from, and describes the differences. There are none unless the Engine has a
// bug. Each call reads every stage.
func (rp *Reporter) Violations() []string {
	var violations []string
	report := func(format string, args ...any) { violations = append(violations, fmt.Sprintf(format, args...)) }
	clusterQueues := map[*model.ClusterQueue]*model.QueueTotals{}
	localQueues := map[*model.LocalQueue]*model.QueueTotals{}
	for _, key := range slices.SortedFunc(maps.Keys(rp.m.Stages), model.CompareKeys) {
		s := rp.m.Stages[key]
		want := rp.m.EntryOf(s)
		if !want.Equals(&s.Entry) {
			report("I4: %s is booked as %+v, and should be as %+v", key, s.Entry, want)
		}
		if want.Phase == model.Ineligible {
			continue
		}
		count(clusterQueues, want.ClusterQueue, &want)
		count(localQueues, want.LocalQueue, &want)
	}
	for _, name := range slices.Sorted(maps.Keys(rp.m.ClusterQueues)) {
		q := rp.m.ClusterQueues[name]
		if want := clusterQueues[q]; !q.QueueTotals.Equals(want) {
			report("I1: the ledger of ClusterQueue %s is %+v, and should be %+v", name, q.QueueTotals, want)
		}
		kept := rp.keptIn(q)
		if !kept.Equal(q.AdvanceReserved.Usage()) {
			report("I1: in ClusterQueue %s %v is kept, and should be %v", name, q.AdvanceReserved.Usage(), kept)
		}
		charged := q.QueueTotals.Reserved.Usage()
		charged.AddAll(kept)
		for _, c := range charged {
			if used := q.Node.Used(c.ID); used != c.Amount {
				report("I1: ClusterQueue %s is charged %d %v, and should be %d", name, used, rp.m.Tree.Index.Name(c.ID), c.Amount)
			}
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(rp.m.LocalQueues), model.CompareKeys) {
		if want := localQueues[rp.m.LocalQueues[key]]; !rp.m.LocalQueues[key].QueueTotals.Equals(want) {
			report("I1: the ledger of LocalQueue %s is %+v, and should be %+v", key, rp.m.LocalQueues[key].QueueTotals, want)
		}
	}
	return violations
}

func count[K comparable](ledgers map[K]*model.QueueTotals, key K, n *model.Entry) {
	if ledgers[key] == nil {
		ledgers[key] = &model.QueueTotals{}
	}
	ledgers[key].Count(n, 1)
}

func (rp *Reporter) keptIn(q *model.ClusterQueue) quota.Usage {
	var kept quota.Usage
	for _, j := range rp.m.JobSets {
		kept.AddAll(j.PeakReservedIn(q))
	}
	return kept
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
