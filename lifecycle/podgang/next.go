package podgang

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/podgroup"
	"github.com/tranche-dev/tranche/lifecycle/quotastep"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// A stepBuilder computes one step.
type stepBuilder struct {
	*gangState
	now  time.Time
	step *Step
	// givenUp is the quota Workload that stays without its quota, which this step releases, so that no pod is ungated under it. It may be nil.
	givenUp *kueue.Workload
	// passedOn has the extras that this step keeps for waiting pods.
	passedOn map[types.UID]bool
}

// Next computes the next step from the snapshot and the time.
func Next(s *Snapshot, now time.Time) *Step {
	b := &stepBuilder{gangState: stateOf(s), now: now, step: &Step{}, passedOn: map[types.UID]bool{}}
	b.step.AwaitsEngine = slices.ContainsFunc(b.Workloads, func(w *kueue.Workload) bool { return isAdmittedByStatus(w) && !b.Charged[w.UID] })
	for _, w := range b.Workloads {
		b.reconcileWorkload(w)
	}
	if b.isForeign() {
		return b.step
	}
	if b.endUncharged() {
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
	if b.disown(w) {
		return
	}
	if quotaworkload.HoldsQuota(w) && quotaworkload.IsTrue(w, kueue.WorkloadEvicted) {
		b.deletePods(w, workloadstatus.EvictionOf(w).Message)
	}
	switch {
	case !w.DeletionTimestamp.IsZero():
		if !b.runs(w) {
			b.step.Do(quotastep.RemoveFinalizer, w)
		}
	case b.isForgotten(w):
		if !b.runs(w) {
			b.step.Do(quotastep.Delete, w)
		}
	case quotaworkload.IsTrue(w, kueue.WorkloadFinished):
		if !b.runs(w) && slices.Contains(w.Finalizers, kueue.ResourceInUseFinalizerName) {
			b.step.Do(quotastep.RemoveFinalizer, w)
		}
	case b.isCompleted(w):
		b.finish(w, workloadstatus.Succeeded(textSucceeded))
	case quotaworkload.HoldsQuota(w) && quotaworkload.IsTrue(w, kueue.WorkloadEvicted):
		b.finishEviction(w)
	case quotaworkload.HoldsQuota(w):
		b.follow(w)
	case b.isUnpaid(w):
		b.endUnpaid(w)
	case len(w.Status.ReclaimablePods) > 0:
		b.step.Reclaim(w, nil)
	}
}

// isForgotten reports whether a quota Workload is no longer needed.
func (b *stepBuilder) isForgotten(w *kueue.Workload) bool {
	switch g := b.Gang; {
	case !g.Owns(w):
		return true
	case g.Object == nil && len(g.All()) == 0:
		isAwaiting := awaitsPods(w) && (g.Kind != podgroup.Single || quotaworkload.HoldsQuota(w) || keepsNames(w))
		return !isAwaiting && !b.awaitsReplacement(w)
	case isExtra(w):
		pod := b.pods[types.UID(w.Labels[apis.ExtraLabel])]
		if pod == nil || podgroup.IsTerminal(pod) || podgroup.IsVanishing(pod) {
			return pod != nil && pod.Status.Phase == corev1.PodSucceeded || !outlivesPods(w) || !b.awaitsPod(w, w)
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

// awaitsPods reports whether a quota Workload is kept although no pod of the gang waits or runs at the moment: it was evicted or lost its admission, and the
// controllers of its pods recreate them. When these or the PodGroup are deleted, the garbage collector deletes it.
func awaitsPods(w *kueue.Workload) bool {
	isOfController := slices.ContainsFunc(w.OwnerReferences, func(o metav1.OwnerReference) bool { return !isPod(o) })
	isEvicted := quotaworkload.IsTrue(w, kueue.WorkloadEvicted) || !hasStarted(w) || !quotaworkload.HoldsQuota(w)
	return isOfController && hasEverStarted(w) && isEvicted && !quotaworkload.IsTrue(w, kueue.WorkloadFinished)
}

// deletePods deletes the pods of a quota Workload.
func (b *stepBuilder) deletePods(w *kueue.Workload, why string) {
	for _, pod := range b.podsPaidBy(w) {
		if podgroup.IsActive(pod) && pod.DeletionTimestamp == nil {
			b.step.Delete = append(b.step.Delete, Delete{pod, why})
		}
	}
}

// endUnpaid ends a run for which no quota is held: it deletes the pods, and keeps the quota Workload out of the queue until they have terminated.
func (b *stepBuilder) endUnpaid(w *kueue.Workload) {
	if !b.runs(w) {
		b.finishEviction(w)
		return
	}
	b.deletePods(w, unpaidBy(w))
	if !quotaworkload.HasGate(w, apis.GangGate) {
		b.step.Change(w, gated(w))
	}
}

func unpaidBy(w *kueue.Workload) string {
	return fmt.Sprintf("Another client has removed the admission of quota Workload %q, which paid for its pods", w.Name)
}

// endUncharged deletes pods whose quota Workload another client has deleted, with its finalizer. It reports whether the gang waits until they have terminated:
// if it was an initial one, they must not start again besides them.
func (b *stepBuilder) endUncharged() bool {
	text := ""
	for _, pod := range b.Gang.All() {
		if !podgroup.IsActive(pod) || !b.Gone[podgroup.Payer(pod)] {
			continue
		}
		text = fmt.Sprintf("Another client has deleted quota Workload %q, which paid for its pods, and its finalizer", pod.Annotations[kueue.WorkloadAnnotation])
		if pod.DeletionTimestamp == nil {
			b.step.Delete = append(b.step.Delete, Delete{pod, text})
		}
	}
	if text == "" || len(b.initial) > 0 {
		return false
	}
	b.step.Message = Message{"GangEvicted", "Evict", "The gang ends, and queues again when its pods have terminated: " + text, false}
	return true
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
		b.step.Change(w, withEnd(w))
	case isExtra(w) && !b.isAwaited(w) && !quotaworkload.HasGate(w, apis.GangGate):
		b.step.Change(w, gated(w))
	default:
		b.step.Do(quotastep.Release, w)
	}
}

// isAwaited reports whether the pod of an extra waits for its quota.
func (b *stepBuilder) isAwaited(w *kueue.Workload) bool {
	pod := b.pods[types.UID(w.Labels[apis.ExtraLabel])]
	return pod != nil && podgroup.IsWaiting(pod)
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
		b.evict(w, why, b.putOff(w))
		return
	}
	pods := b.podsPaidBy(w)
	if finished := b.outcome(w, pods); finished != nil {
		b.finish(w, finished)
		return
	}
	if b.step.Does(w, quotastep.Reclaim) {
		return
	}
	ready := b.podsReady(w)
	if old := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadPodsReady); old == nil || old.Status != ready.Status || old.Reason != ready.Reason {
		b.step.Progress(w, ready, nil)
	}
	if reclaimed, isReported := reclaimable(w, pods); !isReported {
		b.step.Reclaim(w, reclaimed)
	}
}

// finish records that an initial quota Workload has finished.
func (b *stepBuilder) finish(w *kueue.Workload, finished *metav1.Condition) {
	b.step.Progress(w, b.podsReady(w), finished)
	b.finishedInitial = append(b.finishedInitial, w)
	b.initial = slices.DeleteFunc(b.initial, func(c *kueue.Workload) bool { return c == w })
}

// close gates waiting quota Workloads while there is a problem.
func (b *stepBuilder) close() {
	for _, w := range b.initial {
		if quotaworkload.HoldsQuota(w) || b.isUnpaid(w) || quotaworkload.HasGate(w, apis.GangGate) {
			continue
		}
		b.step.Change(w, gated(w))
	}
}

// reconcileGang reconciles the gang as a whole.
func (b *stepBuilder) reconcileGang() {
	if cause := b.evicted(); cause != nil {
		b.step.Message = Message{"GangEvicted", "Evict", "The gang is evicted: " + workloadstatus.EvictionOf(cause).Message, false}
		b.evictAll(workloadstatus.EvictionOf(cause), nil)
		return
	}
	if i := slices.IndexFunc(b.initial, b.isUnpaid); i >= 0 {
		why := unpaidBy(b.initial[i])
		b.step.Message = Message{"GangEvicted", "Evict", "The gang ends, and queues again when its pods have terminated: " + why, false}
		b.evictAll(workloadstatus.Eviction{Reason: kueue.WorkloadEvictedByPodsReadyTimeout, Message: why}, nil)
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
			b.step.Do(quotastep.Delete, w)
		}
	}
	b.initial = slices.DeleteFunc(b.initial, func(w *kueue.Workload) bool { return w != b.initial[0] && !hasStarted(w) })
}

