package manager

import (
	"errors"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/lifecycle/childjob"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstatus"
	"github.com/tranche-dev/tranche/lifecycle/quotastep"
	"github.com/tranche-dev/tranche/lifecycle/stages"
	"github.com/tranche-dev/tranche/simulator/internal/cluster"
)

// ErrCut ends a Step of a manager that dies in the middle of it.
var ErrCut = errors.New("the manager dies")

// A stepWriter writes one Step to the objects. Each write has the preconditions of the same write in controllers/jobset (precondition.go).
type stepWriter struct {
	*Manager
	snapshot *jobsetstate.Snapshot
}

func (w *stepWriter) writer() *stages.Writer {
	return &stages.Writer{
		Quota: w.WriteQuota, MarkJobs: w.markJobs, Pause: w.pause, Start: w.start,
		ReleaseJobs: w.releaseJobs, ResizeJobs: w.resizeJobs, HoldJobs: w.holdJobs, SkipJobs: w.skipJobs,
		ConcludeJobs: w.concludeJobs, RecreateJobs: w.recreateJobs, RestoreJobs: w.restoreJobs,
		RecordTimes: w.recordTimes, ReleaseQuota: w.releaseQuota, Report: w.report,
	}
}

// Each writes objects one by one. It stops at the first error, and where the manager is to die.
func Each[T any](m *Manager, all []T, write func(T) error) error {
	return untilDeath(m, all, func(one T) error { return m.attempt(func() error { return write(one) }) })
}

// untilDeath calls a function for objects one by one, like Each.
func untilDeath[T any](m *Manager, all []T, do func(T) error) error {
	for _, one := range all {
		if m.dies() {
			return ErrCut
		}
		if err := do(one); err != nil {
			return err
		}
	}
	return nil
}

// attempt makes a write, unless it is the one that is to fail.
func (m *Manager) attempt(write func() error) error {
	if m.Writes-1 != m.FailsAfter {
		return write()
	}
	m.FailsAfter = -1
	if m.LosesAnswer {
		return errors.Join(write(), ErrConflict)
	}
	return ErrConflict
}

// eachJob writes Jobs one by one. If one cannot be written, the others still are.
func eachJob(w *stepWriter, jobs []*batchv1.Job, write func(*batchv1.Job) error) error {
	var failed error
	err := untilDeath(w.Manager, jobs, func(job *batchv1.Job) error {
		failed = errors.Join(failed, w.attempt(func() error { return write(job) }))
		return nil
	})
	return errors.Join(err, failed)
}

// dies reports whether the manager dies before its next write.
func (m *Manager) dies() bool {
	if m.Writes == m.DiesAfter {
		m.DiesAfter = -1
		return true
	}
	m.Writes++
	return false
}

// pause and start write the JobSet, like the functions after them that have one object to write.
func (w *stepWriter) pause(*stages.Step) error {
	return Each(w.Manager, []bool{true}, func(suspend bool) error {
		js := w.snapshot.JobSet.DeepCopy()
		js.Spec.Suspend = &suspend
		delete(js.Annotations, apis.StartedAnnotation)
		return w.patchJobSet(js)
	})
}

func (w *stepWriter) start(*stages.Step) error {
	return Each(w.Manager, []bool{false}, func(suspend bool) error {
		js := w.snapshot.JobSet.DeepCopy()
		js.Spec.Suspend = &suspend
		metav1.SetMetaDataAnnotation(&js.ObjectMeta, apis.StartedAnnotation, "true")
		return w.patchJobSet(js)
	})
}

func (w *stepWriter) releaseJobs(step *stages.Step) error {
	held := map[string]*batchv1.Job{}
	for _, job := range w.snapshot.Owned.Jobs {
		held[job.Name] = job
	}
	var all []*batchv1.Job
	for _, release := range step.ReleaseJobs {
		all = append(all, release.Jobs...)
	}
	return eachJob(w, all, func(job *batchv1.Job) error { return w.patchJob(held[job.Name], job, sameSpec) })
}

