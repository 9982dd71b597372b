package shadow

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/simulator/replay"
	"github.com/tranche-dev/tranche/snapshot"
)

// maxVersions is how many changes of queues are kept. Later ones replace the last one.
const maxVersions = 1000

// versions are those of the objects that decide admission, without jobs. The first one also has the objects that were observed when they were old.
type versions struct {
	all []replay.Version
}

func newVersions(base *snapshot.Snapshot) *versions {
	first := &snapshot.Snapshot{}
	if base != nil {
		*first = *base
		first.JobSets, first.Jobs, first.Pods, first.Workloads = nil, nil, nil, nil
		first.ClusterQueues = copied(base.ClusterQueues, func(q *kueue.ClusterQueue) { q.Status = kueue.ClusterQueueStatus{} })
		first.LocalQueues = copied(base.LocalQueues, func(q *kueue.LocalQueue) { q.Status = kueue.LocalQueueStatus{} })
		first.Cohorts = copied(base.Cohorts, func(c *kueue.Cohort) { c.Status = kueue.CohortStatus{} })
	}
	return &versions{all: []replay.Version{{Objects: first}}}
}

// copied returns shallow copies of objects after a change.
func copied[T any](objects []*T, change func(*T)) []*T {
	all := make([]*T, len(objects))
	for i := range objects {
		one := *objects[i]
		change(&one)
		all[i] = &one
	}
	return all
}

func (v *versions) last() *replay.Version { return &v.all[len(v.all)-1] }

// put notes an object that is new or has changed. An object that has never changed counts from the begin: it may have existed before it was observed.
func (v *versions) put(object snapshot.Object, at time.Time) {
	kind := snapshot.KindOf(object)
	if kind == nil {
		return
	}
	wanted := withoutStatus(snapshot.ReducedObject(kind, object))
	current := kind.Find(v.last().Objects, object.GetNamespace(), object.GetName())
	switch {
	case current == nil && object.GetCreationTimestamp().Time.Before(v.begin(at)):
		for i := range v.all {
			v.all[i].Objects = kind.With(v.all[i].Objects, wanted)
		}
	case current == nil || !isSame(current, wanted):
		v.next(at).Objects = kind.With(v.last().Objects, wanted)
	}
}

// begin is when the first change was observed, or now.
func (v *versions) begin(now time.Time) time.Time {
	if len(v.all) > 1 {
		return v.all[1].At
	}
	return now
}

// remove notes that an object was deleted.
func (v *versions) remove(object snapshot.Object, at time.Time) {
	if kind := snapshot.KindOf(object); kind != nil && kind.Find(v.last().Objects, object.GetNamespace(), object.GetName()) != nil {
		v.next(at).Objects = kind.Without(v.last().Objects, object.GetNamespace(), object.GetName())
	}
}

// next returns the version from a time on.
func (v *versions) next(at time.Time) *replay.Version {
	if len(v.all) > 1 && (len(v.all) >= maxVersions || !at.After(v.last().At)) {
		return v.last()
	}
	v.all = append(v.all, replay.Version{At: at, Objects: v.last().Objects})
	return v.last()
}

// since returns the versions that count from a time on.
func (v *versions) since(from time.Time) []replay.Version {
	first := 0
	for i := range v.all {
		if !v.all[i].At.After(from) {
			first = i
		}
	}
	all := slices.Clone(v.all[first:])
	all[0].At = from
	return all
}

// isSame reports whether two versions of an object differ only in what its users do not write.
func isSame(a, b snapshot.Object) bool {
	was := a.GetResourceVersion()
	defer a.SetResourceVersion(was)
	a.SetResourceVersion(b.GetResourceVersion())
	return equality.Semantic.DeepEqual(a, b)
}

// withoutStatus returns a queue without the counts in its status, which change with each admission.
func withoutStatus(object snapshot.Object) snapshot.Object {
	switch o := object.(type) {
	case *kueue.ClusterQueue:
		o.Status = kueue.ClusterQueueStatus{}
	case *kueue.LocalQueue:
		o.Status = kueue.LocalQueueStatus{}
	case *kueue.Cohort:
		o.Status = kueue.CohortStatus{}
	}
	return object
}
