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

// A stageSet is an unordered set of stages. Each stage knows its index, so that it is removed without a search.
type stageSet struct {
	Stages []*Stage
	place  func(*Stage) *int
}

// places are the indices of one stage in the sets that it may be in.
type places struct{ inLocalQueue, amongCharged int }

func placeInLocalQueue(s *Stage) *int { return &s.places.inLocalQueue }

func placeAmongCharged(s *Stage) *int { return &s.places.amongCharged }

// Add adds a stage that is not in the set.
func (c *stageSet) Add(s *Stage) {
	*c.place(s) = len(c.Stages)
	c.Stages = append(c.Stages, s)
}

// Drop removes a stage, and moves the last one to its place.
func (c *stageSet) Drop(s *Stage) {
	at, last := *c.place(s), len(c.Stages)-1
	c.Stages[at] = c.Stages[last]
	*c.place(c.Stages[at]) = at
	c.Stages[last] = nil
	c.Stages = c.Stages[:last]
}
