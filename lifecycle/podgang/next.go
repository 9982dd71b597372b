package podgang

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/podgroup"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// A stepBuilder computes one step.
type stepBuilder struct {
	*gangState
	now  time.Time
	step *Step
}

// Next computes the next step from the snapshot and the time.
func Next(s *Snapshot, now time.Time) *Step {
	b := &stepBuilder{gangState: stateOf(s), now: now, step: &Step{}}
	for _, w := range b.Workloads {
		b.reconcileWorkload(w)
	}
	if b.isForeign() {
		return b.step
	}
	b.expireFinished()
	b.expireDeactivated()
	if len(s.Problems) > 0 {
		b.step.Message = Message{"Misconfigured", "Check", s.Problems.String(), true}
		b.close()
		if cause := b.evicted(); cause != nil {
			b.evictAll(workloadstatus.EvictionOf(cause), nil)
		}
		b.timeOut()
		return b.step
	}
	b.reconcileGang()
	return b.step
}

// reconcileWorkload reconciles one quota Workload, as far as that affects no other. Whatever its state, its pods are deleted once it is evicted.
func (b *stepBuilder) reconcileWorkload(w *kueue.Workload) {
	if quotaworkload.HoldsQuota(w) && quotaworkload.IsTrue(w, kueue.WorkloadEvicted) {
		b.deletePods(w)
	}
	switch {
	case !w.DeletionTimestamp.IsZero():
		if !b.runs(w) {
			b.step.RemoveFinalizer = append(b.step.RemoveFinalizer, w)
		}
	case b.isForgotten(w):
		if !b.runs(w) {
			b.step.DeleteWorkloads = append(b.step.DeleteWorkloads, w)
		}
	case quotaworkload.IsTrue(w, kueue.WorkloadFinished):
		if !b.runs(w) && slices.Contains(w.Finalizers, kueue.ResourceInUseFinalizerName) {
			b.step.RemoveFinalizer = append(b.step.RemoveFinalizer, w)
		}
	case b.isCompleted(w):
		b.finish(w, workloadstatus.Succeeded(textSucceeded))
	case quotaworkload.HoldsQuota(w) && quotaworkload.IsTrue(w, kueue.WorkloadEvicted):
		b.finishEviction(w)
	case quotaworkload.HoldsQuota(w):
		b.follow(w)
	case len(w.Status.ReclaimablePods) > 0:
		b.step.Reclaim = append(b.step.Reclaim, Reclaim{Workload: w})
	}
}

// isForgotten reports whether a quota Workload is no longer needed.
func (b *stepBuilder) isForgotten(w *kueue.Workload) bool {
	switch g := b.Gang; {
	case !g.Owns(w):
		return true
	case g.Object == nil && len(g.All()) == 0:
		return !awaitsPods(w)
	case isExtra(w):
		pod := b.pods[types.UID(w.Labels[apis.ExtraLabel])]
		if pod == nil || podgroup.IsTerminal(pod) || podgroup.IsVanishing(pod) {
			return true
		}
		by, _ := paidBy(pod)
		if podgroup.IsGated(pod) {
			return !b.isStarted() // it asks for quota with the others
		}
		return by != admissionOf(w) // it has another slot
	case quotaworkload.IsTrue(w, kueue.WorkloadFinished):
		return len(b.initial) == 0 && !b.leaving && len(b.waiting) > 0
	case len(b.waiting) > 0 || b.running || g.Reserves():
		return false
	}
	// An evicted one keeps its queue position for pods that are recreated. If it is admitted again before these exist, it is still needed: without it,
	// the pods that have succeeded would no longer count, nor the gangs with which it has started.
	return !quotaworkload.IsTrue(w, kueue.WorkloadEvicted) && (!quotaworkload.HoldsQuota(w) || !hasStarted(w)) && b.succeeded == 0 && !awaitsPods(w)
}

