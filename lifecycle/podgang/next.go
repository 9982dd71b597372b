package podgang

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// A stepBuilder computes one step.
type stepBuilder struct {
	*Snapshot
	now  time.Time
	step *Step
	// initial and extras are the quota Workloads of the current gang, ordered by name, without the finished ones.
	initial, extras []*kueue.Workload
	// finishedInitial are the finished quota Workloads of the core.
	finishedInitial []*kueue.Workload
	// crews has the pods that each admission pays for.
	crews map[string][]*corev1.Pod
	// pods has the pods of the gang by their UIDs, controllers the controllers of waiting pods, and shapes caches shapes.
	pods        map[types.UID]*corev1.Pod
	controllers map[types.UID]struct{}
	shapes      shapes
	// waiting has the pods that wait to be ungated; active and succeeded count the other pods of this run of the gang.
	waiting           []*corev1.Pod
	active, succeeded int32
	// unclaimed is a pod that waits to be ungated, and whose ResourceClaims have not been created or cannot be charged, or nil.
	unclaimed *corev1.Pod
	// running is true if a pod of any run may use quota, and wentOn if pods wait whose controller has had pods that were ungated before.
	running, wentOn bool
	// leaving is true if a quota Workload of the gang is being deleted.
	leaving bool
}

// Next computes the next step from the snapshot and the time.
func Next(s *Snapshot, now time.Time) *Step {
	t := newStepBuilder(s)
	t.now, t.step = now, &Step{}
	for _, w := range s.Workloads {
		t.reconcileWorkload(w)
	}
	if t.isForeign() {
		return t.step
	}
	t.expireFinished()
	t.expireDeactivated()
	if len(s.Problems) > 0 {
		t.step.Message = Message{"Misconfigured", "Check", s.Problems.String(), true}
		t.close()
		if cause := t.evicted(); cause != nil {
			t.evictAll(workloadstatus.EvictionOf(cause), nil)
		}
		t.timeOut()
		return t.step
	}
	t.reconcileGang()
	return t.step
}

// isForeign reports whether a PodGroup has nothing to do with quota: nothing is reported on it.
func (t *stepBuilder) isForeign() bool {
	return len(t.Gang.Pods)+len(t.Workloads) == 0 && t.Gang.Queue == ""
}

// newStepBuilder sorts the objects of a snapshot.
func newStepBuilder(s *Snapshot) *stepBuilder {
	t := &stepBuilder{Snapshot: s, crews: map[string][]*corev1.Pod{}, pods: map[types.UID]*corev1.Pod{}, controllers: map[types.UID]struct{}{}, shapes: shapes{}}
	t.sort()
	t.markPast()
	t.count()
	return t
}

func (t *stepBuilder) count() {
	isOfRun := t.run()
	for _, pod := range t.Gang.Pods {
		t.pods[pod.UID] = pod
		switch {
		case waiting(pod) && len(pod.Spec.ResourceClaims) > 0:
			t.unclaimed = cmp.Or(t.unclaimed, pod)
		case waiting(pod):
			t.waiting = append(t.waiting, pod)
		case isActive(pod):
			t.running = true
			if isOfRun(pod) {
				t.active++
			}
		case pod.Status.Phase == corev1.PodSucceeded && isOfRun(pod):
			t.succeeded++
		}
		if by, _ := paidBy(pod); by != "" && !IsGated(pod) {
			t.crews[by] = append(t.crews[by], pod)
			t.wentOn = t.wentOn || t.isOfOneThatWaits(pod)
		}
	}
}

// isOfOneThatWaits reports whether a pod has the same controller as one that waits.
func (t *stepBuilder) isOfOneThatWaits(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil {
		return false
	}
	_, ok := t.controllers[owner.UID]
	return ok
}

