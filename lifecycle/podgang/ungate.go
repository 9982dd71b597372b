package podgang

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// ungated returns a copy of a gated pod that may be scheduled on the flavors of its pod set, with the updates of AdmissionChecks. Kubernetes
// only allows the constraints of a gated pod to become narrower, so that contradictions are an error.
func (s *Snapshot) ungated(pod *corev1.Pod, w *kueue.Workload, podSet kueue.PodSetReference) (*corev1.Pod, error) {
	assigned := slices.IndexFunc(w.Status.Admission.PodSetAssignments, func(a kueue.PodSetAssignment) bool { return a.Name == podSet })
	if assigned < 0 {
		return nil, fmt.Errorf("pod %q is still gated: its quota Workload %q has no assignment for pod set %q", pod.Name, w.Name, podSet)
	}
	after := pod.DeepCopy()
	delete(after.Annotations, apis.KoordinatorTimeoutAnnotation) // Koordinator would not place it
	after.Spec.SchedulingGates = slices.DeleteFunc(after.Spec.SchedulingGates, func(g corev1.PodSchedulingGate) bool { return g.Name == apis.PodAdmissionGate })
	flavors := slices.Sorted(maps.Values(w.Status.Admission.PodSetAssignments[assigned].Flavors))
	for _, name := range slices.Compact(flavors) {
		flavor := s.Flavors[name]
		if flavor == nil {
			return nil, fmt.Errorf("pod %q is still gated: ResourceFlavor %q, to which its gang is admitted, does not exist: create it", pod.Name, name)
		}
		if err := addUpdate(after, &kueue.PodSetUpdate{NodeSelector: flavor.Spec.NodeLabels, Tolerations: flavor.Spec.Tolerations}); err != nil {
			return nil, fmt.Errorf("pod %q is still gated: ResourceFlavor %q %w", pod.Name, name, err)
		}
	}
	updates, err := workloadstatus.PodSetUpdates(w)
	if err != nil {
		return nil, fmt.Errorf("pod %q is still gated: %w", pod.Name, err)
	}
	if update, ok := updates[podSet]; ok {
		if err := addUpdate(after, &update); err != nil {
			return nil, fmt.Errorf("pod %q is still gated: an AdmissionCheck %w", pod.Name, err)
		}
	}
	for key, value := range workloadstatus.PodLabels(w, podSet) {
		add(&after.Labels, key, value)
	}
	add(&after.Annotations, kueue.WorkloadAnnotation, w.Name)
	add(&after.Annotations, apis.AdmissionAnnotation, admissionOf(w)+"/"+string(podSet))
	return after, nil
}

func add(to *map[string]string, key, value string) {
	if *to == nil {
		*to = map[string]string{}
	}
	(*to)[key] = value
}

// addUpdate adds labels, annotations, node labels and tolerations to a pod.
func addUpdate(pod *corev1.Pod, update *kueue.PodSetUpdate) error {
	for _, part := range []struct {
		name string
		to   *map[string]string
		from map[string]string
	}{{"labels", &pod.Labels, update.Labels}, {"annotations", &pod.Annotations, update.Annotations}, {"nodeSelector", &pod.Spec.NodeSelector, update.NodeSelector}} {
		for _, key := range slices.Sorted(maps.Keys(part.from)) {
			if value, there := (*part.to)[key]; there && value != part.from[key] {
				return fmt.Errorf("sets %s[%q] to %q, but the pod has %q: make them equal", part.name, key, part.from[key], value)
			}
			add(part.to, key, part.from[key])
		}
	}
	for _, toleration := range update.Tolerations {
		if !slices.ContainsFunc(pod.Spec.Tolerations, func(has corev1.Toleration) bool { return equality.Semantic.DeepEqual(has, toleration) }) {
			pod.Spec.Tolerations = append(pod.Spec.Tolerations, toleration)
		}
	}
	return nil
}
