package podgang

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/podgroup"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// mostParts bounds the parts in which a gang gathers its quota.
const mostParts = 16

// A Priority is the priority of the quota Workloads of a gang.
type Priority struct {
	Value int32
	Class *kueue.PriorityClassRef
}

// round counts how often the pods under a quota Workload were ungated, and have terminated because it was evicted. It distinguishes two
// admissions of the same quota Workload.
func round(w *kueue.Workload) int {
	n, err := strconv.Atoi(w.Annotations[apis.RoundAnnotation])
	if err != nil {
		return 0
	}
	return n
}

// admissionOf identifies the admission that a quota Workload has now, or is about to get.
func admissionOf(w *kueue.Workload) string { return fmt.Sprintf("%s.%d", w.UID, round(w)) }

func isExtra(w *kueue.Workload) bool { return w.Labels[apis.ExtraLabel] != "" }

func isPart(w *kueue.Workload) bool { return w.Labels[apis.PlanUIDLabel] != "" }

// hasStarted reports whether pods of the gang may have been ungated under this admission.
func hasStarted(w *kueue.Workload) bool { return w.Annotations[apis.StartedAnnotation] != "" }

// hasEverStarted reports whether pods of the gang may have been ungated under this admission, or were under an earlier one.
func hasEverStarted(w *kueue.Workload) bool { return hasStarted(w) || round(w) > 0 }

// newWorkload returns a quota Workload for these pod sets.
func (s *Snapshot) newWorkload(name string, podSets []kueue.PodSet) *kueue.Workload {
	return &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.Gang.Namespace, Name: name,
			Labels:          map[string]string{apis.JobUIDLabel: string(s.Gang.Incarnation()), apis.PodGroupKey: s.Gang.Label()},
			Annotations:     map[string]string{apis.PodGroupKey: s.Gang.String()},
			Finalizers:      []string{kueue.ResourceInUseFinalizerName},
			OwnerReferences: s.Gang.Owners(),
		},
		Spec: kueue.WorkloadSpec{
			QueueName: kueue.LocalQueueName(s.Gang.Queue), Priority: &s.Priority.Value, PriorityClassRef: s.Priority.Class, Active: new(true), PodSets: podSets,
		},
	}
}

// initialWorkloads returns the quota Workloads that the gang needs for these pods to start.
func (s *gangState) initialWorkloads(pods []*corev1.Pod) []*kueue.Workload {
	name := s.Gang.WorkloadName()
	if !s.Gang.AdmitsInParts() || len(pods) < 2 {
		return []*kueue.Workload{s.whole(name, s.shapes.podSets(pods...))}
	}
	uids := []string{string(s.Gang.Incarnation())}
	for _, pod := range pods {
		uids = append(uids, string(pod.UID))
	}
	plan := podgroup.Digest(uids...)
	var all []*kueue.Workload
	parts := s.shapes.chunks(pods)
	for i, chunk := range parts {
		w := s.newWorkload(fmt.Sprintf("%s-%02d", name, i), s.shapes.podSets(chunk...))
		w.Labels[apis.PlanUIDLabel] = plan
		w.Labels[apis.StageIndexLabel] = strconv.Itoa(i)
		w.Annotations[apis.AttemptAnnotation] = "0"
		w.Annotations[apis.PartsAnnotation] = strconv.Itoa(len(parts))
		all = append(all, w)
	}
	return all
}

// whole returns a quota Workload for the whole gang. The engine admits it together with those of the peers that have not started, all or none.
func (s *gangState) whole(name string, podSets []kueue.PodSet) *kueue.Workload {
	w := s.newWorkload(name, podSets)
	if past := s.past(); past != "" {
		w.Annotations[apis.StartedTogetherAnnotation] = past
	}
	if n := s.unstarted(); n > 1 && !s.startedOnce() {
		w.Labels[apis.AdmitTogetherLabel] = s.Gang.GangGroupID()
		w.Annotations[apis.AdmitTogetherCountAnnotation] = strconv.Itoa(n)
	}
	return w
}

// reservation returns the quota Workload that asks for minResources of the PodGroup, before its pods exist.
func (s *gangState) reservation() *kueue.Workload {
	return s.whole(s.Gang.WorkloadName(), reserved(s.Gang.Object.MinResources, s.Gang.Min))
}

// extra returns the quota Workload of one pod that has no slot in the initial quota Workloads.
func (s *gangState) extra(pod *corev1.Pod) *kueue.Workload {
	const length = 10
	w := s.newWorkload(s.Gang.WorkloadName()+"-"+podgroup.Digest(string(pod.UID))[:length], s.shapes.podSets(pod))
	w.Labels[apis.ExtraLabel] = string(pod.UID)
	if s.Gang.Object == nil {
		w.OwnerReferences = []metav1.OwnerReference{podgroup.AsOwner(pod)}
	}
	return w
}