// run returns a predicate for pods of this run of the gang, in contrast to earlier runs of the same name: they are paid for by a quota Workload
// of the current gang, or were created after its core, or have the same controller as a pod that waits.
func (t *stepBuilder) run() func(*corev1.Pod) bool {
	payers := map[string]struct{}{}
	ours := slices.Concat(t.initial, t.extras)
	if len(t.initial) > 0 {
		ours = append(ours, t.finishedInitial...)
	}
	for _, w := range ours {
		payers[string(w.UID)] = struct{}{}
	}
	for _, pod := range t.Gang.Pods {
		if owner := metav1.GetControllerOfNoCopy(pod); owner != nil && waiting(pod) {
			t.controllers[owner.UID] = struct{}{}
		}
	}
	return func(pod *corev1.Pod) bool {
		by, _ := paidBy(pod)
		uid, _, _ := strings.Cut(by, ".")
		_, isPaid := payers[uid]
		return isPaid || t.isOfOneThatWaits(pod) || len(t.initial) > 0 && t.initial[0].CreationTimestamp.Before(&pod.CreationTimestamp)
	}
}

func (t *stepBuilder) podsPaidBy(w *kueue.Workload) []*corev1.Pod { return t.crews[admissionOf(w)] }

// runs reports whether a pod may still use the quota of the quota Workload.
func (t *stepBuilder) runs(w *kueue.Workload) bool {
	return slices.ContainsFunc(t.podsPaidBy(w), isActive)
}

// sort separates the quota Workloads of the gang from those of earlier gangs of its name.
func (t *stepBuilder) sort() {
	t.Workloads = slices.Clone(t.Workloads)
	slices.SortFunc(t.Workloads, func(a, b *kueue.Workload) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID)) })
	for _, w := range t.Workloads {
		switch {
		case !w.DeletionTimestamp.IsZero():
			t.leaving = t.leaving || t.isCurrent(w) && !isExtra(w)
		case !t.isCurrent(w):
		case isExtra(w):
			t.extras = append(t.extras, w)
		case quotaworkload.IsTrue(w, kueue.WorkloadFinished):
			t.finishedInitial = append(t.finishedInitial, w)
		default:
			t.initial = append(t.initial, w)
		}
	}
}

// isCurrent reports whether a quota Workload belongs to the current gang, and not to an earlier PodGroup of its name.
func (t *stepBuilder) isCurrent(w *kueue.Workload) bool {
	return t.Gang.Object == nil || w.Labels[apis.JobUIDLabel] == string(t.Gang.Object.UID)
}

// reconcileWorkload reconciles one quota Workload, as far as that affects no other. Whatever its state, its pods are deleted once it is evicted.
func (t *stepBuilder) reconcileWorkload(w *kueue.Workload) {
	if quotaworkload.HoldsQuota(w) && quotaworkload.IsTrue(w, kueue.WorkloadEvicted) {
		t.deleteCrew(w)
	}
	switch {
	case !w.DeletionTimestamp.IsZero():
		if !t.runs(w) {
			t.step.RemoveFinalizer = append(t.step.RemoveFinalizer, w)
		}
	case t.isForgotten(w):
		if !t.runs(w) {
			t.step.DeleteWorkloads = append(t.step.DeleteWorkloads, w)
		}
	case quotaworkload.IsTrue(w, kueue.WorkloadFinished):
		if !t.runs(w) && slices.Contains(w.Finalizers, kueue.ResourceInUseFinalizerName) {
			t.step.RemoveFinalizer = append(t.step.RemoveFinalizer, w)
		}
	case quotaworkload.HoldsQuota(w) && quotaworkload.IsTrue(w, kueue.WorkloadEvicted):
		t.finishEviction(w)
	case quotaworkload.HoldsQuota(w):
		t.follow(w)
	case len(w.Status.ReclaimablePods) > 0:
		t.step.Reclaim = append(t.step.Reclaim, Reclaim{Workload: w})
	}
}

// isForgotten reports whether a quota Workload is no longer needed.
func (t *stepBuilder) isForgotten(w *kueue.Workload) bool {
	g := t.Gang
	switch {
	case !t.isCurrent(w) || g.Object == nil && len(g.All()) == 0:
		return true
	case isExtra(w):
		pod := t.pods[types.UID(w.Labels[apis.ExtraLabel])]
		if pod == nil || IsTerminal(pod) || isVanishing(pod) {
			return true
		}
		by, _ := paidBy(pod)
		if IsGated(pod) {
			return !t.isStarted() // it asks for quota with the others
		}
		return by != admissionOf(w) // it has another slot
	case quotaworkload.IsTrue(w, kueue.WorkloadFinished):
		return len(t.initial) == 0 && !t.leaving && len(t.waiting) > 0
	case len(t.waiting) > 0 || t.running || t.reserves():
		return false
	}
	// An evicted one keeps its queue position for pods that are recreated.
	return !quotaworkload.IsTrue(w, kueue.WorkloadEvicted) && (!quotaworkload.HoldsQuota(w) || !hasStarted(w))
}

