// Package leftover decides what becomes of pods and Workloads that Kueue managed when Tranche took its place. Jobs and JobSets are adopted by their own
// controllers, together with their Workloads. What they do not look at is cleaned here: Workloads whose owners have finished, and pods that Kueue
// queued by themselves or as a group. Such pods that run keep Kueue's Workload, which is charged until they have terminated. Those that wait are
// queued by Tranche.
package leftover

import (
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/podgroup"
)

// Of returns the kind of the owners of a Workload that Kueue has made, or false if Tranche or another controller manages the Workload.
func Of(workload *kueue.Workload) (owners Kind, ok bool) {
	for _, label := range []string{apis.JobLabel, apis.JobSetLabel, apis.PodGroupKey} {
		if workload.Labels[label] != "" {
			return "", false
		}
	}
	for _, owner := range workload.OwnerReferences {
		switch kind := Kind(owner.Kind); {
		case kind == Pod && owner.APIVersion == corev1.SchemeGroupVersion.String(),
			kind == Job && owner.APIVersion == batchv1.SchemeGroupVersion.String(),
			kind == JobSet && owner.APIVersion == jobset.GroupVersion.String():
			return kind, true
		}
	}
	return "", false
}

// A Kind is a kind of objects that Kueue makes Workloads for.
type Kind string

// The kinds that Tranche queues.
const (
	Pod    Kind = "Pod"
	Job    Kind = "Job"
	JobSet Kind = "JobSet"
)

// A Group is a pod or a group of pods that Kueue managed, and its Workload.
type Group struct {
	// Pods have Kueue's label. Pods that have lost it, or are gone, are missing.
	Pods []*corev1.Pod
	// Workload is nil if the group has none.
	Workload *kueue.Workload
}

// A Step is what to write. Release comes first, and Queue last: a pod is queued when the Workload of Kueue, which may have the same name as that of
// Tranche, is gone.
type Step struct {
	// Unpin has pods that lose Kueue's finalizer.
	Unpin []*corev1.Pod
	// Mark is a Workload that no preemption may evict, because nothing would stop its pods.
	Mark *kueue.Workload
	// Delete is a Workload that is no longer needed.
	Delete *kueue.Workload
	// Queue has pods that wait, and that wait for Tranche from now on.
	Queue []*corev1.Pod
	// IsDone is true if nothing of the group is left to Kueue's objects.
	IsDone bool
}

// Next returns the next step for a group.
func Next(g *Group) Step {
	var s Step
	var runs bool
	var waiting []*corev1.Pod
	for _, pod := range g.Pods {
		isWaiting := isGated(pod) && !isTerminal(pod) && pod.DeletionTimestamp.IsZero()
		if isWaiting {
			waiting = append(waiting, pod)
			continue
		}
		runs = runs || !isTerminal(pod) && !isGated(pod)
		if slices.Contains(pod.Finalizers, apis.KueueManagedKey) {
			s.Unpin = append(s.Unpin, pod)
		}
	}
	switch {
	case runs:
		if w := g.Workload; w != nil && w.DeletionTimestamp.IsZero() && quotaworkload.HoldsQuota(w) && w.Annotations[apis.AdoptedAnnotation] == "" {
			s.Mark = w
		}
	case g.Workload != nil:
		s.Delete = g.Workload
	default:
		s.Queue = waiting
		s.IsDone = len(waiting) == 0
	}
	return s
}

// Queued returns a pod as the admission policies would have created it: as a member of its group, or as a gang of one.
func Queued(pod *corev1.Pod) *corev1.Pod {
	after := pod.DeepCopy()
	after.Finalizers = slices.DeleteFunc(after.Finalizers, func(f string) bool { return f == apis.KueueManagedKey })
	delete(after.Labels, apis.KueueManagedKey)
	// Kueue also gates pods that ask for no topology.
	after.Spec.SchedulingGates = slices.DeleteFunc(after.Spec.SchedulingGates, func(g corev1.PodSchedulingGate) bool { return g.Name == kueue.TopologySchedulingGate })
	metav1.SetMetaDataLabel(&after.ObjectMeta, apis.PodGroupMemberLabel, apis.PodGroupMemberValue)
	return after
}

// KeyOf identifies the group of a pod in its namespace, where no Workload does.
func KeyOf(pod *corev1.Pod) string {
	if ref, named := podgroup.RefOf(pod); named {
		return ref.String()
	}
	return string(pod.UID)
}

// Owns reports whether an object is an owner of a Workload.
func Owns(workload *kueue.Workload, uid types.UID) bool {
	return slices.ContainsFunc(workload.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == uid })
}

func isGated(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.SchedulingGates, func(g corev1.PodSchedulingGate) bool { return g.Name == apis.PodAdmissionGate })
}

func isTerminal(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}