// awaitsPods reports whether a quota Workload is kept although no pod of the gang waits or runs at the moment: it was evicted, and the controllers of its
// pods recreate them. When these or the PodGroup are deleted, the garbage collector deletes it.
func awaitsPods(w *kueue.Workload) bool {
	isOfController := slices.ContainsFunc(w.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Kind != "Pod" })
	isEvicted := quotaworkload.IsTrue(w, kueue.WorkloadEvicted) || !hasStarted(w)
	return isOfController && hasEverStarted(w) && isEvicted && !quotaworkload.IsTrue(w, kueue.WorkloadFinished)
}

// deletePods deletes the pods of an evicted quota Workload.
func (b *stepBuilder) deletePods(w *kueue.Workload) {
	for _, pod := range b.podsPaidBy(w) {
		if podgroup.IsActive(pod) && pod.DeletionTimestamp == nil {
			b.step.Delete = append(b.step.Delete, Delete{pod, workloadstatus.EvictionOf(w).Message})
		}
	}
}

// finishEviction releases the quota of an evicted quota Workload when none of its pods runs. If all of them have succeeded meanwhile it has finished.
func (b *stepBuilder) finishEviction(w *kueue.Workload) {
	switch {
	case b.runs(w):
	case hasStarted(w) && b.isSpentPart(w):
		// The rest of the gang is evicted first: see evicted.
		if !slices.ContainsFunc(b.initial, isHeld) {
			b.finish(w, workloadstatus.Succeeded(textSucceeded))
		}
	case hasStarted(w) && !isExtra(w) && b.isAlone() && isSpent(w, b.podsPaidBy(w), b.Gang.Min):
		b.finish(w, workloadstatus.Succeeded(textSucceeded))
	case hasStarted(w):
		b.step.Change = append(b.step.Change, Change{w, withEnd(w)})
	default:
		b.step.ReleaseQuota = append(b.step.ReleaseQuota, w)
	}
}

// isSpentPart reports whether all pods of a part of a gang have succeeded, and not those of another part. When the gang is evicted, the part finishes:
// no controller recreates its pods. The other parts queue again.
func (b *stepBuilder) isSpentPart(w *kueue.Workload) bool {
	isUnspent := func(part *kueue.Workload) bool { return !isSpent(part, b.podsPaidBy(part), b.Gang.Min) }
	return isPart(w) && !isUnspent(w) && slices.ContainsFunc(b.initial, isUnspent)
}

// isHeld reports whether a quota Workload holds quota and is not evicted.
func isHeld(w *kueue.Workload) bool {
	return quotaworkload.HoldsQuota(w) && !quotaworkload.IsTrue(w, kueue.WorkloadEvicted)
}

// follow reports the state of the pods of a quota Workload that holds quota.
func (b *stepBuilder) follow(w *kueue.Workload) {
	if !hasStarted(w) && !isExtra(w) {
		return
	}
	if b.isUnused(w) {
		why := workloadstatus.Eviction{
			Reason: kueue.WorkloadEvictedByPodsReadyTimeout, Message: fmt.Sprintf("The pod of this quota Workload was not ungated within %s", idleGrace),
		}
		b.step.Evict = append(b.step.Evict, Evict{Workload: w, Why: why, Requeue: b.putOff(w)})
		return
	}
	pods := b.podsPaidBy(w)
	if finished := b.outcome(w, pods); finished != nil {
		b.finish(w, finished)
		return
	}
	ready := b.podsReady(w)
	if old := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadPodsReady); old == nil || old.Status != ready.Status || old.Reason != ready.Reason {
		b.step.Progress = append(b.step.Progress, Progress{w, ready, nil})
	}
	if reclaimed, isReported := reclaimable(w, pods); !isReported {
		b.step.Reclaim = append(b.step.Reclaim, Reclaim{w, reclaimed})
	}
}

