package cycle

import (
	"cmp"
	"fmt"
	"slices"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/charge"
	"github.com/tranche-dev/tranche/admission/internal/check"
	"github.com/tranche-dev/tranche/admission/internal/decision"
	"github.com/tranche-dev/tranche/admission/internal/model"
	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/admission/safety"
)

// recoverFromDeadlock evicts JobSets to resolve a deadlock. It can arise when quota or a flavor is removed, when a queue is stopped or moved, or when a
// restarted JobSet still holds a later stage while it repeats an earlier one. Admissions alone never lead to this state.
//
// An evicted JobSet is not admitted before that is safe, so that it is not evicted for the same reason again.
func (cy *Cycle) recoverFromDeadlock() {
	for _, root := range cy.m.Bank.Unsafe() {
		if !cy.decidesUnder(root) {
			continue
		}
		for _, c := range cy.m.Bank.SelectVictims(root, cy.price, cy.compareClaims) {
			j := cy.m.JobSets[c.OwnerUID]
			message := cy.whyRelief(j)
			for _, s := range j.EvictionUnit.Stages {
				if !s.IsLeaving() {
					cy.evict(s, decision.Evict{Reason: kueue.WorkloadEvictedByPreemption, Message: message, ResolvesDeadlock: true})
				}
			}
		}
	}
}

// decidesUnder reports whether this Engine decides about the JobSets with claims below a root of the safety tree.
func (cy *Cycle) decidesUnder(root *quota.Node) bool {
	return slices.ContainsFunc(cy.m.Bank.ClaimsUnderRoot(root), func(c *safety.Claim) bool {
		j := cy.m.JobSets[c.OwnerUID]
		return j != nil && j.ClaimQueue != nil && j.ClaimQueue.Decides()
	})
}

// price returns the cost of evicting a JobSet: the accelerator-seconds since it began to hold its quota. All of them are after its last stage
// boundary.
func (cy *Cycle) price(c *safety.Claim) safety.Price {
	j := cy.m.JobSets[c.OwnerUID]
	price := safety.Price{Priority: j.Priority()}
	for _, s := range j.EvictionUnit.Stages {
		seconds := max(0, cy.m.Now.Sub(s.ReservedAt).Seconds())
		for _, held := range s.Entry.Usage {
			if charge.IsAccelerator(cy.m.Tree.Index.Name(held.ID).Resource) {
				price.Lost += seconds * float64(held.Amount)
			}
		}
	}
	return price
}

// compareClaims orders victims: least loss first, then lower priority, then latest submission or eviction.
func (cy *Cycle) compareClaims(a, b *safety.Claim) int {
	x, y := cy.price(a), cy.price(b)
	return cmp.Or(
		cmp.Compare(x.Lost, y.Lost), cmp.Compare(x.Priority, y.Priority),
		cy.m.JobSets[b.OwnerUID].Since().Compare(cy.m.JobSets[a.OwnerUID].Since()), cmp.Compare(a.OwnerUID, b.OwnerUID),
	)
}

// whyRelief returns why the JobSet cannot continue with the quota that it holds.
func (cy *Cycle) whyRelief(j *model.JobSet) string {
	if j.Claim.Mode == safety.Halted {
		return fmt.Sprintf("deadlock recovery: the %s cannot progress in ClusterQueue %s, and other JobSets need its quota", j.Owner.Kind, j.ClaimQueue.Name)
	}
	return fmt.Sprintf("deadlock recovery: the %s cannot progress in ClusterQueue %s with the quota that it holds: %s", j.Owner.Kind, j.ClaimQueue.Name, check.LackOf(cy.check, j))
}
