package simulator

import (
	"github.com/tranche-dev/tranche/simulator/internal/durations"
	"github.com/tranche-dev/tranche/simulator/internal/pastruns"
	"github.com/tranche-dev/tranche/snapshot"
)

type (
	// Durations are how long things take that a snapshot does not show. A stage that has spec.maximumExecutionTimeSeconds ends when that time has
	// passed, at the latest: it succeeds then. A stage without that limit and without an estimate never ends.
	Durations = durations.Durations
	// An Estimate is how long some stages take, for instance from earlier runs. An empty Namespace, Name or Stage matches all.
	Estimate = durations.Estimate
	// PastRuns has how long the finished stages of a snapshot took.
	PastRuns = pastruns.PastRuns
	// A Basis is what an estimate comes from. It is zero for no history.
	Basis = pastruns.Basis
)

// PastRunsOf reads the timelines of the JobSets of a snapshot.
func PastRunsOf(s *snapshot.Snapshot) *PastRuns { return pastruns.Of(s) }
