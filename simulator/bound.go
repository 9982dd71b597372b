package simulator

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/tranche-dev/tranche/simulator/internal/cluster"
	"github.com/tranche-dev/tranche/simulator/internal/scope"
	"github.com/tranche-dev/tranche/snapshot"
)

// DefaultMaxWorkloads is how many quota Workloads of one tree of Cohorts are simulated by default: with as many an answer takes about ten seconds.
const DefaultMaxWorkloads = 10_000

// A Bound limits how many quota Workloads of one tree of Cohorts are simulated.
type Bound struct {
	// Workloads is how many may be pending or hold quota.
	Workloads int
	// Setting is the name of the flag or field that has this number.
	Setting string
}

// ErrTooLarge is the error about a tree beyond a Bound.
var ErrTooLarge = errors.New("no simulated answer")

// Check returns an error that names the first tree of a snapshot that is beyond the Bound. Trees that can influence each other count as one.
func (b Bound) Check(s *snapshot.Snapshot) error {
	treeOf := scope.Trees(s)
	sizes := map[string]int{}
	for _, w := range s.Workloads {
		if tree := treeOf(w); tree != "" && !cluster.IsFinished(w) {
			sizes[tree]++
		}
	}
	for _, tree := range slices.Sorted(maps.Keys(sizes)) {
		if n := sizes[tree]; n > b.Workloads {
			return fmt.Errorf("the tree of %s has %d quota Workloads, more than %d (%s): %w", tree, n, b.Workloads, b.Setting, ErrTooLarge)
		}
	}
	return nil
}
