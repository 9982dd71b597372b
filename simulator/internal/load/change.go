package load

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	"github.com/tranche-dev/tranche/simulator/internal/cluster"
	"github.com/tranche-dev/tranche/snapshot"
)

// Change writes the objects in which two snapshots differ into a cluster that was filled with the first one, as administrators and users do while the
// manager runs. Objects that only the first one has are deleted. Pods, quota Workloads and the Jobs of JobSets are not compared: controllers write them.
// It returns the JobSets and Jobs of the second snapshot that are not simulated. Pods of new ones take stopAfter to terminate.
func Change(cl *cluster.Cluster, before, after *snapshot.Snapshot, config *configapi.Configuration, stopAfter time.Duration) ([]LeftOut, error) {
	// Objects that others refer to come first.
	put(before.Namespaces, after.Namespaces, cl.PutNamespace, func(name types.NamespacedName) {
		delete(cl.Namespaces, name.Name)
		cl.Observe(admission.NamespaceGone{Name: name.Name})
	})
	put(before.ResourceFlavors, after.ResourceFlavors, cl.PutFlavor, func(name types.NamespacedName) {
		delete(cl.Flavors, name.Name)
		cl.Observe(admission.FlavorGone{Name: name.Name})
	})
	put(before.AdmissionChecks, after.AdmissionChecks, cl.PutAdmissionCheck, func(name types.NamespacedName) {
		delete(cl.AdmissionChecks, name.Name)
		cl.Observe(admission.CheckGone{Name: name.Name})
	})
	put(before.PriorityClasses, after.PriorityClasses, cl.PutPriorityClass, func(name types.NamespacedName) { delete(cl.PriorityClasses, name.Name) })
	put(before.Cohorts, after.Cohorts, cl.PutCohort, func(name types.NamespacedName) {
		delete(cl.Cohorts, name.Name)
		cl.Observe(admission.CohortGone{Name: name.Name})
	})
	putQueue := func(q *kueue.ClusterQueue) {
		stopForTranche(q)
		cl.PutClusterQueue(q)
	}
	put(before.ClusterQueues, after.ClusterQueues, putQueue, func(name types.NamespacedName) {
		delete(cl.ClusterQueues, name.Name)
		cl.WorkloadQueue.AddAll(cl)
		cl.Observe(admission.ClusterQueueGone{Name: name.Name})
	})
	put(before.LocalQueues, after.LocalQueues, cl.PutLocalQueue, func(key types.NamespacedName) {
		delete(cl.LocalQueues, key)
		cl.WorkloadQueue.AddAll(cl)
		cl.Observe(admission.LocalQueueGone{Key: key})
	})
	changePodRules(cl, before, after)
	old, _ := Cluster(before, config, stopAfter)
	now, leftOut := Cluster(after, config, stopAfter)
	for _, key := range slices.SortedFunc(maps.Keys(now.JobSets), cluster.CompareKeys) {
		if err := changeJobSet(cl, key, old, now); err != nil {
			return nil, err
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(now.QueuedJobs), cluster.CompareKeys) {
		if err := changeQueuedJob(cl, key, old, now); err != nil {
			return nil, err
		}
	}
	return leftOut, nil
}

// changePodRules writes the objects that determine the requests of pods.
func changePodRules(cl *cluster.Cluster, before, after *snapshot.Snapshot) {
	put(before.LimitRanges, after.LimitRanges, cl.PutLimitRange, func(key types.NamespacedName) {
		delete(cl.LimitRanges, key)
		cl.Observe(admission.LimitRangeGone{Key: key})
	})
	put(before.RuntimeClasses, after.RuntimeClasses, cl.PutRuntimeClass, func(name types.NamespacedName) {
		delete(cl.RuntimeClasses, name.Name)
		cl.Observe(admission.RuntimeClassGone{Name: name.Name})
	})
	put(before.DeviceClasses, after.DeviceClasses, cl.PutDeviceClass, func(name types.NamespacedName) {
		delete(cl.DeviceClasses, name.Name)
		cl.Observe(admission.DeviceClassGone{Name: name.Name})
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

type copyable[T any] interface {
	metav1.Object
	DeepCopy() T
}

// changeJobSet submits a JobSet, or changes its fields in which two simulations differ.
func changeJobSet(cl *cluster.Cluster, key types.NamespacedName, old, now *cluster.Cluster) error {
	j, js := now.UserJobs[key], now.JobSets[key]
	current, was := cl.UserJobs[key], old.UserJobs[key]
	switch {
	case current == nil:
		cl.UserJobs[key] = j
		cl.PutJobSet(js.DeepCopy()) // the snapshot has the original
		cl.PutPlan(j)
		return nil
	case was == nil || cl.JobSets[key] == nil:
		return nil
	case equality.Semantic.DeepEqual(old.JobSets[key], js) && equality.Semantic.DeepEqual(was.Plan, j.Plan) && was.Priority == j.Priority:
		return nil
	}
	current.Submission, current.PriorityClass = j.Submission, j.PriorityClass
	patched, err := cluster.Patched(old.JobSets[key], js, cl.JobSets[key])
	if err != nil {
		return err
	}
	patched.Generation++
	cl.PutJobSet(patched)
	cl.PutPlan(current)
	return nil
}

// changeQueuedJob submits a Job, or changes its fields in which two simulations differ.
func changeQueuedJob(cl *cluster.Cluster, key types.NamespacedName, old, now *cluster.Cluster) error {
	j, job := now.QueuedJobs[key], now.QueuedJob(key)
	current, was := cl.QueuedJobs[key], old.QueuedJobs[key]
	switch {
	case job == nil:
		return nil
	case current == nil:
		cl.QueuedJobs[key] = j
		created := job.DeepCopy() // the snapshot has the original
		created.UID = ""
		cl.PutJob(created)
		return nil
	case was == nil || cl.QueuedJob(key) == nil || equality.Semantic.DeepEqual(old.QueuedJob(key), job) && was.Priority == j.Priority:
		return nil
	}
	current.Submission, current.PriorityClass = j.Submission, j.PriorityClass
	patched, err := cluster.Patched(old.QueuedJob(key), job, cl.QueuedJob(key))
	if err != nil {
		return err
	}
	patched.Generation++
	cl.PutJob(patched)
	return nil
}
