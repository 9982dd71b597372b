package cycle

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/fairshare"
	"github.com/tranche-dev/tranche/admission/internal/model"
)

// The past usage of LocalQueues determines the order in a ClusterQueue whose admissionScope says so (KEP-4136). A LocalQueue's account is opened
// at the first call of Decide after it was observed, from its status and the charges of its stages. From then on every change of its charges is a
// transfer. Transfers wait for the next call of Decide, which knows the time.

// settleAccounts updates the accounts to the current time.
func (cy *Cycle) settleAccounts() {
	if cy.m.Decay == nil {
		return
	}
	cy.settleTransfers()
	for _, q := range slices.SortedFunc(maps.Keys(cy.m.Unopened), compareLocalQueues) {
		cy.openAccount(q)
	}
	clear(cy.m.Unopened)
	cy.sample()
}

// settleTransfers applies the recorded transfers.
func (cy *Cycle) settleTransfers() {
	for _, t := range cy.m.Transfers {
		if t.Queue.Account != nil {
			cy.carryOut(t)
			cy.sampleUsage(t.Queue)
			cy.reorder(t.Queue)
		}
	}
	cy.m.Transfers = nil
}

func (cy *Cycle) carryOut(t model.Transfer) {
	a := t.Queue.Account
	switch t.Before.Phase {
	case model.Reserving:
		if t.Now.Phase == model.Admitted && t.Before.Usage.Equal(t.Now.Usage) {
			cy.m.Decay.Admit(a, t.Now.Usage, cy.m.Now)
			return
		}
		cy.m.Decay.Withdraw(a, t.Before.Usage)
	case model.Admitted:
		cy.m.Decay.Release(a, t.Before.Usage, cy.m.Now)
		if t.Now.Phase == model.Admitted {
			// Its usage has changed, and its entry penalty is already paid.
			cy.m.Decay.Resume(a, t.Now.Usage, cy.m.Now)
			return
		}
	case model.Ineligible, model.Waiting, model.Finished:
	}
	if t.Now.IsCharged() {
		cy.m.Decay.Enter(a, t.Now.Usage)
	}
	if t.Now.Phase == model.Admitted {
		cy.m.Decay.Admit(a, t.Now.Usage, cy.m.Now)
	}
}

// openAccount initializes the account of a LocalQueue from its status and the charges of its stages.
func (cy *Cycle) openAccount(q *model.LocalQueue) {
	account := fairshare.Account{}
	if q.Consumed != nil {
		account = cy.m.Decay.Restore(q.Consumed)
	}
	q.Account = &account
	for _, s := range slices.SortedFunc(slices.Values(q.Members.All), model.CompareStages) {
		switch s.Entry.Phase {
		case model.Admitted:
			cy.m.Decay.Resume(q.Account, s.Entry.Usage, s.AdmittedAt)
		case model.Reserving:
			cy.m.Decay.Enter(q.Account, s.Entry.Usage)
		case model.Ineligible, model.Waiting, model.Finished:
		}
	}
	cy.reorder(q)
}

// reorder makes the queue of the ClusterQueue read the levels again.
func (cy *Cycle) reorder(q *model.LocalQueue) {
	if target := cy.m.ClusterQueues[q.ClusterQueue]; target != nil && target.IsUsageBased && target.Reorder() {
		cy.m.Schedule.ScheduleCycle(target)
	}
}

// sample updates the usage in the status of each LocalQueue once in a sampling interval, at times that do not depend on when the manager started.
func (cy *Cycle) sample() {
	if cy.m.Now.Before(cy.nextSample) {
		return
	}
	interval := cy.m.Config.AdmissionFairSharing.UsageSamplingInterval
	cy.nextSample = cy.m.Now.Truncate(interval).Add(interval)
	for _, q := range cy.m.LocalQueues {
		if q.Account == nil {
			continue
		}
		cy.sampleUsage(q)
	}
	for _, q := range cy.m.ClusterQueues {
		switch {
		case !q.IsUsageBased:
		case q.Preemption.WithinClusterQueue == kueue.PreemptionPolicyLowerOrNewerEqualPriority && q.PendingQueue.Len() > 0:
			// As usage decays, a stage may have come to precede an equal one that holds quota.
			cy.m.Schedule.WakeQueue(q)
		case q.PendingQueue.Blocks() || q.Due != nil:
			// As usage decays, another stage may have come to precede the blocking or the due stage.
			cy.m.Schedule.ScheduleCycle(q)
		}
	}
}

// sampleUsage updates the usage in the status of a LocalQueue. It is up to date after each change of charges, which changes that status anyway: from it and
// from the stages that hold quota, a restarted manager computes the same account.
func (cy *Cycle) sampleUsage(q *model.LocalQueue) {
	q.Sampled = cy.m.Decay.Status(q.Account, cy.m.Now)
	cy.addUnused(q)
	cy.m.Changes.NoteLocalChange(q)
}

// addUnused adds the resources of the ClusterQueue that a LocalQueue has not used, so that its status lists them, too.
func (cy *Cycle) addUnused(q *model.LocalQueue) {
	for _, g := range cy.m.ClusterQueue(q.ClusterQueue).Groups {
		for _, name := range g.CoveredResources {
			if _, ok := q.Sampled.ConsumedResources[name]; !ok {
				q.Sampled.ConsumedResources[name] = *resource.NewQuantity(0, resource.DecimalSI)
			}
		}
	}
}

func compareLocalQueues(a, b *model.LocalQueue) int { return model.CompareKeys(a.Key, b.Key) }
