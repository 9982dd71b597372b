package observe

import (
	"fmt"
	"math"
	"strconv"

	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
)

// Unsupported returns what a quota Workload asks for and Tranche does not support, and what to do, or nothing.
func Unsupported(object *kueue.Workload) string {
	if len(object.Spec.PreemptionGates) > 0 {
		return "spec.preemptionGates are not supported: remove them"
	}
	for i := range object.Spec.PodSets {
		if asksForTopology(object.Spec.PodSets[i].TopologyRequest) {
			return fmt.Sprintf("spec.podSets[%d].topologyRequest is not supported, because Tranche does not place pods by topology: "+
				"remove the annotations kueue.x-k8s.io/podset-* from the pod template", i)
		}
	}
	if _, asks := object.Annotations[apis.AllowedFlavorsAnnotation]; asks {
		return fmt.Sprintf("annotation %s is not supported: remove it", apis.AllowedFlavorsAnnotation)
	}
	// Kueue's controllers put these on each quota Workload of an elastic job (decision 49).
	for _, key := range []string{apis.SliceNameAnnotation, apis.SliceReplacementAnnotation} {
		if _, asks := object.Annotations[key]; asks {
			return fmt.Sprintf("annotation %s is not supported, because Kueue does not always stop the pods of an elastic job that is evicted: "+
				"submit the job without the annotation %s", key, apis.ElasticJobAnnotation)
		}
	}
	if object.Labels[apis.ConcurrentParentLabel] == "true" {
		return fmt.Sprintf("label %s is not supported: remove it", apis.ConcurrentParentLabel)
	}
	if _, err := boostOf(object); err != nil {
		return fmt.Sprintf("annotation %s is %q: set a whole number, or remove it", apis.PriorityBoostAnnotation, object.Annotations[apis.PriorityBoostAnnotation])
	}
	return ""
}

// asksForTopology reports whether pods have to be placed by topology. Kueue's integrations also note how pods are numbered, in every quota Workload.
func asksForTopology(r *kueue.PodSetTopologyRequest) bool {
	return r != nil && (r.Required != nil || r.Preferred != nil || r.Unconstrained != nil || r.PodSetGroupName != nil || r.PodSetSliceRequiredTopology != nil ||
		r.PodSetSliceSize != nil || len(r.PodsetSliceRequiredTopologyConstraints) > 0)
}

// priorityOf returns the priority of a quota Workload, including the boost that other controllers add.
func priorityOf(object *kueue.Workload) int32 {
	priority := int64(ptr.Deref(object.Spec.Priority, 0))
	if boost, err := boostOf(object); err == nil {
		priority += boost
	}
	return int32(min(max(priority, math.MinInt32), math.MaxInt32))
}

func boostOf(object *kueue.Workload) (int64, error) {
	value, isSet := object.Annotations[apis.PriorityBoostAnnotation]
	if !isSet || value == "" {
		return 0, nil
	}
	return strconv.ParseInt(value, 10, 32)
}
