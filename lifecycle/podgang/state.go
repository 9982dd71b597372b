package podgang

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/lifecycle/podgroup"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// A gangState is a sorted snapshot: which quota Workloads are current, which pods each admission pays for, and which pods wait.
type gangState struct {
	*Snapshot
	// initial and extras are the quota Workloads of the current gang, ordered by name, without the finished ones.
	initial, extras []*kueue.Workload
	// finishedInitial are the finished initial quota Workloads.
	finishedInitial []*kueue.Workload
	// paid has the pods that each admission pays for.
	paid map[string][]*corev1.Pod
	// pods has the pods of the gang by their UIDs, controllers the controllers of waiting pods, and shapes caches shapes.
	pods        map[types.UID]*corev1.Pod
	controllers map[types.UID]bool
	shapes      shapes
	// waiting has the pods that wait to be ungated; active and succeeded count the other pods of this run of the gang, also those that have succeeded
	// and no longer exist, if their Jobs count them.
	waiting           []*corev1.Pod
	active, succeeded int32
	// hasCompleted is true if the pods of this run have Jobs, and all of these are complete.
	hasCompleted bool
	// unclaimed is a pod that waits to be ungated, and whose ResourceClaims have not been created or cannot be charged, or nil.
	unclaimed *corev1.Pod
	// running is true if a pod of any run may use quota, and hasRecreatedPods if pods wait whose controller has had pods that were ungated before.
	running, hasRecreatedPods bool
	// leaving is true if a quota Workload of the gang is being deleted.
	leaving bool
}

// stateOf sorts the objects of a snapshot.
func stateOf(snapshot *Snapshot) *gangState {
	copied := *snapshot
	s := &gangState{Snapshot: &copied, paid: map[string][]*corev1.Pod{}, pods: map[types.UID]*corev1.Pod{}, controllers: map[types.UID]bool{}, shapes: shapes{}}
	s.sort()
	s.readPeers()
	s.count()
	return s
}

func (s *gangState) count() {
	isOfRun := s.run()
	ofRun, succeeded := maps.Clone(s.controllers), successes{}
	for _, pod := range s.Gang.Pods {
		s.pods[pod.UID] = pod
		if isOfRun(pod) {
			ofRun[controllerOf(pod)] = true
		}
		switch {
		case podgroup.IsWaiting(pod) && len(pod.Spec.ResourceClaims) > 0:
			s.unclaimed = cmp.Or(s.unclaimed, pod)
		case podgroup.IsWaiting(pod):
			s.waiting = append(s.waiting, pod)
		case podgroup.IsActive(pod):
			s.running = true
			if isOfRun(pod) {
				s.active++
			}
		case pod.Status.Phase == corev1.PodSucceeded && isOfRun(pod):
			succeeded[controllerOf(pod)]++
		}
		if by, _ := paidBy(pod); by != "" && !podgroup.IsGated(pod) {
			s.paid[by] = append(s.paid[by], pod)
			s.hasRecreatedPods = s.hasRecreatedPods || s.hasWaitingSibling(pod)
		}
	}
	jobs := s.jobsOfRun(ofRun)
	s.succeeded, s.hasCompleted = succeeded.total(jobs), s.haveCompleted(jobs)
}

// hasWaitingSibling reports whether a pod has the same controller as one that waits.
func (s *gangState) hasWaitingSibling(pod *corev1.Pod) bool {
	return s.controllers[controllerOf(pod)]
}

// run returns a predicate for pods of this run of the gang, in contrast to earlier runs of the same name: they are paid for by a quota Workload
// of the current gang, or were created after its initial quota Workload, or have the same controller as a pod that waits.
func (s *gangState) run() func(*corev1.Pod) bool {
	payers := map[string]bool{}
	ours := slices.Concat(s.initial, s.extras)
	if len(s.initial) > 0 {
		ours = append(ours, s.finishedInitial...)
	}
	for _, w := range ours {
		payers[string(w.UID)] = true
	}
	for _, pod := range s.Gang.Pods {
		if owner := controllerOf(pod); owner != "" && podgroup.IsWaiting(pod) {
			s.controllers[owner] = true
		}
	}
	return func(pod *corev1.Pod) bool {
		by, _ := paidBy(pod)
		uid, _, _ := strings.Cut(by, ".")
		return payers[uid] || s.hasWaitingSibling(pod) || len(s.initial) > 0 && s.initial[0].CreationTimestamp.Before(&pod.CreationTimestamp)
	}
}

func (s *gangState) podsPaidBy(w *kueue.Workload) []*corev1.Pod { return s.paid[admissionOf(w)] }

// runs reports whether a pod may still use the quota of the quota Workload.
func (s *gangState) runs(w *kueue.Workload) bool {
	return slices.ContainsFunc(s.podsPaidBy(w), podgroup.IsActive)
}

// sort separates the quota Workloads of the gang from those of earlier gangs of its name.
func (s *gangState) sort() {
	s.Workloads = slices.Clone(s.Workloads)
	slices.SortFunc(s.Workloads, func(a, b *kueue.Workload) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID)) })
	for _, w := range s.Workloads {
		switch {
		case !w.DeletionTimestamp.IsZero():
			s.leaving = s.leaving || s.Gang.Owns(w) && !isExtra(w)
		case !s.Gang.Owns(w):
		case isExtra(w):
			s.extras = append(s.extras, w)
		case quotaworkload.IsTrue(w, kueue.WorkloadFinished):
			s.finishedInitial = append(s.finishedInitial, w)
		default:
			s.initial = append(s.initial, w)
		}
	}
}

