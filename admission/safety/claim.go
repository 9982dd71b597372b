package safety

import "github.com/tranche-dev/tranche/admission/quota"

// A Claim is what a JobSet holds and what it may come to hold.
type Claim struct {
	// JobSet is a name for messages.
	JobSet string
	Held   quota.Usage
	// Peaks are alternatives: the most that the JobSet may hold at once, Held included. Without any it can never finish.
	Peaks []quota.Usage
}

// canFinish tells whether one of the peaks can be had if this much is free.
func (c *Claim) canFinish(free quota.Usage) bool {
	for _, peak := range c.Peaks {
		if c.within(peak, free) {
			return true
		}
	}
	return false
}

func (c *Claim) within(peak, free quota.Usage) bool {
	for fr, a := range peak {
		if more := a.Minus(c.Held[fr]); more > 0 && more > free[fr] {
			return false
		}
	}
	return true
}

// Blocked returns the claims that cannot all be met, in whatever order JobSets finish. The state is safe if there are none.
//
// What is free is the limit less what the claims hold: all that others hold is given back, since they ask for nothing more. Whoever
// can finish only adds to what is free when it does, so that the order in which they are found does not matter.
func Blocked(limit func(quota.FlavorResource) quota.Amount, claims []*Claim) []*Claim {
	free := unclaimed(limit, claims)
	waiting := claims
	for {
		var blocked []*Claim
		for _, c := range waiting {
			if !c.canFinish(free) {
				blocked = append(blocked, c)
				continue
			}
			free.AddAll(c.Held)
		}
		if len(blocked) == 0 || len(blocked) == len(waiting) {
			return blocked
		}
		waiting = blocked
	}
}

// unclaimed is the limit less what the claims hold, of everything that they hold or may need.
func unclaimed(limit func(quota.FlavorResource) quota.Amount, claims []*Claim) quota.Usage {
	free := quota.Usage{}
	for _, c := range claims {
		for fr := range c.Held {
			free[fr] = limit(fr)
		}
		for _, peak := range c.Peaks {
			for fr := range peak {
				free[fr] = limit(fr)
			}
		}
	}
	for _, c := range claims {
		for fr, a := range c.Held {
			free[fr] = free[fr].Minus(a)
		}
	}
	return free
}
