package stageplan

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/ptr"
)

// SameResources reports whether pods of two templates have the same requests, limits and overhead.
func SameResources(a, b *corev1.PodSpec) bool {
	var none corev1.ResourceRequirements
	return equality.Semantic.DeepEqual(a.Overhead, b.Overhead) && slices.EqualFunc(a.InitContainers, b.InitContainers, sameOfContainers) &&
		slices.EqualFunc(a.Containers, b.Containers, sameOfContainers) && sameAmounts(ptr.Deref(a.Resources, none), ptr.Deref(b.Resources, none))
}

func sameOfContainers(a, b corev1.Container) bool { return sameAmounts(a.Resources, b.Resources) }

func sameAmounts(a, b corev1.ResourceRequirements) bool {
	return equality.Semantic.DeepEqual(a.Requests, b.Requests) && equality.Semantic.DeepEqual(a.Limits, b.Limits)
}
