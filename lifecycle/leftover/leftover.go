// Package leftover decides what becomes of pods and Workloads that Kueue managed when Tranche took its place. Jobs and JobSets are adopted by their own
// controllers, together with their Workloads. What they do not look at is cleaned here: Workloads whose owners have finished, and pods that Kueue
// queued by themselves or as a group. Those that run become a gang that has started, whose quota Workload is that of Kueue. Those that wait are queued
// by Tranche.
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
	"github.com/tranche-dev/tranche/lifecycle/podgang"
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
	// Pods have Kueue's label. Pods that are gone are missing. Those that run and name no queue have got the label from another user than Kueue.
	Pods []*corev1.Pod
	// Workload is nil if the group has none.
	Workload *kueue.Workload
}

// A Step is what to write, in the order of the fields. A pod is queued when the Workload of Kueue is that of its gang or is gone: it may have the name
// of another Workload of the gang.
type Step struct {
	// Unpin has pods that lose Kueue's finalizer.
	Unpin []*corev1.Pod
	// Mark is a Workload that no preemption may evict from now on.
	Mark *kueue.Workload
	// Adopt has pods that run, or have run, and become members of a gang that has started. Payer is the Workload that pays for them.
	Adopt []*corev1.Pod
	Payer *kueue.Workload
	// Take is the same Workload when its pods were adopted, or nil. It becomes the quota Workload of the gang Gang.
	Take *kueue.Workload
	Gang podgroup.Ref
	// Delete is a Workload that is no longer needed.
	Delete *kueue.Workload
	// Forget has adopted pods that lose Kueue's label, by which they were found.
	Forget []*corev1.Pod
	// Queue has pods that wait, and that wait for Tranche from now on.
	Queue []*corev1.Pod
	// Stuck has pods that run and cannot be adopted.
	Stuck []*corev1.Pod
	// IsDone is true if nothing of the group is left to Kueue's objects.
	IsDone bool
}

// IsEmpty reports whether there is nothing to write.
func (s *Step) IsEmpty() bool {
	return len(s.Unpin)+len(s.Adopt)+len(s.Forget)+len(s.Queue) == 0 && s.Mark == nil && s.Take == nil && s.Delete == nil
}

// Next returns the next step for a group:
//
//	runs  ->  Workload marked, pods adopted  ->  Workload taken  ->  pods forgotten, those that wait are queued
//	waits  ->  Workload deleted  ->  pods queued
func Next(g *Group) Step {
	var s Step
	var runs bool
	var begun, adopted, waiting []*corev1.Pod
	for _, pod := range g.Pods {
		switch {
		case podgroup.IsWaiting(pod): // also if it is a member already: the manager was killed before it had queued the pod
			waiting = append(waiting, pod)
			continue
		case podgroup.IsMember(pod):
			adopted = append(adopted, pod)
			runs = runs || podgroup.IsActive(pod)
			continue
		case podgroup.IsActive(pod):
			runs = runs || pod.Labels[apis.QueueLabel] != ""
		}
		if !podgroup.IsGated(pod) && pod.Labels[apis.QueueLabel] != "" {
			begun = append(begun, pod)
		}
		if slices.Contains(pod.Finalizers, apis.KueueManagedKey) {
			s.Unpin = append(s.Unpin, pod)
		}
	}
	switch {
	case runs && g.Workload != nil:
		s.adopt(g.Workload, begun, adopted)
	case g.Workload != nil:
		s.Delete = g.Workload
	case slices.ContainsFunc(begun, podgroup.IsActive):
	default:
		s.Forget, s.Queue = adopted, waiting
		s.IsDone = len(adopted)+len(waiting) == 0
	}
	return s
}

// adopt makes pods that run, and their Workload, a gang that has started. begun are the pods that are no members of it yet.
func (s *Step) adopt(w *kueue.Workload, begun, adopted []*corev1.Pod) {
	if !w.DeletionTimestamp.IsZero() || !quotaworkload.HoldsQuota(w) {
		return
	}
	if w.Annotations[apis.AdoptedAnnotation] == "" {
		s.Mark = w
		return
	}
	switch cannot := func(pod *corev1.Pod) bool { return podgang.AdoptedPod(pod, w) == nil }; {
	case len(s.Unpin) > 0:
		// A pod is written once in a step.
	case slices.ContainsFunc(begun, cannot):
		s.Stuck = slices.DeleteFunc(begun, func(pod *corev1.Pod) bool { return !podgroup.IsActive(pod) })
	case len(begun) > 0:
		s.Adopt, s.Payer = begun, w
	default:
		s.Take = w
		s.Gang, _ = podgang.AdoptedGang(adopted[0])
	}
}

// CannotAdopt is for the user of a pod that runs and cannot be adopted.
const CannotAdopt = "the pod runs on the quota that Kueue has admitted for it, and no eviction stops it, because its group cannot be adopted: a PodGroup " +
	"describes the group, or the label " + apis.PodSetLabel + " names no pod set of its Workload; delete the pod to release its quota"

// Forgotten returns an adopted pod without Kueue's label.
func Forgotten(pod *corev1.Pod) *corev1.Pod {
	after := pod.DeepCopy()
	delete(after.Labels, apis.KueueManagedKey)
	return after
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
