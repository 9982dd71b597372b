package charge

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// IsAccelerator reports whether a resource is none of those that every node has.
func IsAccelerator(name corev1.ResourceName) bool {
	usual := []corev1.ResourceName{
		corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceStorage, corev1.ResourceEphemeralStorage, corev1.ResourcePods,
	}
	return !slices.Contains(usual, name) && !strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}
