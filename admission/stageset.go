package admission

// A stageSet is an unordered set of stages. Each stage knows its index, so that it is removed without a search.
type stageSet struct {
	stages []*stage
	place  func(*stage) *int
}

// places are the indices of one stage in the sets that it may be in.
type places struct{ inLocalQueue, amongCharged int }

func placeInLocalQueue(s *stage) *int { return &s.places.inLocalQueue }
func placeAmongCharged(s *stage) *int { return &s.places.amongCharged }

func (c *stageSet) add(s *stage) {
	*c.place(s) = len(c.stages)
	c.stages = append(c.stages, s)
}

// drop removes a stage, and moves the last one to its place.
func (c *stageSet) drop(s *stage) {
	at, last := *c.place(s), len(c.stages)-1
	c.stages[at] = c.stages[last]
	*c.place(c.stages[at]) = at
	c.stages[last] = nil
	c.stages = c.stages[:last]
}
