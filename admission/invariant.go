package admission

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/admission/quota"
)

// Violations holds the books against what they are derived from, and says where they differ. There are none unless the Engine has
// a bug. Each call looks at every stage.
func (e *Engine) Violations() []string {
	var violations []string
	report := func(format string, args ...any) { violations = append(violations, fmt.Sprintf(format, args...)) }
	clusterQueues := map[string]*ledger{}
	localQueues := map[types.NamespacedName]*ledger{}
	for _, key := range slices.SortedFunc(maps.Keys(e.stages), compareKeys) {
		s := e.stages[key]
		want := e.entryOf(s)
		if !want.equals(&s.entry) {
			report("I4: %s is booked as %+v, and should be as %+v", key, s.entry, want)
		}
		if s.line != nil && !s.line.line.Has(key) {
			report("%s should stand in the line of ClusterQueue %s", key, s.line.name)
		}
		if want.phase == closed {
			continue
		}
		count(clusterQueues, want.clusterQueue, &want)
		count(localQueues, want.localQueue, &want)
	}
	for _, name := range slices.Sorted(maps.Keys(e.clusterQueues)) {
		q := e.clusterQueues[name]
		if want := clusterQueues[name]; !q.ledger.equals(want) {
			report("I1: the ledger of ClusterQueue %s is %+v, and should be %+v", name, q.ledger, want)
		}
		if !e.tree.ChargedTally(name).Equal(&q.ledger.reserved) {
			report("I1: ClusterQueue %s is charged %+v, and should be %+v", name, e.tree.ChargedTally(name), q.ledger.reserved)
		}
		if !e.keptTally(q).Equal(e.tree.KeptTally(name)) {
			report("I1: in ClusterQueue %s %+v is kept, and should be %+v", name, e.tree.KeptTally(name), e.keptTally(q))
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(e.localQueues), compareKeys) {
		if want := localQueues[key]; !e.localQueues[key].ledger.equals(want) {
			report("I1: the ledger of LocalQueue %s is %+v, and should be %+v", key, e.localQueues[key].ledger, want)
		}
	}
	return violations
}

func count[K comparable](ledgers map[K]*ledger, key K, n *entry) {
	if ledgers[key] == nil {
		ledgers[key] = &ledger{}
	}
	ledgers[key].count(n, 1)
}

// equals takes no ledger for an empty one.
func (l *ledger) equals(other *ledger) bool {
	if other == nil {
		other = &ledger{}
	}
	return l.pending == other.pending && l.reserving == other.reserving && l.admitted == other.admitted &&
		l.reserved.Equal(&other.reserved) && l.used.Equal(&other.used)
}

func (e *Engine) keptTally(q *clusterQueue) *quota.Tally {
	var kept quota.Tally
	for _, j := range e.jobSets {
		if j.home == q {
			kept.Add(j.kept)
		}
	}
	return &kept
}

// verify panics if the books are wrong, in builds for tests.
func (e *Engine) verify() {
	if !verifies {
		return
	}
	if violations := e.Violations(); len(violations) > 0 {
		panic("admission: " + strings.Join(violations, "\n"))
	}
}
