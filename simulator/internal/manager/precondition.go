package manager

import (
	"errors"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/simulator/internal/cluster"
)

// ErrConflict is the answer of the API server to a write whose precondition is not met. It ends the Step, and the JobSet is reconciled again.
var ErrConflict = errors.New("the object has changed since it was read")

// A precondition is what a write requires of the current version of an object. A write to an object that has disappeared does nothing.
type precondition int

const (
	// sameUID requires that no other object has taken the name.
	sameUID precondition = iota
	// sameSpec requires that the spec has not changed either, and that the object is not being deleted: the write is tried again with the latest
	// resource version as long as the generation is the same.
	sameSpec
	// sameVersion requires the resource version that was read.
	sameVersion
)

// conflict checks a precondition.
func (p precondition) conflict(read, now metav1.Object) error {
	switch {
	case now.GetUID() != read.GetUID(),
		p == sameSpec && (now.GetDeletionTimestamp() == nil) != (read.GetDeletionTimestamp() == nil),
		p == sameSpec && !equality.Semantic.DeepEqual(specOf(read), specOf(now)),
		p == sameVersion && now.GetResourceVersion() != read.GetResourceVersion():
		return ErrConflict
	}
	return nil
}

// specOf returns the spec of an object that the manager writes if its spec has not changed.
func specOf(object metav1.Object) any {
	switch o := object.(type) {
	case *batchv1.Job:
		return &o.Spec
	case *jobsetapi.JobSet:
		return &o.Spec
	}
	return nil
}

// on changes the current version of an object, unless it has disappeared.
func on[T any, O interface {
	*T
	metav1.Object
}](read, now O, need precondition, change func(now O) error) error {
	if now == nil {
		return nil
	}
	if err := need.conflict(read, now); err != nil {
		return err
	}
	return change(now)
}

// onJob changes the current version of a Job.
func (w *stepWriter) onJob(read *batchv1.Job, need precondition, change func(now *batchv1.Job) error) error {
	return on(read, w.JobNamed(cluster.NameOfJob(read)), need, change)
}

// patchJob writes the changes of a Job.
func (w *stepWriter) patchJob(before, after *batchv1.Job, need precondition) error {
	return w.onJob(before, need, func(now *batchv1.Job) error {
		job, err := patched(before, after, now)
		if err == nil {
			w.PutJob(job)
		}
		return err
	})
}

// onJobSet changes the current version of the JobSet.
func (w *stepWriter) onJobSet(read *jobsetapi.JobSet, need precondition, change func(now *jobsetapi.JobSet) error) error {
	return on(read, w.JobSets[w.snapshot.Key], need, change)
}

// patchJobSet writes the changes of the JobSet, unless its spec has changed since it was read.
func (w *stepWriter) patchJobSet(after *jobsetapi.JobSet) error {
	return w.onJobSet(w.snapshot.JobSet, sameSpec, func(now *jobsetapi.JobSet) error {
		js, err := patched(w.snapshot.JobSet, after, now)
		if err == nil {
			w.PutJobSet(js)
		}
		return err
	})
}

// patched returns the current version of an object with the changes from one version to another.
func patched[T any](before, after, now *T) (*T, error) {
	if before == now {
		return after, nil
	}
	return cluster.Patched(before, after, now)
}