func (w *stepWriter) resizeJobs(step *stages.Step) error {
	for _, resize := range step.ResizeJobs {
		before := map[string]*batchv1.Job{}
		for _, job := range resize.Before {
			before[job.Name] = job
		}
		err := eachJob(w, resize.After, func(job *batchv1.Job) error {
			w.Log("resize %s/%s pods=%d", w.snapshot.Key.Name, job.Labels[jobset.ReplicatedJobNameKey], childjob.PodsAtOnce(job))
			return w.patchJob(before[job.Name], job, sameSpec)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *stepWriter) holdJobs(step *stages.Step) error {
	return eachJob(w, step.HoldJobs, func(job *batchv1.Job) error { return w.patchJob(job, suspended(job, true), sameUID) })
}

func (w *stepWriter) concludeJobs(step *stages.Step) error {
	return eachJob(w, step.ConcludeJobs, func(job *batchv1.Job) error { return w.patchJob(job, suspended(job, false), sameUID) })
}

func suspended(job *batchv1.Job, suspend bool) *batchv1.Job {
	after := job.DeepCopy()
	after.Spec.Suspend = &suspend
	return after
}

func (w *stepWriter) skipJobs(step *stages.Step) error {
	return eachJob(w, step.SkipJobs, func(job *batchv1.Job) error {
		after := suspended(job, false)
		cluster.SetJobCondition(after, batchv1.JobSuccessCriteriaMet, corev1.ConditionTrue)
		return w.patchJob(job, after, sameVersion)
	})
}

func (w *stepWriter) recreateJobs(step *stages.Step) error {
	return eachJob(w, step.RecreateJobs, func(job *batchv1.Job) error {
		return w.onJob(job, sameUID, func(now *batchv1.Job) error {
			w.DeleteJob(now)
			return nil
		})
	})
}

func (w *stepWriter) markJobs(step *stages.Step) error {
	return Each(w.Manager, step.MarkJobs, func(job *batchv1.Job) error { return w.patchJob(job, jobsetstate.Guarded(w.snapshot, job), sameUID) })
}

func (w *stepWriter) restoreJobs(step *stages.Step) error {
	return eachJob(w, step.RestoreJobs, func(job *batchv1.Job) error { return w.patchJob(job, childjob.Restored(job), sameUID) })
}

// recordTimes writes into the latest version of the JobSet, which the manager reads if the API server rejects the write into another.
func (w *stepWriter) recordTimes(step *stages.Step) error {
	return Each(w.Manager, []*stages.Step{step}, func(step *stages.Step) error {
		now := w.JobSets[w.snapshot.Key]
		if now == nil || now.UID != w.snapshot.JobSet.UID {
			return nil
		}
		after, _, err := step.RecordTimesOn(now, w.snapshot.Plan, w.Time())
		if err == nil {
			w.PutJobSet(after)
		}
		return err
	})
}

// releaseQuota decides again on live reads.
func (w *stepWriter) releaseQuota(*stages.Step) error {
	return w.WriteQuota(stages.Next(w.refresh(w.snapshot)).Of(quotastep.Release))
}

// report writes the conditions of the JobSet, if they differ from those that the manager has read.
func (w *stepWriter) report(step *stages.Step) error {
	read := w.snapshot.JobSet
	if read == nil || w.IsQuiet || equality.Semantic.DeepEqual(read.Status.Conditions, conditionsAfter(read, step.Conditions)) {
		return nil
	}
	return Each(w.Manager, []*jobsetapi.JobSet{read}, func(read *jobsetapi.JobSet) error {
		return w.onJobSet(read, sameUID, func(now *jobsetapi.JobSet) error {
			w.PutJobSet(withConditions(now, step.Conditions))
			return nil
		})
	})
}

// withConditions returns a JobSet with the conditions that the manager reports.
func withConditions(js *jobsetapi.JobSet, conditions []metav1.Condition) *jobsetapi.JobSet {
	after := js.DeepCopy()
	after.Status.Conditions = conditionsAfter(js, conditions)
	return after
}

// conditionsAfter returns the conditions of a JobSet after the manager has reported its own.
func conditionsAfter(js *jobsetapi.JobSet, conditions []metav1.Condition) []metav1.Condition {
	after := slices.DeleteFunc(slices.Clone(js.Status.Conditions), func(c metav1.Condition) bool { return jobsetstatus.IsOwned(c.Type) })
	return append(after, conditions...)
}