// adjusted returns the wanted state of a quota Workload, or nil if it is up to date. In one that holds quota only the gangs of its group that it names
// change: they can be gone before its own gang starts.
func adjusted(there, wanted *kueue.Workload, gate string) *kueue.Workload {
	after := there.DeepCopy()
	copyKey(&after.Annotations, wanted.Annotations, apis.StartedTogetherAnnotation)
	if !quotaworkload.HoldsQuota(there) {
		adjustWaiting(after, wanted, gate)
	}
	if equality.Semantic.DeepEqual(there, after) {
		return nil
	}
	return after
}

// adjustWaiting gives a waiting quota Workload its wanted state.
func adjustWaiting(after, wanted *kueue.Workload, gate string) {
	if !samePodSets(after.Spec.PodSets, wanted.Spec.PodSets) {
		after.Spec.PodSets = wanted.Spec.PodSets
	}
	after.Spec.QueueName, after.Spec.Priority, after.Spec.PriorityClassRef = wanted.Spec.QueueName, wanted.Spec.Priority, wanted.Spec.PriorityClassRef
	copyKey(&after.Labels, wanted.Labels, apis.AdmitTogetherLabel)
	copyKey(&after.Annotations, wanted.Annotations, apis.AdmitTogetherCountAnnotation)
	copyKey(&after.Annotations, wanted.Annotations, apis.IdleSinceAnnotation)
	setGate(after, gate)
}

func copyKey(to *map[string]string, from map[string]string, key string) {
	if value, ok := from[key]; ok {
		add(to, key, value)
	} else {
		delete(*to, key)
	}
}

// setGate sets the gang gate of a quota Workload, or removes it if the gate is empty. Other gates stay unchanged.
func setGate(w *kueue.Workload, gate string) {
	gates := slices.DeleteFunc(quotaworkload.Gates(w), func(g string) bool { return g == apis.GangGate })
	if gate != "" {
		gates = append(gates, gate)
	}
	quotaworkload.SetGates(w, gates)
}

// gated returns a quota Workload with the gang gate.
func gated(w *kueue.Workload) *kueue.Workload {
	after := w.DeepCopy()
	setGate(after, apis.GangGate)
	return after
}

// samePodSets compares the demand of pod sets. It ignores defaults that the API server has added.
func samePodSets(a, b []kueue.PodSet) bool {
	return slices.EqualFunc(a, b, func(a, b kueue.PodSet) bool {
		return a.Name == b.Name && a.Count == b.Count &&
			(a.Name != reservedPodSet || equality.Semantic.DeepEqual(stageplan.PodRequests(&a.Template.Spec), stageplan.PodRequests(&b.Template.Spec)))
	})
}

// withOwners adds the missing owners to a quota Workload, or returns nil if there are enough. No pod owns those that outlive their pods.
func (s *gangState) withOwners(w *kueue.Workload) *kueue.Workload {
	missing := s.Gang.MissingOwners(w.OwnerReferences)
	if s.outlivesPods() {
		missing = slices.DeleteFunc(missing, isPod)
	}
	if len(missing) == 0 {
		return nil
	}
	after := w.DeepCopy()
	after.OwnerReferences = append(after.OwnerReferences, missing...)
	return after
}

// withStart records that pods are ungated from now on under the admission that the quota Workload has.
func withStart(w *kueue.Workload, now time.Time) *kueue.Workload {
	after := w.DeepCopy()
	add(&after.Annotations, apis.StartedAnnotation, workloadstatus.Started(now))
	return after
}

// idleSince returns the time that withIdle has recorded.
func idleSince(w *kueue.Workload) (since time.Time, isNoted bool) {
	since, err := time.Parse(time.RFC3339, w.Annotations[apis.IdleSinceAnnotation])
	return since, err == nil
}

// withIdle records since when no pod uses the quota Workload. Zero means that it is used.
func withIdle(w *kueue.Workload, since time.Time) *kueue.Workload {
	after := w.DeepCopy()
	if since.IsZero() {
		delete(after.Annotations, apis.IdleSinceAnnotation)
	} else {
		add(&after.Annotations, apis.IdleSinceAnnotation, since.UTC().Format(time.RFC3339))
	}
	return after
}

// withEnd records that no pod runs any longer that was ungated under the admission that the quota Workload is about to lose, and gates it: it must not be
// admitted again before its pods are recreated, or it would hold quota for nothing, and then back off as if they had not become ready. If it is adopted, its
// exemption from preemption ends.
func withEnd(w *kueue.Workload) *kueue.Workload {
	after := gated(w)
	delete(after.Annotations, apis.AdoptedAnnotation)
	delete(after.Annotations, apis.StartedAnnotation)
	delete(after.Annotations, apis.IdleSinceAnnotation)
	add(&after.Annotations, apis.RoundAnnotation, strconv.Itoa(round(w)+1))
	return after
}
