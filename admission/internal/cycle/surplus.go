package cycle

import (
	"slices"

	"github.com/tranche-dev/tranche/admission/internal/model"
	"github.com/tranche-dev/tranche/admission/preempt"
	"github.com/tranche-dev/tranche/admission/quota"
)

// A nodeUsage is how much of a flavor and resource a ClusterQueue, or a Cohort above it, will use when all evicted stages have left.
type nodeUsage struct {
	queue *model.ClusterQueue
	node  *quota.Node
	id    quota.ID
	used  quota.Amount
}

// usageAfterEvictions returns what the ClusterQueues of victims, and the Cohorts above them, use of the quota of the victims.
func (cy *Cycle) usageAfterEvictions(victims []preempt.Victim) []nodeUsage {
	var all []nodeUsage
	cy.m.Tree.WhatIfEvicted(func() bool {
		for _, v := range victims {
			q := model.EvictionUnitOf(v.Holder).Queue
			for n := q.Node; n != nil; n = n.Parent() {
				for _, c := range v.Holder.Usage {
					if !slices.ContainsFunc(all, func(u nodeUsage) bool { return u.node == n && u.id == c.ID }) {
						all = append(all, nodeUsage{q, n, c.ID, n.Used(c.ID)})
					}
				}
			}
		}
		return true
	})
	return all
}

// wakeForSurplus wakes the stages that may use quota of victims beyond what their preemptor has reserved: where less is used than before.
func (cy *Cycle) wakeForSurplus(before []nodeUsage) {
	cy.m.Tree.WhatIfEvicted(func() bool {
		before = slices.DeleteFunc(before, func(u nodeUsage) bool { return u.node.Used(u.id) >= u.used })
		return true
	})
	for _, u := range before {
		cy.surplus[u.node] = cy.m.ChargeEpoch
		cy.m.WakeSurplus(u.queue, u.node, u.id)
	}
}
