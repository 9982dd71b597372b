package podgang

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/lifecycle/podgroup"
	"github.com/tranche-dev/tranche/lifecycle/quotastep"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// idleGrace is how long a started gang keeps quota without a pod: the time that the controller of its pods may take to recreate them.
const idleGrace = 2 * time.Minute

// How a gang has finished.
const (
	textSucceeded = "All pods of the gang have succeeded"
	textFailed    = "All pods of the gang have terminated, not all of them succeeded, and none was recreated"
)

// outcome returns the Finished condition of an initial quota Workload, or nil while it is needed. It is also no longer needed when its pods were
// recreated and ask for something else, or when no pod has used it for idleGrace and no waiting pod can be ungated under it.
func (b *stepBuilder) outcome(w *kueue.Workload, pods []*corev1.Pod) *metav1.Condition {
	if isExtra(w) {
		return nil
	}
	finished, isAlone := workloadstatus.Succeeded(textSucceeded), b.isAlone()
	if isSpent(w, pods, b.Gang.Min) {
		switch _, isGivenUp := idleSince(w); {
		case isAlone && isGivenUp && b.succeeded < b.Gang.Min:
			finished.Reason, finished.Message = kueue.WorkloadFinishedReasonFailed, textFailed
			return finished
		case isAlone:
			return finished
		case w.Spec.PodSets[0].Name != reservedPodSet:
			return nil // it holds no quota any longer
		}
	}
	if !b.isReplaced(w) && !b.isSingleTerminated() && b.idle(w) != 0 {
		return nil
	}
	if b.goesOn(w, pods) {
		b.giveSlotsUp(w)
		return nil
	}
	finished.Reason, finished.Message = kueue.WorkloadFinishedReasonFailed, textFailed
	if !isAlone {
		finished.Message = "No pod of the gang uses the quota with which the gang started, and no waiting pod fits in it"
	}
	return finished
}

// goesOn reports whether a started gang goes on although no pod uses its quota, or fits in it: some of its pods have terminated, and fewer wait than have to
// start together, so that they cannot start as a gang again. The others will not come back: each pod that waits gets its quota alone, like any other pod
// of a started gang.
//
//	2 start together -> one succeeds -> the other fails, and is recreated with more memory -> its extra quota Workload
func (b *stepBuilder) goesOn(w *kueue.Workload, pods []*corev1.Pod) bool {
	isOnly := len(b.initial) == 1 && w.Spec.PodSets[0].Name != reservedPodSet
	return isOnly && slices.ContainsFunc(pods, podgroup.IsTerminal) && len(b.waiting) > 0 && len(b.waiting) < int(b.Gang.Min-b.active)
}

// giveSlotsUp releases all quota of the initial quota Workload of a gang that goes on without it. It stays, because it records that the gang has started.
func (b *stepBuilder) giveSlotsUp(w *kueue.Workload) {
	var all []kueue.ReclaimablePod
	for i := range w.Spec.PodSets {
		all = append(all, kueue.ReclaimablePod{Name: w.Spec.PodSets[i].Name, Count: w.Spec.PodSets[i].Count})
	}
	if _, isNoted := idleSince(w); !isNoted && !b.step.Does(w, quotastep.Change) {
		b.step.Change(w, withIdle(w, b.now))
	}
	b.step.Reclaim(w, all)
	b.givenUp = w
}

// idle returns how long a quota Workload may still be without pods, or a negative duration if it has pods. It records since when it has none.
// Pods that wait for it are ungated at once; a pod that is still gated by then needs a fix by its user, so it does not extend the time. Pods that
// have been created since get the full time from when they are first observed: the manager may not have run before.
func (b *stepBuilder) idle(w *kueue.Workload) time.Duration {
	since, isNoted := idleSince(w)
	if b.runs(w) {
		if isNoted {
			b.step.Change(w, withIdle(w, time.Time{}))
		}
		return -1
	}
	if !isNoted {
		since = b.now
	}
	if places := b.match([]*kueue.Workload{w}); len(places) > 0 && places[0].pod.CreationTimestamp.After(since) {
		since, isNoted = workloadstatus.Later(b.now, places[0].pod.CreationTimestamp.Time), false
	}
	if !isNoted {
		b.step.Change(w, withIdle(w, since))
	}
	return b.grace(since)
}

// isReplaced reports whether as many pods wait as a quota Workload pays for, none of which fits in it, and no pod uses it. Then no pod can be
// expected that does, and those that wait may need its quota: a StatefulSet recreates a pod with other requests.
func (b *stepBuilder) isReplaced(w *kueue.Workload) bool {
	if b.runs(w) || len(b.match([]*kueue.Workload{w})) > 0 {
		return false
	}
	slots := int32(0)
	for i := range w.Spec.PodSets {
		p := &w.Spec.PodSets[i]
		slots += p.Count - reclaimed(w, p.Name, b.podsPaidBy(w))
	}
	return len(b.waiting) >= int(slots)
}

// isSingleTerminated reports whether the pod of a gang of one has terminated and still exists: as long as it does, its name is taken, so that no pod can be
// recreated that would use the quota. The ReplicaSet of the pod has created another, which waits for quota of its own.
func (b *stepBuilder) isSingleTerminated() bool {
	pods := b.Gang.All()
	return b.Gang.Kind == podgroup.Single && len(pods) > 0 && !slices.ContainsFunc(pods, func(pod *corev1.Pod) bool { return !podgroup.IsTerminal(pod) })
}

// grace returns how much is left of the time for which quota is kept that no pod uses since then.
func (b *stepBuilder) grace(since time.Time) time.Duration {
	left := max(0, since.Add(idleGrace).Sub(b.now))
	if left > 0 {
		b.step.RequeueWithin(left)
	}
	return left
}

// isUnused reports whether an extra has kept quota for too long for a pod that is not ungated. It records since when the manager has tried: the
// manager may not have run before.
func (b *stepBuilder) isUnused(w *kueue.Workload) bool {
	if !isExtra(w) || !isAdmittedByStatus(w) || b.runs(w) {
		return false
	}
	admitted := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadAdmitted).LastTransitionTime.Time
	since, isNoted := idleSince(w)
	if isNoted && !since.Before(admitted) {
		return b.grace(since) == 0
	}
	if b.grace(admitted) == 0 {
		b.step.Change(w, withIdle(w, b.now))
		b.step.RequeueWithin(idleGrace)
	}
	return false
}
