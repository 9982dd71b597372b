package admission

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/admission/quota"
)

// Violations compares all totals with the state that they are derived from, and describes the differences. There are none unless the Engine has a
// bug. Each call reads every stage.
func (e *Engine) Violations() []string {
	var violations []string
	report := func(format string, args ...any) { violations = append(violations, fmt.Sprintf(format, args...)) }
	clusterQueues := map[*clusterQueue]*queueTotals{}
	localQueues := map[*localQueue]*queueTotals{}
	for _, key := range slices.SortedFunc(maps.Keys(e.stages), compareKeys) {
		s := e.stages[key]
		want := e.entryOf(s)
		if !want.equals(&s.entry) {
			report("I4: %s is booked as %+v, and should be as %+v", key, s.entry, want)
		}
		if want.phase == ineligible {
			continue
		}
		count(clusterQueues, want.clusterQueue, &want)
		count(localQueues, want.localQueue, &want)
	}
	for _, name := range slices.Sorted(maps.Keys(e.clusterQueues)) {
		q := e.clusterQueues[name]
		if want := clusterQueues[q]; !q.queueTotals.equals(want) {
			report("I1: the ledger of ClusterQueue %s is %+v, and should be %+v", name, q.queueTotals, want)
		}
		kept := e.keptIn(q)
		if !kept.Equal(q.advanceReserved.Usage()) {
			report("I1: in ClusterQueue %s %v is kept, and should be %v", name, q.advanceReserved.Usage(), kept)
		}
		charged := q.queueTotals.reserved.Usage()
		charged.AddAll(kept)
		for _, c := range charged {
			if used := q.node.Used(c.ID); used != c.Amount {
				report("I1: ClusterQueue %s is charged %d %v, and should be %d", name, used, e.tree.Index.Name(c.ID), c.Amount)
			}
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(e.localQueues), compareKeys) {
		if want := localQueues[e.localQueues[key]]; !e.localQueues[key].queueTotals.equals(want) {
			report("I1: the ledger of LocalQueue %s is %+v, and should be %+v", key, e.localQueues[key].queueTotals, want)
		}
	}
	return violations
}

func count[K comparable](ledgers map[K]*queueTotals, key K, n *entry) {
	if ledgers[key] == nil {
		ledgers[key] = &queueTotals{}
	}
	ledgers[key].count(n, 1)
}

// equals treats nil like empty totals.
func (q *queueTotals) equals(other *queueTotals) bool {
	if other == nil {
		other = &queueTotals{}
	}
	return q.pending == other.pending && q.reserving == other.reserving && q.admitted == other.admitted &&
		q.reserved.Usage().Equal(other.reserved.Usage()) && q.used.Usage().Equal(other.used.Usage())
}

func (e *Engine) keptIn(q *clusterQueue) quota.Usage {
	var kept quota.Usage
	for _, j := range e.jobSets {
		kept.AddAll(j.keptIn(q))
	}
	return kept
}

// verify panics if the totals are wrong, in builds for tests.
func (e *Engine) verify() {
	if !verifies {
		return
	}
	if violations := e.Violations(); len(violations) > 0 {
		panic("admission: " + strings.Join(violations, "\n"))
	}
}
