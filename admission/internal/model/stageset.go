package model

import "github.com/tranche-dev/tranche/admission/internal/decision"

// stagesByKey are the members of a JobSet or of a co-admission group.
type stagesByKey map[decision.StageKey]*Stage

// Has reports whether a member satisfies the predicate.
func (c stagesByKey) Has(is func(*Stage) bool) bool {
	for _, s := range c {
		if is(s) {
			return true
		}
	}
	return false
}

// places are the indices of one stage in the sets that it may be in.
type places struct{ inLocalQueue, amongCharged int }

func placeInLocalQueue(s *Stage) *int { return &s.places.inLocalQueue }

func placeAmongCharged(s *Stage) *int { return &s.places.amongCharged }
