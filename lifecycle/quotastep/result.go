package quotastep

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// IsLocked reports whether the API server has to reject a write if the quota Workload was written since it was read. Other writes are only rejected if
// another quota Workload has its name now.
//
//   - A change of the pod sets is locked, because it may have been admitted for its previous pods; one of its owners, because a patch replaces all of them; and
//     one of its gang, because only one pod takes it over.
//   - A quota Workload finishes once: if the cache does not show yet that it has, no Event is emitted twice.
//   - The other parts of a status repeat what else is in them, and reclaimable pods count only for the admission with which they were read.
func (w *Write) IsLocked() bool {
	switch w.Kind {
	case RemoveFinalizer:
		return false
	case Progress:
		return w.Finished != nil
	case Change:
		isSameOwner := func(a, b metav1.OwnerReference) bool { return a.UID == b.UID }
		return w.Workload.Annotations[apis.PodGroupKey] != w.After.Annotations[apis.PodGroupKey] ||
			!equality.Semantic.DeepEqual(w.Workload.Spec.PodSets, w.After.Spec.PodSets) ||
			!slices.EqualFunc(w.Workload.OwnerReferences, w.After.OwnerReferences, isSameOwner)
	case Create, Admit, Evict, Reclaim, Release, Reopen, Delete, Grow:
	}
	return true
}

// Result returns a quota Workload that exists and has the version that the write needs as it is after the write. It is for those that keep objects instead
// of an API server, and does not know bars and deletions.
func (w *Write) Result(current *kueue.Workload, now time.Time) *kueue.Workload {
	switch w.Kind {
	case Admit, Evict, Release:
		status := w.Status(now)
		return workloadstatus.Merge(current, &status)
	case Progress:
		after := current.DeepCopy()
		for _, condition := range []string{kueue.WorkloadPodsReady, kueue.WorkloadFinished} {
			apimeta.RemoveStatusCondition(&after.Status.Conditions, condition)
		}
		after.Status.Conditions = append(after.Status.Conditions, w.Status(now).Conditions...)
		return after
	case Reclaim:
		after := current.DeepCopy()
		after.Status.ReclaimablePods = w.Reclaimable
		return after
	case Change:
		return changed(w.Workload, w.After, current)
	case RemoveFinalizer:
		after := current.DeepCopy()
		after.Finalizers = slices.DeleteFunc(after.Finalizers, func(f string) bool {
			return f == kueue.ResourceInUseFinalizerName || f == apis.QuotaInUseFinalizer
		})
		return after
	case Create, Reopen, Delete, Grow:
	}
	return current
}

// changed returns the current version of a quota Workload with the changes from one version to another, as the API server applies a merge patch.
func changed(before, after, current *kueue.Workload) *kueue.Workload {
	result := current.DeepCopy()
	merge(&result.Labels, before.Labels, after.Labels)
	merge(&result.Annotations, before.Annotations, after.Annotations)
	if !equality.Semantic.DeepEqual(before.OwnerReferences, after.OwnerReferences) {
		result.OwnerReferences = after.OwnerReferences
	}
	if equality.Semantic.DeepEqual(before.Spec, after.Spec) {
		return result
	}
	was, is, spec := &before.Spec, &after.Spec, &result.Spec
	take(&spec.PodSets, was.PodSets, is.PodSets)
	take(&spec.QueueName, was.QueueName, is.QueueName)
	take(&spec.Priority, was.Priority, is.Priority)
	take(&spec.PriorityClassRef, was.PriorityClassRef, is.PriorityClassRef)
	take(&spec.MaximumExecutionTimeSeconds, was.MaximumExecutionTimeSeconds, is.MaximumExecutionTimeSeconds)
	if !equality.Semantic.DeepEqual(spec, &current.Spec) {
		result.Generation++
	}
	return result
}

// take changes a field if a change changes it.
func take[T any](field *T, before, after T) {
	if !equality.Semantic.DeepEqual(before, after) {
		*field = after
	}
}

// merge changes those keys of a map that a change changes.
func merge(to *map[string]string, before, after map[string]string) {
	for key := range before {
		if _, isKept := after[key]; !isKept {
			delete(*to, key)
		}
	}
	for key, value := range after {
		if old, isKept := before[key]; isKept && old == value {
			continue
		}
		if *to == nil {
			*to = map[string]string{}
		}
		(*to)[key] = value
	}
}
