package simulator

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/simulator/internal/cluster"
	"github.com/tranche-dev/tranche/snapshot"
)

// applyChange writes the objects in which two snapshots differ, as administrators and users do while the manager runs. Objects that only the first one has
// are deleted. Jobs, pods and quota Workloads are not compared: controllers write them. Pods of new JobSets take some time to terminate.
func (s *simulation) applyChange(before, after *snapshot.Snapshot, termination time.Duration) error {
	// Objects that others refer to come first.
	put(before.Namespaces, after.Namespaces, s.PutNamespace, func(name types.NamespacedName) {
		delete(s.Namespaces, name.Name)
		s.Observe(admission.NamespaceGone{Name: name.Name})
	})
	put(before.ResourceFlavors, after.ResourceFlavors, s.PutFlavor, func(name types.NamespacedName) {
		delete(s.Flavors, name.Name)
		s.Observe(admission.FlavorGone{Name: name.Name})
	})
	put(before.AdmissionChecks, after.AdmissionChecks, s.PutAdmissionCheck, func(name types.NamespacedName) {
		delete(s.AdmissionChecks, name.Name)
		s.Observe(admission.CheckGone{Name: name.Name})
	})
	put(before.PriorityClasses, after.PriorityClasses, s.PutPriorityClass, func(name types.NamespacedName) { delete(s.PriorityClasses, name.Name) })
	put(before.Cohorts, after.Cohorts, s.PutCohort, func(name types.NamespacedName) {
		delete(s.Cohorts, name.Name)
		s.Observe(admission.CohortGone{Name: name.Name})
	})
	put(before.ClusterQueues, after.ClusterQueues, s.PutClusterQueue, func(name types.NamespacedName) {
		delete(s.ClusterQueues, name.Name)
		s.WorkloadQueue.AddAll(s.Cluster)
		s.Observe(admission.ClusterQueueGone{Name: name.Name})
	})
	put(before.LocalQueues, after.LocalQueues, s.PutLocalQueue, func(key types.NamespacedName) {
		delete(s.LocalQueues, key)
		s.WorkloadQueue.AddAll(s.Cluster)
		s.Observe(admission.LocalQueueGone{Key: key})
	})
	s.changePodRules(before, after)
	return s.changeJobSets(before, after, termination)
}

// changePodRules writes the objects that determine the requests of pods.
func (s *simulation) changePodRules(before, after *snapshot.Snapshot) {
	put(before.LimitRanges, after.LimitRanges, s.PutLimitRange, func(key types.NamespacedName) {
		delete(s.LimitRanges, key)
		s.Observe(admission.LimitRangeGone{Key: key})
	})
	put(before.RuntimeClasses, after.RuntimeClasses, s.PutRuntimeClass, func(name types.NamespacedName) {
		delete(s.RuntimeClasses, name.Name)
		s.Observe(admission.RuntimeClassGone{Name: name.Name})
	})
	put(before.DeviceClasses, after.DeviceClasses, s.PutDeviceClass, func(name types.NamespacedName) {
		delete(s.DeviceClasses, name.Name)
		s.Observe(admission.DeviceClassGone{Name: name.Name})
	})
}

// put writes copies of objects that are new or differ, and removes those that are missing.
func put[T copyable[T]](before, after []T, write func(T), remove func(types.NamespacedName)) {
	old := map[types.NamespacedName]T{}
	for _, o := range before {
		old[keyOf(o)] = o
	}
	for _, o := range after {
		was, existed := old[keyOf(o)]
		delete(old, keyOf(o))
		if !existed || !equality.Semantic.DeepEqual(was, o) {
			write(o.DeepCopy())
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(old), cluster.CompareKeys) {
		remove(key)
	}
}

func keyOf(o metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}

// changeJobSets submits new JobSets, and changes those whose spec, priority or plan differs.
func (s *simulation) changeJobSets(before, after *snapshot.Snapshot, termination time.Duration) error {
	isSame := equality.Semantic.DeepEqual
	if isSame(before.JobSets, after.JobSets) && isSame(before.LimitRanges, after.LimitRanges) && isSame(before.RuntimeClasses, after.RuntimeClasses) &&
		isSame(before.PriorityClasses, after.PriorityClasses) && isSame(before.PodPriorityClasses, after.PodPriorityClasses) &&
		isSame(before.ResourceClaimTemplates, after.ResourceClaimTemplates) {
		return nil
	}
	old, _, err := fromSnapshot(before, termination)
	if err != nil {
		return err
	}
	now, _, err := fromSnapshot(after, termination)
	if err != nil {
		return err
	}
	for _, key := range slices.SortedFunc(maps.Keys(now.JobSets), cluster.CompareKeys) {
		if err := s.changeJobSet(key, old, now); err != nil {
			return err
		}
	}
	return nil
}

// changeJobSet submits a JobSet, or changes its fields in which two simulations differ.
func (s *simulation) changeJobSet(key types.NamespacedName, old, now *simulation) error {
	j, js := now.UserJobs[key], now.JobSets[key]
	current, was := s.UserJobs[key], old.UserJobs[key]
	switch {
	case current == nil:
		s.UserJobs[key] = j
		s.PutJobSet(js)
		s.PutPlan(j)
		return nil
	case was == nil || s.JobSets[key] == nil:
		return nil
	case equality.Semantic.DeepEqual(old.JobSets[key], js) && equality.Semantic.DeepEqual(was.Plan, j.Plan) && was.Priority == j.Priority:
		return nil
	}
	current.Submission, current.PriorityClass = j.Submission, j.PriorityClass
	patched, err := cluster.Patched(old.JobSets[key], js, s.JobSets[key])
	if err != nil {
		return err
	}
	patched.Generation++
	s.PutJobSet(patched)
	s.PutPlan(current)
	return nil
}
