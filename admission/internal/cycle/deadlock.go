package cycle

import (
	"cmp"
	"maps"
	"slices"

	"github.com/tranche-dev/tranche/admission/internal/check"
	"github.com/tranche-dev/tranche/admission/internal/model"
	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/admission/safety"
)

// noteDeadlocks finds the JobSets under policy Greedy that wait for each other, and wakes the waiting stages of JobSets that have entered or left
// a deadlock, since their messages change. It returns true if there are such stages. No JobSet is evicted.
func (cy *Cycle) noteDeadlocks() bool {
	if len(cy.suspects)+len(cy.deadlocked) == 0 {
		return false
	}
	groups := map[*model.CohortTree]struct{}{}
	for _, all := range []map[*model.JobSet]struct{}{cy.suspects, cy.deadlocked} {
		for j := range all {
			if j.ClaimQueue != nil {
				groups[j.ClaimQueue.CohortTree] = struct{}{}
			}
		}
	}
	clear(cy.suspects)
	now, changed := map[*model.JobSet]struct{}{}, false
	for _, g := range slices.SortedFunc(maps.Keys(groups), model.CompareGroups) {
		members := cy.findDeadlock(g)
		for _, c := range members {
			j := cy.m.JobSets[c.OwnerUID]
			now[j] = struct{}{}
			changed = cy.setDeadlock(j, members) || changed
		}
	}
	for j := range cy.deadlocked {
		if _, still := now[j]; !still {
			changed = cy.setDeadlock(j, nil) || changed
		}
	}
	cy.deadlocked = now
	return changed
}

// findDeadlock returns the claims of the JobSets of a group that wait for each other, by name.
func (cy *Cycle) findDeadlock(g *model.CohortTree) []*safety.Claim {
	members := cy.m.Bank.Deadlocked(g.Queues[0].Bare.Root(), cy.asks)
	members = slices.DeleteFunc(members, func(c *safety.Claim) bool { return c.Mode != safety.Unguarded })
	slices.SortFunc(members, func(a, b *safety.Claim) int {
		return cmp.Or(cy.m.JobSets[a.OwnerUID].Owner.Compare(cy.m.JobSets[b.OwnerUID].Owner), cmp.Compare(a.OwnerUID, b.OwnerUID))
	})
	return members
}

// asks returns the needs of the stages of a JobSet that only wait for quota of the ClusterQueue in which the JobSet holds quota.
func (cy *Cycle) asks(c *safety.Claim) []quota.Usage {
	var needs []quota.Usage
	j := cy.m.JobSets[c.OwnerUID]
	for _, s := range j.Members {
		if s.QueuedIn != nil && s.QueuedIn == j.ClaimQueue && s.LastRefusal != nil && s.LastRefusal.Check == check.QuotaIsFree && !s.IsGrowth {
			needs = append(needs, check.Choices(cy.m.Offer(s.Demand, s.QueuedIn).Items)...)
		}
	}
	return needs
}

// setDeadlock records the claims that wait for each other, among them that of the JobSet, and wakes its stages if they have changed.
func (cy *Cycle) setDeadlock(j *model.JobSet, members []*safety.Claim) bool {
	if slices.Equal(j.Deadlock, members) {
		return false
	}
	j.Deadlock = members
	if j.ClaimQueue == nil || j.ClaimQueue.CohortTree == nil {
		return false
	}
	cy.m.Schedule.WakeTopic(j.ClaimQueue.CohortTree, j.Topic)
	return true
}