// finish records that an initial quota Workload has finished.
func (b *stepBuilder) finish(w *kueue.Workload, finished *metav1.Condition) {
	b.step.Progress = append(b.step.Progress, Progress{w, b.podsReady(w), finished})
	b.finishedInitial = append(b.finishedInitial, w)
	b.initial = slices.DeleteFunc(b.initial, func(c *kueue.Workload) bool { return c == w })
}

// again requeues the gang after a duration, or earlier.
func (b *stepBuilder) again(after time.Duration) {
	b.step.RequeueAfter = workloadstatus.Sooner(b.step.RequeueAfter, after)
}

// close gates waiting quota Workloads while there is a problem.
func (b *stepBuilder) close() {
	for _, w := range b.initial {
		if quotaworkload.HoldsQuota(w) || slices.Contains(quotaworkload.Gates(w), apis.GangGate) {
			continue
		}
		after := w.DeepCopy()
		setGate(after, apis.GangGate)
		b.step.Change = append(b.step.Change, Change{w, after})
	}
}

// reconcileGang reconciles the gang as a whole.
func (b *stepBuilder) reconcileGang() {
	if cause := b.evicted(); cause != nil {
		b.step.Message = Message{"GangEvicted", "Evict", "The gang is evicted: " + workloadstatus.EvictionOf(cause).Message, false}
		b.evictAll(workloadstatus.EvictionOf(cause), nil)
		return
	}
	b.dropTwins()
	if b.isStarted() {
		b.step.Message = b.started()
		b.ungateLate()
		b.forgetTimeout()
		return
	}
	b.reconcileUnstarted()
}

// dropTwins keeps one of several quota Workloads that each ask for the whole gang: the one under which it has started, or that holds quota. Each
// is named after the oldest pod, and stale caches may show different ones.
func (b *stepBuilder) dropTwins() {
	if len(b.initial) < 2 || slices.ContainsFunc(b.initial, isPart) {
		return
	}
	rank := func(w *kueue.Workload) int {
		switch {
		case !quotaworkload.HoldsQuota(w):
			return 2
		case !hasStarted(w):
			return 1
		}
		return 0
	}
	slices.SortStableFunc(b.initial, func(a, b *kueue.Workload) int { return cmp.Compare(rank(a), rank(b)) })
	for _, w := range b.initial[1:] {
		if !hasStarted(w) {
			b.step.DeleteWorkloads = append(b.step.DeleteWorkloads, w)
		}
	}
	b.initial = slices.DeleteFunc(b.initial, func(w *kueue.Workload) bool { return w != b.initial[0] && !hasStarted(w) })
}

// evictAll evicts the rest of the gang, including its extra quota Workloads.
func (b *stepBuilder) evictAll(why workloadstatus.Eviction, requeue func(*kueue.Workload) *kueue.RequeueState) {
	for _, w := range slices.Concat(b.initial, b.extras) {
		if !quotaworkload.HoldsQuota(w) || quotaworkload.IsTrue(w, kueue.WorkloadEvicted) || slices.Contains(b.step.DeleteWorkloads, w) || b.evicts(w) {
			continue
		}
		e := Evict{Workload: w, Why: why}
		if requeue != nil {
			e.Requeue = requeue(w)
		}
		b.step.Evict = append(b.step.Evict, e)
	}
}

// giveUp evicts a gang that cannot start, and lets it back off.
func (b *stepBuilder) giveUp(why string) {
	b.evictAll(workloadstatus.Eviction{Reason: kueue.WorkloadEvictedByPodsReadyTimeout, Message: why}, b.putOff)
}

// evicts reports whether this step evicts a quota Workload.
func (b *stepBuilder) evicts(w *kueue.Workload) bool {
	return slices.ContainsFunc(b.step.Evict, func(e Evict) bool { return e.Workload == w })
}

// isForeign reports whether a PodGroup has nothing to do with quota: nothing is reported on it.
func (s *Snapshot) isForeign() bool {
	return len(s.Gang.Pods)+len(s.Workloads) == 0 && s.Gang.Queue == ""
}