// evictAll evicts the rest of the gang, including its extra quota Workloads.
func (b *stepBuilder) evictAll(why workloadstatus.Eviction, requeue func(*kueue.Workload) *kueue.RequeueState) {
	for _, w := range slices.Concat(b.initial, b.extras) {
		if !quotaworkload.HoldsQuota(w) || quotaworkload.IsTrue(w, kueue.WorkloadEvicted) || b.step.Does(w, quotastep.Delete, quotastep.Evict) {
			continue
		}
		var state *kueue.RequeueState
		if requeue != nil {
			state = requeue(w)
		}
		b.evict(w, why, state)
	}
}

// giveUp evicts a gang that cannot start, and lets it back off.
func (b *stepBuilder) giveUp(why string) {
	b.evictAll(workloadstatus.Eviction{Reason: kueue.WorkloadEvictedByPodsReadyTimeout, Message: why}, b.putOff)
}

func (b *stepBuilder) evict(w *kueue.Workload, why workloadstatus.Eviction, requeue *kueue.RequeueState) {
	b.step.Writes = append(b.step.Writes, quotastep.Write{Kind: quotastep.Evict, Workload: w, Eviction: why, Requeue: requeue})
}

// isForeign reports whether a PodGroup has nothing to do with quota: nothing is reported on it.
func (s *Snapshot) isForeign() bool {
	return len(s.Gang.Pods)+len(s.Workloads) == 0 && s.Gang.Queue == ""
}
