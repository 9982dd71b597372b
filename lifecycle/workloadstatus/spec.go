package workloadstatus

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// MayReplaceClass reports whether a quota Workload that holds quota may change from one priority class to the other. The schema allows that only
// between WorkloadPriorityClasses: all other changes wait until the quota is released.
func MayReplaceClass(before, after *kueue.PriorityClassRef) bool {
	if before == nil || after == nil {
		return before == after
	}
	return before.Group == after.Group && before.Kind == after.Kind &&
		(before.Name == after.Name || before.Kind == kueue.WorkloadPriorityClassKind)
}

// TopologyRequest returns the topology request of a pod template, so that it is refused by name instead of being ignored.
func TopologyRequest(template *corev1.PodTemplateSpec) *kueue.PodSetTopologyRequest {
	annotation := func(key string) *string {
		if value, ok := template.Annotations[key]; ok {
			return &value
		}
		return nil
	}
	request := kueue.PodSetTopologyRequest{
		Required: annotation(kueue.PodSetRequiredTopologyAnnotation), Preferred: annotation(kueue.PodSetPreferredTopologyAnnotation),
		PodSetSliceRequiredTopology: annotation(kueue.PodSetSliceRequiredTopologyAnnotation), PodSetGroupName: annotation(kueue.PodSetGroupName),
	}
	if unconstrained := annotation(kueue.PodSetUnconstrainedTopologyAnnotation); unconstrained != nil {
		request.Unconstrained = new(*unconstrained == "true")
	}
	hasSize := annotation(kueue.PodSetSliceSizeAnnotation) != nil
	hasConstraints := annotation(kueue.PodSetSliceRequiredTopologyConstraintsAnnotation) != nil
	if !hasSize && !hasConstraints && equality.Semantic.DeepEqual(request, kueue.PodSetTopologyRequest{}) {
		return nil
	}
	return &request
}