// podsReady returns the condition PodsReady of a quota Workload: whether all its pods exist, and are ready or have succeeded.
func (s *gangState) podsReady(w *kueue.Workload) metav1.Condition {
	pods, ready, needed := s.podsPaidBy(w), int32(0), int32(0)
	for _, pod := range pods {
		if podgroup.IsReady(pod) && !podgroup.IsTerminal(pod) {
			ready++
		}
	}
	for i := range w.Spec.PodSets {
		switch p := &w.Spec.PodSets[i]; {
		case p.Name == reservedPodSet:
			needed += s.Gang.Min - s.succeeded
		case p.Name != reservedPods:
			needed += p.Count - reclaimed(w, p.Name, pods)
		}
	}
	return workloadstatus.PodsReady(apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadPodsReady), ready >= needed)
}

// isStarted reports whether the gang rule is off.
func (s *gangState) isStarted() bool {
	return slices.ContainsFunc(s.initial, func(w *kueue.Workload) bool { return quotaworkload.HoldsQuota(w) && hasStarted(w) })
}

// isUnpaid reports whether pods were ungated under an admission that a quota Workload no longer has, although it was not evicted: another client has
// removed the admission from its status.
func (s *gangState) isUnpaid(w *kueue.Workload) bool {
	return !quotaworkload.HoldsQuota(w) && (hasStarted(w) || s.runs(w))
}

func (s *gangState) home() kueue.ClusterQueueReference {
	for _, w := range s.initial {
		if w.Status.Admission != nil {
			return w.Status.Admission.ClusterQueue
		}
	}
	return ""
}

// evicted returns an initial quota Workload that has to release its quota, or nil.
func (s *gangState) evicted() *kueue.Workload {
	for _, w := range s.initial {
		if quotaworkload.HoldsQuota(w) && quotaworkload.IsTrue(w, kueue.WorkloadEvicted) {
			return w
		}
	}
	return nil
}

// isAdmitted reports whether pods may be ungated under a quota Workload.
func (s *gangState) isAdmitted(w *kueue.Workload) bool {
	return isAdmittedByStatus(w) && s.Charged[w.UID]
}

// isAdmittedByStatus reports whether a quota Workload is admitted by its status, and may stay so.
func isAdmittedByStatus(w *kueue.Workload) bool {
	return quotaworkload.HoldsQuota(w) && quotaworkload.IsTrue(w, kueue.WorkloadAdmitted) && !quotaworkload.IsTrue(w, kueue.WorkloadEvicted) &&
		!quotaworkload.IsTrue(w, kueue.WorkloadFinished) && w.DeletionTimestamp.IsZero()
}

// needed returns how many pods have to be ungated together, besides those that run or have succeeded.
func (s *gangState) needed() int { return max(1, int(s.Gang.Min-s.active-s.succeeded)) }

// chosen returns the pods that ask for quota together: all that are needed, and more up to the total.
func (s *gangState) chosen() []*corev1.Pod {
	n := max(s.needed(), int(s.Gang.Total-s.active-s.succeeded))
	return s.waiting[:min(n, len(s.waiting))]
}

// startedOnce reports whether the gang has once started together with the others. From then on it is independent, also when it has released all its
// quota and the controller of its pods continues.
func (s *gangState) startedOnce() bool {
	return s.hasRecreatedPods || slices.ContainsFunc(s.initial, hasEverStarted)
}

func (s *gangState) allAdmitted() bool {
	return !slices.ContainsFunc(s.initial, func(w *kueue.Workload) bool { return !s.isAdmitted(w) })
}

// wait returns why quota Workloads are not admitted, as Kueue's reason and as a sentence, or nothing if that is not known yet.
func (s *gangState) wait(workloads []*kueue.Workload) (reason, text string) {
	for _, w := range workloads {
		if s.isAdmitted(w) {
			continue
		}
		if wait := workloadstatus.WaitOf(w); wait != nil && wait.Message != "" {
			return wait.Reason, wait.Message
		}
		for _, c := range []string{kueue.WorkloadAdmitted, kueue.WorkloadRequeued} {
			condition := apimeta.FindStatusCondition(w.Status.Conditions, c)
			if condition != nil && condition.Status == metav1.ConditionFalse && condition.Message != "" {
				return condition.Reason, condition.Message
			}
		}
	}
	return "", ""
}

// isAlone reports whether no pod of the gang runs or waits. While one does, a quota Workload of a started gang does not finish as spent.
func (s *gangState) isAlone() bool { return !s.running && len(s.waiting) == 0 && s.unclaimed == nil }

// endOfPods describes how pods have finished whose quota Workloads were deleted since, and is empty if there are none.
func endOfPods(gang *podgroup.Gang) string {
	text := ""
	for _, pod := range gang.Pods {
		if by, _ := paidBy(pod); by == "" || !podgroup.IsTerminal(pod) {
			continue
		}
		if pod.Status.Phase == corev1.PodFailed {
			return textFailed
		}
		text = textSucceeded
	}
	return text
}
