package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/admission/internal/model"
	"github.com/tranche-dev/tranche/admission/internal/queuespec"
	"github.com/tranche-dev/tranche/apis"
)

// A Takeover is the state of a cohort tree in which some ClusterQueue asks for Tranche beside Kueue, or is taken.
type Takeover struct {
	// ClusterQueues are all of the tree, and Cohorts the names of its Cohorts, both in order.
	ClusterQueues, Cohorts []string
	// Taken are those that are taken. The Engine admits if that is so for all.
	Taken []string
	// Obstacles say, by ClusterQueue, what must change before Tranche admits, and how. Once it admits, they end that.
	Obstacles map[string][]string
	// Inactive says, by ClusterQueue of a tree in which Tranche admits, why it takes no new reservations. The others go on.
	Inactive map[string][]string
	// Unconfirmed are the ClusterQueues of which Kueue's manager has not reported yet that it admits nothing in them.
	Unconfirmed []string
}

// IsLed reports whether the Engine admits in the tree.
func (t *Takeover) IsLed() bool { return len(t.Taken) == len(t.ClusterQueues) }

// Takeovers returns the cohort trees in which some ClusterQueue asks for Tranche beside Kueue, or is taken, ordered by their first ClusterQueue.
func (rp *Reporter) Takeovers() []Takeover {
	if rp.m.Config.Leader != queuespec.Kueue {
		return nil
	}
	rp.m.RebuildTrees()
	var all []Takeover
	for _, name := range slices.Sorted(maps.Keys(rp.m.ClusterQueues)) {
		q := rp.m.ClusterQueues[name]
		if !q.Exists || q.CohortTree.Queues[0] != q {
			continue
		}
		if slices.ContainsFunc(q.CohortTree.Queues, asksOrIsTaken) {
			all = append(all, rp.TakeoverOf(q.Name))
		}
	}
	return all
}

// asksOrIsTaken reports whether a ClusterQueue asks for Tranche or is taken. One whose annotation names no engine, as by a typing error, asks, too: that is
// an obstacle which is reported.
func asksOrIsTaken(q *model.ClusterQueue) bool {
	return q.IsTaken || q.Takeover.Engine != "" && q.Takeover.Engine != apis.EngineKueue
}

// TakeoverOf returns the state of the cohort tree of a ClusterQueue, whether or not any ClusterQueue of it asks for Tranche.
func (rp *Reporter) TakeoverOf(clusterQueue string) Takeover {
	rp.m.RebuildTrees()
	q := rp.m.ClusterQueues[clusterQueue]
	if q == nil || !q.Exists {
		return Takeover{}
	}
	t := Takeover{Obstacles: map[string][]string{}, Inactive: map[string][]string{}}
	isLed := !slices.ContainsFunc(q.CohortTree.Queues, func(q *model.ClusterQueue) bool { return !q.IsTaken })
	for _, c := range rp.m.Cohorts.All() {
		if c.Node.Root() == q.CohortTree.Root {
			t.Cohorts = append(t.Cohorts, c.Name)
		}
	}
	slices.Sort(t.Cohorts)
	for _, q := range q.CohortTree.Queues {
		t.ClusterQueues = append(t.ClusterQueues, q.Name)
		if q.IsTaken {
			t.Taken = append(t.Taken, q.Name)
		}
		obstacles := q.Obstacles(rp.m.Checks)
		if isLed && len(obstacles) > 0 {
			t.Inactive[q.Name], obstacles = obstacles, nil
		}
		if lack := q.Takeover.NotAsked(); lack != "" {
			obstacles = append(obstacles, lack)
		}
		obstacles = append(obstacles, nameProblems(q.Name, t.Cohorts)...)
		if cycle := model.Cycle(rp.m, q); cycle != "" {
			obstacles = append(obstacles, "spec.cohortName: the parents of Cohorts form a cycle: "+cycle)
		}
		if len(obstacles) > 0 {
			t.Obstacles[q.Name] = obstacles
		}
		if !q.Takeover.IsLeft {
			t.Unconfirmed = append(t.Unconfirmed, q.Name)
		}
	}
	return t
}

// The names of ClusterQueues and Cohorts are in keys of the ConfigMap that locks a tree, after queue. and cohort. of at most 253 characters.
const (
	longestQueue  = 253 - len("queue.")
	longestCohort = 253 - len("cohort.")
)

// nameProblems returns which names of a cohort tree are too long for the lock.
func nameProblems(clusterQueue string, cohorts []string) []string {
	var found []string
	if len(clusterQueue) > longestQueue {
		found = append(found, fmt.Sprintf("metadata.name has %d characters, and only %d fit into the lock; use another ClusterQueue", len(clusterQueue), longestQueue))
	}
	for _, name := range cohorts {
		if len(name) > longestCohort {
			found = append(found, fmt.Sprintf("spec.cohortName: the name of Cohort %s has %d characters, and only %d fit into the lock; use another Cohort", name, len(name), longestCohort))
		}
	}
	return found
}

// Problem returns what keeps Tranche from admitting in the tree, or nothing.
func (t *Takeover) Problem() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(t.Obstacles)) {
		parts = append(parts, fmt.Sprintf("ClusterQueue %s: %s", name, strings.Join(t.Obstacles[name], "; ")))
	}
	return strings.Join(parts, ". ")
}

// IsWriting reports whether a decision about quota of a ClusterQueue has not been settled yet.
func (rp *Reporter) IsWriting(clusterQueue string) bool {
	for _, key := range rp.m.InFlight {
		if s := rp.m.Stages[key]; s != nil && s.Entry.ClusterQueue != nil && s.Entry.ClusterQueue.Name == clusterQueue {
			return true
		}
	}
	return false
}
