package admission

// A crowd is stages in no order. Each knows its place, so that it is found without a search.
type crowd struct {
	stages []*stage
	place  func(*stage) *int
}

// places are those of one stage in each of the crowds that it may be in.
type places struct{ inLocalQueue, amongCharged int }

func placeInLocalQueue(s *stage) *int { return &s.places.inLocalQueue }
func placeAmongCharged(s *stage) *int { return &s.places.amongCharged }

func (c *crowd) add(s *stage) {
	*c.place(s) = len(c.stages)
	c.stages = append(c.stages, s)
}

// drop lets the last take the place of one that leaves.
func (c *crowd) drop(s *stage) {
	at, last := *c.place(s), len(c.stages)-1
	c.stages[at] = c.stages[last]
	*c.place(c.stages[at]) = at
	c.stages[last] = nil
	c.stages = c.stages[:last]
}
