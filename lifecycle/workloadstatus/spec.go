package workloadstatus

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
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

// JobSetTopology returns the topology request of a ReplicatedJob of a JobSet that Kueue admits, as Kueue's integration of JobSets makes it. Each pod
// has the index of its Job and its own as labels, so that Kueue places pods with neighboring indexes close to each other.
func JobSetTopology(template *corev1.PodTemplateSpec, replicas int32) (*kueue.PodSetTopologyRequest, error) {
	request := &kueue.PodSetTopologyRequest{
		PodIndexLabel: new(batchv1.JobCompletionIndexAnnotation), SubGroupIndexLabel: new(jobset.JobIndexKey), SubGroupCount: &replicas,
	}
	all := template.Annotations
	group, hasGroup := all[kueue.PodSetGroupName]
	if required, ok := all[kueue.PodSetRequiredTopologyAnnotation]; ok {
		request.Required = &required
	} else if preferred, ok := all[kueue.PodSetPreferredTopologyAnnotation]; ok {
		request.Preferred = &preferred
	} else if text, ok := all[kueue.PodSetUnconstrainedTopologyAnnotation]; ok {
		unconstrained, err := strconv.ParseBool(text)
		if err != nil {
			return request, fmt.Errorf("%s is %q: write true or false", kueue.PodSetUnconstrainedTopologyAnnotation, text)
		}
		request.Unconstrained = &unconstrained
	}
	if hasGroup && cmp.Or(request.Required, request.Preferred) != nil {
		request.PodSetGroupName = &group
	}
	return request, addSlices(request, all)
}

// addSlices adds what the annotations of a pod template request for slices of its pods.
func addSlices(request *kueue.PodSetTopologyRequest, annotations map[string]string) error {
	if text, ok := annotations[kueue.PodSetSliceRequiredTopologyConstraintsAnnotation]; ok {
		var constraints []kueue.PodsetSliceRequiredTopologyConstraint
		if err := json.Unmarshal([]byte(text), &constraints); err != nil || len(constraints) == 0 || len(constraints) > 3 {
			return fmt.Errorf("%s is %q: write a JSON list of 1 to 3 constraints", kueue.PodSetSliceRequiredTopologyConstraintsAnnotation, text)
		}
		request.PodsetSliceRequiredTopologyConstraints = constraints
		return nil
	}
	topology, hasTopology := annotations[kueue.PodSetSliceRequiredTopologyAnnotation]
	text, hasSize := annotations[kueue.PodSetSliceSizeAnnotation]
	if hasTopology != hasSize {
		return fmt.Errorf("%s and %s: write both or neither", kueue.PodSetSliceRequiredTopologyAnnotation, kueue.PodSetSliceSizeAnnotation)
	}
	if !hasSize {
		return nil
	}
	size, err := strconv.ParseInt(text, 10, 32)
	if err != nil || size <= 0 {
		return fmt.Errorf("%s is %q: write a whole number above 0", kueue.PodSetSliceSizeAnnotation, text)
	}
	request.PodSetSliceRequiredTopology, request.PodSetSliceSize = &topology, new(int32(size))
	return nil
}

// PodPriority returns the priority that pods with a PriorityClass give to their quota Workload, and the reference to that class. Classes above the
// configured limit, such as system-node-critical, do not count: every tenant may name them, and its jobs would evict all others and could not be evicted.
func PodPriority(class string, value, limit int32) (int32, *kueue.PriorityClassRef) {
	switch {
	case value > limit:
		return 0, nil
	case class == "":
		return value, nil
	}
	return value, kueue.NewPodPriorityClassRef(class)
}
