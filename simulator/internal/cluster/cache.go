package cluster

import (
	"cmp"
	"maps"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
)

// An ObjectName is the kind and the name of a JobSet, or of an object that belongs to it.
type ObjectName struct{ Kind, Name string }

// String returns the kind and the name.
func (n ObjectName) String() string { return n.Kind + " " + n.Name }

// The kinds of objects of which a cache may show the previous version.
const (
	jobSetKind   = "JobSet"
	workloadKind = "quota Workload"
	jobKind      = "Job"
)

// A Version is a version of one object. It has none of the three if the object did not exist.
type Version struct {
	JobSet   *jobsetapi.JobSet
	Workload *kueue.Workload
	Job      *batchv1.Job
}

// remember keeps the version of an object that is about to be replaced.
func (cl *Cluster) remember(jobSet types.NamespacedName, name ObjectName, v Version) {
	if cl.Previous == nil {
		return
	}
	if cl.Previous[jobSet] == nil {
		cl.Previous[jobSet] = map[ObjectName]Version{}
	}
	cl.Previous[jobSet][name] = v
}

// Changed returns the objects of a JobSet that have a previous version, in order.
func (cl *Cluster) Changed(jobSet types.NamespacedName) []ObjectName {
	return slices.SortedFunc(maps.Keys(cl.Previous[jobSet]), func(a, b ObjectName) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
}

// A Cache is what a client with informers reads of the objects of one JobSet: the latest version of each, except for one of which it has not
// received the last event.
type Cache struct {
	*Cluster
	// Stale is empty if the cache has the latest version of each object.
	Stale ObjectName
	Shown Version
}

// JobSet returns the JobSet of a name, or nil.
func (c *Cache) JobSet(key types.NamespacedName) *jobsetapi.JobSet {
	if c.Stale.Kind == jobSetKind {
		return c.Shown.JobSet
	}
	return c.JobSets[key]
}

// WorkloadsOfJobSet returns the quota Workloads of the JobSets of a name.
func (c *Cache) WorkloadsOfJobSet(key types.NamespacedName) []*kueue.Workload {
	all := c.Cluster.WorkloadsOfJobSet(key)
	if c.Stale.Kind == workloadKind {
		return replaced(all, func(w *kueue.Workload) bool { return w.Name == c.Stale.Name }, c.Shown.Workload)
	}
	return all
}

// JobsOf returns the Jobs of a JobSet.
func (c *Cache) JobsOf(jobSet types.UID) []*batchv1.Job {
	all, shown := c.Cluster.JobsOf(jobSet), c.Shown.Job
	if c.Stale.Kind != jobKind {
		return all
	}
	if shown != nil && shown.OwnerReferences[0].UID != jobSet {
		shown = nil
	}
	return replaced(all, func(job *batchv1.Job) bool { return job.Name == c.Stale.Name }, shown)
}

// replaced returns objects with another version of one of them, which is nil if it did not exist.
func replaced[T any](all []*T, isStale func(*T) bool, shown *T) []*T {
	i := slices.IndexFunc(all, isStale)
	switch {
	case i >= 0 && shown != nil:
		all[i] = shown
	case i >= 0:
		return slices.Delete(all, i, i+1)
	case shown != nil:
		return append(all, shown)
	}
	return all
}
