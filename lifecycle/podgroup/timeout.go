package podgroup

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/apis"
)

// All returns all pods of the gang. Those that have timed out come last.
func (g *Gang) All() []*corev1.Pod { return slices.Concat(g.Pods, g.TimedOut) }

// splitTimedOut moves pods from Pods to TimedOut if they are not admitted because their gang did not start in time.
func (g *Gang) splitTimedOut() {
	isOut := func(pod *corev1.Pod) bool { return g.stops && IsWaiting(pod) && HasTimeoutAnnotation(pod.Annotations) }
	for _, pod := range g.Pods {
		if isOut(pod) {
			g.TimedOut = append(g.TimedOut, pod)
		}
	}
	g.Pods = slices.DeleteFunc(g.Pods, isOut)
}

// HasTimeoutAnnotation reports whether a pod or PodGroup with these annotations is marked because its gang did not start in time.
func HasTimeoutAnnotation(annotations map[string]string) bool {
	return annotations[apis.KoordinatorTimeoutAnnotation] == "true"
}

// Reserves reports whether the gang asks for quota although its pods do not exist. It does not if they were not created in time before.
func (g *Gang) Reserves() bool {
	return g.Object != nil && len(g.Object.MinResources) > 0 && (!g.stops || !HasTimeoutAnnotation(g.Object.Annotations))
}
