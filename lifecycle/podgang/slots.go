package podgang

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/flavor"
	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/elastic"
	"github.com/tranche-dev/tranche/lifecycle/podgroup"
)

// A slots has the free slots of an admitted quota Workload.
type slots struct {
	workload *kueue.Workload
	// free has the slots of each pod set. If a sum is reserved (minResources), rest is its unused part, and pods how many more pods may use it.
	free map[kueue.PodSetReference]int32
	rest corev1.ResourceList
	pods int32
	// names has the pod sets by the shapes of their pods, where these differ from the names of the pod sets.
	names map[kueue.PodSetReference]kueue.PodSetReference
}

// newSlots subtracts the pods that the quota Workload pays for.
func newSlots(w *kueue.Workload, pods []*corev1.Pod) *slots {
	s := &slots{workload: w, free: map[kueue.PodSetReference]int32{}, names: adoptedNames(w)}
	for i := range w.Spec.PodSets {
		p := &w.Spec.PodSets[i]
		s.pods += p.Count
		if p.Name == reservedPodSet {
			s.rest = stageplan.PodRequests(&p.Template.Spec).DeepCopy()
		} else {
			s.free[p.Name] = p.Count - reclaimed(w, p.Name, pods)
		}
	}
	for _, pod := range pods {
		if !podgroup.IsActive(pod) {
			continue
		}
		if s.rest != nil {
			s.spend(pod)
		}
		s.free[podSetOf(pod)]--
	}
	return s
}

// spend subtracts the requests of a pod.
func (s *slots) spend(pod *corev1.Pod) {
	for name, q := range stageplan.PodRequests(&pod.Spec) {
		left := s.rest[name]
		left.Sub(q)
		s.rest[name] = left
	}
	s.pods--
}

// take assigns a slot to a pod of a shape.
func (s *slots) take(pod *corev1.Pod, shape kueue.PodSetReference) (podSet kueue.PodSetReference, ok bool) {
	if s.rest != nil {
		if s.pods <= 0 {
			return "", false
		}
		for name, q := range stageplan.PodRequests(&pod.Spec) {
			if left := s.rest[name]; q.Cmp(left) > 0 {
				return "", false
			}
		}
		s.spend(pod)
		return reservedPodSet, true
	}
	podSet = shape
	if name, differs := s.names[shape]; differs {
		podSet = name
	}
	if s.free[podSet] <= 0 {
		return "", false
	}
	s.free[podSet]--
	return podSet, true
}

// paidBy returns the admission that pays for a pod, and the pod set for which it was ungated. Kueue's label also names the pod set, but any user
// may change that.
func paidBy(pod *corev1.Pod) (admission string, podSet kueue.PodSetReference) {
	admission, name, _ := strings.Cut(pod.Annotations[apis.AdmissionAnnotation], "/")
	return admission, kueue.PodSetReference(name)
}

func podSetOf(pod *corev1.Pod) kueue.PodSetReference {
	_, podSet := paidBy(pod)
	return podSet
}

// reclaimed counts the pods of a pod set that have succeeded under this admission. Pods that were recorded as succeeded, and no longer exist,
// still count.
func reclaimed(w *kueue.Workload, podSet kueue.PodSetReference, pods []*corev1.Pod) int32 {
	succeeded := int32(0)
	for _, pod := range pods {
		if podSetOf(pod) == podSet && pod.Status.Phase == corev1.PodSucceeded {
			succeeded++
		}
	}
	return max(succeeded, elastic.Reclaimable(w, string(podSet)))
}

// reclaimable returns the reclaimable pods for the status of the quota Workload, and whether it is up to date. A reserved sum is needed until the
// end: the share of each pod in it is not known.
func reclaimable(w *kueue.Workload, pods []*corev1.Pod) (all []kueue.ReclaimablePod, isReported bool) {
	isReported = true
	for i := range w.Spec.PodSets {
		name := w.Spec.PodSets[i].Name
		if name == reservedPodSet {
			continue
		}
		if n := min(reclaimed(w, name, pods), w.Spec.PodSets[i].Count); n > 0 {
			all = append(all, kueue.ReclaimablePod{Name: name, Count: n})
			isReported = isReported && elastic.Reclaimable(w, string(name)) == n
		}
	}
	return all, isReported
}

// isSpent reports whether all pods that the quota Workload was admitted for have succeeded.
func isSpent(w *kueue.Workload, pods []*corev1.Pod, least int32) bool {
	succeeded := int32(0)
	for _, pod := range pods {
		if podgroup.IsActive(pod) {
			return false
		}
		if pod.Status.Phase == corev1.PodSucceeded {
			succeeded++
		}
	}
	for i := range w.Spec.PodSets {
		p := &w.Spec.PodSets[i]
		switch {
		case p.Name == reservedPodSet:
			return succeeded >= least
		case reclaimed(w, p.Name, pods) < p.Count:
			return false
		}
	}
	return true
}

// A place is a slot that is assigned to a pod.
type place struct {
	pod    *corev1.Pod
	slots  *slots
	podSet kueue.PodSetReference
}

// match assigns waiting pods to slots of quota Workloads, the oldest first.
func (s *gangState) match(workloads []*kueue.Workload) []place {
	var free []*slots
	for _, w := range workloads {
		free = append(free, newSlots(w, s.podsPaidBy(w)))
	}
	var places []place
	for _, pod := range s.waiting {
		for _, f := range free {
			if pod.Labels[apis.QueueLabel] != string(f.workload.Spec.QueueName) || f.rest != nil && !s.suits(f.workload, pod) {
				continue
			}
			if podSet, ok := f.take(pod, s.shapes.of(pod)); ok {
				places = append(places, place{pod, f, podSet})
				break
			}
		}
	}
	return places
}

// suits reports whether a pod can run on the flavors that were reserved before the pods' constraints were known.
func (s *Snapshot) suits(w *kueue.Workload, pod *corev1.Pod) bool {
	constraints := flavor.NewPod(&pod.Spec)
	for i := range w.Status.Admission.PodSetAssignments {
		for _, name := range w.Status.Admission.PodSetAssignments[i].Flavors {
			f := s.Flavors[name]
			if f == nil {
				continue
			}
			keys := map[string]struct{}{}
			for key := range f.Spec.NodeLabels {
				keys[key] = struct{}{}
			}
			if flavor.New(f).Objection(&constraints, keys) != "" {
				return false
			}
		}
	}
	return true
}
