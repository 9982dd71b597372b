package admission

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/fairshare"
	"github.com/tranche-dev/tranche/admission/quota"
)

// The past usage of LocalQueues determines the order in a ClusterQueue whose admissionScope says so (KEP-4136). A LocalQueue's account is opened
// at the first call of Decide after it was observed, from its status and the charges of its stages. From then on every change of its charges is a
// transfer. Transfers wait for the next call of Decide, which knows the time.

// A transfer is a change of the charges of a LocalQueue.
type transfer struct {
	queue       *localQueue
	before, now entry
}

// transfer records a change for the accounts.
func (e *Engine) transfer(before, now entry) {
	if e.decay == nil || !before.isCharged() && !now.isCharged() {
		return
	}
	if before.localQueue != nil && before.localQueue != now.localQueue {
		e.transfers = append(e.transfers, transfer{queue: before.localQueue, before: before})
		before = entry{}
	}
	if now.localQueue != nil {
		e.transfers = append(e.transfers, transfer{queue: now.localQueue, before: before, now: now})
	}
}

// settleAccounts updates the accounts to the current time.
func (e *Engine) settleAccounts() {
	if e.decay == nil {
		return
	}
	e.settleTransfers()
	for _, q := range slices.SortedFunc(maps.Keys(e.unopened), compareLocalQueues) {
		e.openAccount(q)
	}
	clear(e.unopened)
	e.sample()
}

// settleTransfers applies the recorded transfers.
func (e *Engine) settleTransfers() {
	for _, t := range e.transfers {
		if t.queue.account != nil {
			e.carryOut(t)
			e.reorder(t.queue)
		}
	}
	e.transfers = nil
}

func (e *Engine) carryOut(t transfer) {
	a := t.queue.account
	switch t.before.phase {
	case reserving:
		if t.now.phase == admitted && t.before.usage.Equal(t.now.usage) {
			e.decay.Admit(a, t.now.usage, e.now)
			return
		}
		e.decay.Withdraw(a, t.before.usage)
	case admitted:
		e.decay.Release(a, t.before.usage, e.now)
		if t.now.phase == admitted {
			// Its usage has changed, and its entry penalty is already paid.
			e.decay.Resume(a, t.now.usage, e.now)
			return
		}
	case ineligible, waiting, finished:
	}
	if t.now.isCharged() {
		e.decay.Enter(a, t.now.usage)
	}
	if t.now.phase == admitted {
		e.decay.Admit(a, t.now.usage, e.now)
	}
}

// openAccount initializes the account of a LocalQueue from its status and the charges of its stages.
func (e *Engine) openAccount(q *localQueue) {
	account := fairshare.Account{}
	if q.consumed != nil {
		account = e.decay.Restore(q.consumed)
	}
	q.account = &account
	for _, s := range slices.SortedFunc(slices.Values(q.members.stages), compareStages) {
		switch s.entry.phase {
		case admitted:
			e.decay.Resume(q.account, s.entry.usage, s.admittedAt)
		case reserving:
			e.decay.Enter(q.account, s.entry.usage)
		case ineligible, waiting, finished:
		}
	}
	e.reorder(q)
}

// reorder makes the queue of the ClusterQueue read the levels again.
func (e *Engine) reorder(q *localQueue) {
	if target := e.clusterQueues[q.clusterQueue]; target != nil && target.isUsageBased {
		target.pendingQueue.Reorder()
	}
}

// sample updates the usage in the status of each LocalQueue once in a sampling interval.
func (e *Engine) sample() {
	if e.now.Before(e.nextSample) {
		return
	}
	e.nextSample = e.now.Add(e.config.AdmissionFairSharing.UsageSamplingInterval)
	for _, q := range e.localQueues {
		if q.account == nil {
			continue
		}
		q.sampled = e.decay.Status(q.account, e.now)
		e.addUnused(q)
		e.noteLocalChange(q)
	}
	for _, q := range e.clusterQueues {
		// As usage decays, another stage may have come to precede the blocking stage.
		if q.isUsageBased && q.pendingQueue.Blocks() {
			e.scheduleCycle(q)
		}
	}
}

// addUnused adds the resources of the ClusterQueue that a LocalQueue has not used, so that its status lists them, too.
func (e *Engine) addUnused(q *localQueue) {
	for _, g := range e.clusterQueue(q.clusterQueue).groups {
		for _, name := range g.CoveredResources {
			if _, ok := q.sampled.ConsumedResources[name]; !ok {
				q.sampled.ConsumedResources[name] = *resource.NewQuantity(0, resource.DecimalSI)
			}
		}
	}
}

// levelOf returns the level by which stages of a ClusterQueue are ordered before their positions.
func (e *Engine) levelOf(c equivalenceKey) float64 {
	if c.localQueue.account == nil {
		return 0
	}
	return e.decay.Level(c.localQueue.account, c.localQueue.weight, e.now)
}

func compareLocalQueues(a, b *localQueue) int { return compareKeys(a.key, b.key) }

// fairSharing returns the part of the status of a LocalQueue for its account.
func (q *localQueue) fairSharing() *kueue.LocalQueueFairSharingStatus {
	if q.sampled == nil {
		return nil
	}
	return &kueue.LocalQueueFairSharingStatus{AdmissionFairSharingStatus: q.sampled}
}

// admittedAt returns since when a stage is admitted.
func admittedAt(object *kueue.Workload) time.Time {
	if c := condition(object, kueue.WorkloadAdmitted); c != nil && c.Status == metav1.ConditionTrue {
		return c.LastTransitionTime.Time
	}
	return time.Time{}
}

// A UsagePolicy is how the past usage of LocalQueues determines their order in a ClusterQueue (KEP-4136).
type UsagePolicy struct {
	// UsageHalfLifeTime is the time after which usage counts half. If it is zero, past usage does not count.
	UsageHalfLifeTime time.Duration
	// UsageSamplingInterval is how often the usage in the status of a LocalQueue is updated, and for how long an admission counts in advance.
	// Zero means 5 minutes.
	UsageSamplingInterval time.Duration
	// ResourceWeights are 1 unless set.
	ResourceWeights map[corev1.ResourceName]float64
}

const defaultSampling = 5 * time.Minute

func newDecay(config *UsagePolicy, index *quota.Index) *fairshare.Decay {
	if config == nil {
		return nil
	}
	return fairshare.NewDecay(index, fairshare.Policy{
		HalfLife: config.UsageHalfLifeTime, Sampling: config.UsageSamplingInterval, Weights: config.ResourceWeights,
	})
}
