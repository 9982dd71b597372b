package device

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// A Claim is the relevant part of a ResourceClaim. Its spec never changes.
type Claim struct {
	// Controller controls the ResourceClaim, or is nil.
	Controller *metav1.OwnerReference
	Spec       resourcev1.ResourceClaimSpec
}

// ChargePod returns a copy of a pod that has the charges of its devices as overhead, and no resource claims. It counts the ResourceClaims that
// Kubernetes has created for the pod, and not their templates, which may have been replaced by others of the same name. claims has those of its
// namespace by name. If there is a Problem the pod is returned unchanged. IsMissing is true while a ResourceClaim has not been created: then the
// message holds only if the ResourceClaimTemplate does not exist.
func (m Mapping) ChargePod(pod *corev1.Pod, claims map[string]Claim) (*corev1.Pod, *Problem) {
	if len(pod.Spec.ResourceClaims) == 0 {
		return pod, nil
	}
	requests, problem := m.devices(pod.Spec.ResourceClaims, func(asked *corev1.PodResourceClaim) (spec *resourcev1.ResourceClaimSpec, isNeeded bool) {
		name, isNeeded := createdFor(pod, asked.Name)
		if claim, exists := claims[name]; exists && claim.isOf(pod) {
			return &claim.Spec, isNeeded
		}
		return nil, isNeeded
	})
	if problem != nil {
		return pod, problem
	}
	charged := *pod
	charged.Spec.ResourceClaims = nil
	charged.Spec.Overhead = overheadWith(pod.Spec.Overhead, requests)
	return &charged, nil
}

// createdFor returns the name of the ResourceClaim that Kubernetes has created for a resource claim of a pod, or an empty name. isNeeded is false
// if Kubernetes has decided that no ResourceClaim is needed: then the pod gets no devices for it.
func createdFor(pod *corev1.Pod, claim string) (name string, isNeeded bool) {
	statuses := pod.Status.ResourceClaimStatuses
	i := slices.IndexFunc(statuses, func(s corev1.PodResourceClaimStatus) bool { return s.Name == claim })
	if i < 0 {
		return "", true
	}
	return ptr.Deref(statuses[i].ResourceClaimName, ""), statuses[i].ResourceClaimName != nil
}

// isOf reports whether a ResourceClaim is that of a pod or of its PodGroup. The scheduler uses no other.
func (c *Claim) isOf(pod *corev1.Pod) bool {
	switch {
	case c.Controller == nil:
		return false
	case c.Controller.UID == pod.UID:
		return c.Controller.Kind == "Pod" && c.Controller.APIVersion == "v1"
	}
	group := pod.Spec.SchedulingGroup
	return group != nil && group.PodGroupName != nil && c.Controller.Name == *group.PodGroupName && c.Controller.Kind == "PodGroup" &&
		strings.HasPrefix(c.Controller.APIVersion, "scheduling.k8s.io/")
}
