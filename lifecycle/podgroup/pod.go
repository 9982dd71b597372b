package podgroup

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/apis"
)

// IsTerminal reports whether a pod has terminated.
func IsTerminal(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// IsGated reports whether a pod may not be scheduled before it is ungated.
func IsGated(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.SchedulingGates, func(gate corev1.PodSchedulingGate) bool { return gate.Name == apis.PodAdmissionGate })
}

// IsVanishing reports whether a pod that has never run is being deleted.
func IsVanishing(pod *corev1.Pod) bool { return IsGated(pod) && pod.DeletionTimestamp != nil }

// IsWaiting reports whether a pod waits to be ungated.
func IsWaiting(pod *corev1.Pod) bool {
	return IsGated(pod) && !IsTerminal(pod) && pod.DeletionTimestamp == nil
}

// Payer returns the UID of the quota Workload that pays for a pod of a gang, or "". The pod names it in Kueue's annotation, too.
func Payer(pod *corev1.Pod) types.UID {
	uid, _, _ := strings.Cut(pod.Annotations[apis.AdmissionAnnotation], ".")
	return types.UID(uid)
}

// IsActive reports whether a pod may use the quota that pays for it.
func IsActive(pod *corev1.Pod) bool { return !IsGated(pod) && !IsTerminal(pod) }

// IsReady reports whether a pod has the condition Ready, and is not being deleted.
func IsReady(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}
