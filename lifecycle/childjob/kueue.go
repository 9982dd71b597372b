package childjob

import (
	"slices"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// PlacedByKueue returns the fields by which Kueue's manager finds the pods of a pod set. Those with a topology assignment are gated until it has
// written into each in which domain it must run.
func PlacedByKueue(workload *kueue.Workload, podSet string) Update {
	update := Update{By: "its admission would", Update: kueue.PodSetUpdate{Annotations: map[string]string{kueue.WorkloadAnnotation: workload.Name}}}
	assignment := AssignmentOf(workload, podSet)
	if assignment == nil || assignment.TopologyAssignment == nil {
		return update
	}
	update.Gates = []string{kueue.TopologySchedulingGate}
	name := kueue.NewPodSetReference(podSet)
	i := slices.IndexFunc(workload.Spec.PodSets, func(p kueue.PodSet) bool { return p.Name == name })
	if i >= 0 && !asksForTopology(workload.Spec.PodSets[i].TopologyRequest) {
		update.Update.Annotations[kueue.PodSetUnconstrainedTopologyAnnotation] = "true"
	}
	return update
}

func asksForTopology(request *kueue.PodSetTopologyRequest) bool {
	return request != nil && (request.Required != nil || request.Preferred != nil || request.Unconstrained != nil)
}
