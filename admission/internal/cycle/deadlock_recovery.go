package cycle

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

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
			cy.revoke(root)
			continue
		}
		for _, c := range cy.m.Bank.SelectVictims(root, cy.price, cy.compareClaims) {
			j := cy.m.JobSets[c.OwnerUID]
			message := cy.whyRelief(j)
			for _, s := range j.EvictionUnit.Stages {
				if !s.IsEvicting() {
					cy.evict(s, decision.Evict{Reason: kueue.WorkloadEvictedByPreemption, Message: message, ResolvesDeadlock: true})
				}
			}
		}
	}
}

// revoke withdraws approvals of reservations below a root of the safety tree, where another engine admits, to resolve a deadlock. A JobSet in a queue
// that is held can continue when the hold ends, for instance because its cohort tree is being taken over: nothing is revoked for that. While a stage that
// is gated again, because its JobSet has restarted, still holds quota, nothing is revoked yet: it may release that quota or open again with it.
func (cy *Cycle) revoke(root *quota.Node) {
	isReleasing := false
	for _, c := range cy.m.Bank.ClaimsUnderRoot(root) {
		j := cy.m.JobSets[c.OwnerUID]
		if j == nil {
			continue
		}
		for _, s := range j.EvictionUnit.Stages {
			s.Revoked = ""
			isReleasing = isReleasing || s.ClosedBy != nil
		}
	}
	if isReleasing {
		cy.m.Bank.Recheck(root)
		return
	}
	for _, c := range cy.m.Bank.SelectVictimsIfResumed(root, cy.price, cy.compareClaims) {
		j := cy.m.JobSets[c.OwnerUID]
		message := cy.whyRelief(j)
		for _, s := range j.EvictionUnit.Stages {
			if s.IsApproved || len(s.ReadyChecks) > 0 {
				s.Revoked = message
				cy.revoked = append(cy.revoked, s.Key)
			}
		}
	}
}

// Revoked returns the stages whose approval has been withdrawn since the last call.
func (cy *Cycle) Revoked() []decision.StageKey {
	revoked := cy.revoked
	cy.revoked = nil
	return revoked
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
	price := safety.Price{Priority: priorityOf(j)}
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

// priorityOf returns the highest priority of the stages of a JobSet that hold quota.
func priorityOf(j *model.JobSet) int32 {
	return slices.MaxFunc(j.EvictionUnit.Stages, func(a, b *model.Stage) int { return cmp.Compare(a.Priority, b.Priority) }).Priority
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
	return fmt.Sprintf("deadlock recovery: the %s cannot progress in ClusterQueue %s with the quota that it holds: %s", j.Owner.Kind, j.ClaimQueue.Name, lackOf(cy, j))
}

// lackOf describes what a JobSet may need at once and cannot get.
func lackOf(cy *Cycle, j *model.JobSet) string {
	if len(j.Claim.Peaks) > 0 {
		peak := j.Claim.Peaks[0]
		if above := cy.check.AboveMost(j.ClaimQueue, peak); len(above) > 0 {
			return "its stages hold up to " + strings.Join(above, " and ")
		}
		return "its stages need up to " + cy.check.List(peak.Without(j.Claim.Held)) + " more at once, and the holders of that quota cannot progress either"
	}
	for i, d := range j.Stages {
		if o := cy.m.Offer(d, j.ClaimQueue); o.Infeasibility != nil {
			return fmt.Sprintf("stage %s could never be admitted: %s", j.Plan.Stages[i].Name, check.LackRefusal(j.ClaimQueue, o.Infeasibility).Message)
		}
	}
	return "a stage could never be admitted"
}