// reserves reports whether the gang asks for quota although its pods do not exist.
func (t *stepBuilder) reserves() bool {
	return t.Gang.Object != nil && len(t.Gang.Object.MinResources) > 0 && !t.Gang.hasTimedOutObject()
}

// deleteCrew deletes the pods of an evicted quota Workload.
func (t *stepBuilder) deleteCrew(w *kueue.Workload) {
	for _, pod := range t.podsPaidBy(w) {
		if isActive(pod) && pod.DeletionTimestamp == nil {
			t.step.Delete = append(t.step.Delete, Delete{pod, workloadstatus.EvictionOf(w).Message})
		}
	}
}

// finishEviction releases the quota of an evicted quota Workload when none of its pods runs. If all of them have succeeded meanwhile it has finished.
func (t *stepBuilder) finishEviction(w *kueue.Workload) {
	switch {
	case t.runs(w):
	case hasStarted(w) && !isExtra(w) && t.isAlone() && isSpent(w, t.podsPaidBy(w), t.Gang.Min):
		ready := workloadstatus.PodsReady(apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadPodsReady), t.isReady(w, t.podsPaidBy(w)))
		t.step.Progress = append(t.step.Progress, Progress{w, ready, succeeded()})
		t.finishedInitial = append(t.finishedInitial, w)
		t.initial = slices.DeleteFunc(t.initial, func(c *kueue.Workload) bool { return c == w })
	case hasStarted(w):
		t.step.Change = append(t.step.Change, Change{w, withEnd(w)})
	default:
		t.step.ReleaseQuota = append(t.step.ReleaseQuota, w)
	}
}

// follow reports the state of the pods of a quota Workload that holds quota.
func (t *stepBuilder) follow(w *kueue.Workload) {
	if !hasStarted(w) && !isExtra(w) {
		return
	}
	if t.isUnused(w) {
		why := workloadstatus.Eviction{Reason: kueue.WorkloadEvictedByPodsReadyTimeout, Message: "Its pod has not been let go"}
		t.step.Evict = append(t.step.Evict, Evict{Workload: w, Why: why, Requeue: t.putOff(w)})
		return
	}
	crew := t.podsPaidBy(w)
	ready := workloadstatus.PodsReady(apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadPodsReady), t.isReady(w, crew))
	if finished := t.outcome(w, crew); finished != nil {
		t.step.Progress = append(t.step.Progress, Progress{w, ready, finished})
		t.finishedInitial = append(t.finishedInitial, w)
		t.initial = slices.DeleteFunc(t.initial, func(c *kueue.Workload) bool { return c == w })
		return
	}
	if old := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadPodsReady); old == nil || old.Status != ready.Status || old.Reason != ready.Reason {
		t.step.Progress = append(t.step.Progress, Progress{w, ready, nil})
	}
	if pods, isSaid := reclaimable(w, crew); !isSaid {
		t.step.Reclaim = append(t.step.Reclaim, Reclaim{w, pods})
	}
}

// isReady reports whether all pods of a quota Workload exist, and are ready or have succeeded.
func (t *stepBuilder) isReady(w *kueue.Workload, crew []*corev1.Pod) bool {
	well := int32(0)
	for _, pod := range crew {
		if isReady(pod) && !IsTerminal(pod) {
			well++
		}
	}
	needed := int32(0)
	for i := range w.Spec.PodSets {
		switch p := &w.Spec.PodSets[i]; {
		case p.Name == reservedPodSet:
			needed += t.Gang.Min - t.succeeded
		case p.Name != reservedPods:
			needed += p.Count - reclaimed(w, p.Name, crew)
		}
	}
	return well >= needed
}

// again requeues the gang after a duration, or earlier.
func (t *stepBuilder) again(after time.Duration) {
	if t.step.RequeueAfter == 0 || after < t.step.RequeueAfter {
		t.step.RequeueAfter = after
	}
}

// close gates waiting quota Workloads while there is a problem.
func (t *stepBuilder) close() {
	for _, w := range t.initial {
		if quotaworkload.HoldsQuota(w) {
			continue
		}
		after := w.DeepCopy()
		setGate(after, apis.GangGate)
		if !equality.Semantic.DeepEqual(w, after) {
			t.step.Change = append(t.step.Change, Change{w, after})
		}
	}
}

// reconcileGang reconciles the gang as a whole.
func (t *stepBuilder) reconcileGang() {
	if cause := t.evicted(); cause != nil {
		t.step.Message = Message{"GangEvicted", "Evict", "The gang is evicted: " + workloadstatus.EvictionOf(cause).Message, false}
		t.evictAll(workloadstatus.EvictionOf(cause), nil)
		return
	}
	t.dropTwins()
	if t.isStarted() {
		t.step.Message = t.started()
		t.ungateLate()
		t.forgetTimeout()
		return
	}
	t.reconcileUnstarted()
}

// dropTwins keeps one of several quota Workloads that each ask for the whole gang: the one under which it has started, or that holds quota. Each
// is named after the oldest pod, and stale caches may show different ones.
func (t *stepBuilder) dropTwins() {
	if len(t.initial) < 2 || slices.ContainsFunc(t.initial, isPart) {
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
	slices.SortStableFunc(t.initial, func(a, b *kueue.Workload) int { return cmp.Compare(rank(a), rank(b)) })
	for _, w := range t.initial[1:] {
		if !hasStarted(w) {
			t.step.DeleteWorkloads = append(t.step.DeleteWorkloads, w)
		}
	}
	t.initial = slices.DeleteFunc(t.initial, func(w *kueue.Workload) bool { return w != t.initial[0] && !hasStarted(w) })
}

// isStarted reports whether the gang rule is off.
func (t *stepBuilder) isStarted() bool {
	return slices.ContainsFunc(t.initial, func(w *kueue.Workload) bool { return quotaworkload.HoldsQuota(w) && hasStarted(w) })
}

func (t *stepBuilder) home() kueue.ClusterQueueReference {
	for _, w := range t.initial {
		if w.Status.Admission != nil {
			return w.Status.Admission.ClusterQueue
		}
	}
	return ""
}

// evicted returns a quota Workload of the core that has to release its quota, or nil.
func (t *stepBuilder) evicted() *kueue.Workload {
	for _, w := range t.initial {
		if quotaworkload.HoldsQuota(w) && quotaworkload.IsTrue(w, kueue.WorkloadEvicted) {
			return w
		}
	}
	return nil
}

// evictAll evicts the rest of the gang, including its extra quota Workloads.
func (t *stepBuilder) evictAll(why workloadstatus.Eviction, requeue func(*kueue.Workload) *kueue.RequeueState) {
	for _, w := range slices.Concat(t.initial, t.extras) {
		if !quotaworkload.HoldsQuota(w) || quotaworkload.IsTrue(w, kueue.WorkloadEvicted) || slices.Contains(t.step.DeleteWorkloads, w) || t.evicts(w) {
			continue
		}
		e := Evict{Workload: w, Why: why}
		if requeue != nil {
			e.Requeue = requeue(w)
		}
		t.step.Evict = append(t.step.Evict, e)
	}
}

// evicts reports whether this step evicts a quota Workload.
func (t *stepBuilder) evicts(w *kueue.Workload) bool {
	return slices.ContainsFunc(t.step.Evict, func(e Evict) bool { return e.Workload == w })
}

// isAdmitted reports whether pods may be ungated under a quota Workload.
func (t *stepBuilder) isAdmitted(w *kueue.Workload) bool {
	return IsAdmitted(w) && t.Charged[w.UID]
}

// IsAdmitted reports whether a quota Workload is admitted by its status, and may stay so.
func IsAdmitted(w *kueue.Workload) bool {
	return quotaworkload.HoldsQuota(w) && quotaworkload.IsTrue(w, kueue.WorkloadAdmitted) && !quotaworkload.IsTrue(w, kueue.WorkloadEvicted) &&
		!quotaworkload.IsTrue(w, kueue.WorkloadFinished) && w.DeletionTimestamp.IsZero()
}
