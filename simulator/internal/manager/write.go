package manager

import (
	"errors"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/lifecycle/childjob"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstatus"
	"github.com/tranche-dev/tranche/lifecycle/stages"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
	"github.com/tranche-dev/tranche/simulator/internal/cluster"
)

// errCut ends a Step of a manager that dies in the middle of it.
var errCut = errors.New("the manager dies")

// A stepWriter writes one Step to the objects. Each write has the preconditions of the same write in controllers/jobset (precondition.go).
type stepWriter struct {
	*Manager
	snapshot *jobsetstate.Snapshot
}

func (w *stepWriter) writer() *stages.Writer {
	return &stages.Writer{
		CreateWorkloads: w.createWorkloads, EvictWorkloads: w.evictWorkloads, ChangeWorkloads: w.changeWorkloads,
		Pause: w.pause, Start: w.start,
		ReleaseJobs: w.releaseJobs, ResizeJobs: w.resizeJobs, HoldJobs: w.holdJobs, SkipJobs: w.skipJobs,
		ConcludeJobs: w.concludeJobs, RecreateJobs: w.recreateJobs, RestoreJobs: w.restoreJobs,
		RecordTimes: w.recordTimes, Progress: w.progress, Reclaim: w.reclaim, ReleaseQuota: w.releaseQuota,
		Reopen: w.reopen, RemoveFinalizers: w.removeFinalizers, DeleteWorkloads: w.deleteWorkloads,
		Report: w.report, CreateGrowths: w.createGrowths,
	}
}

// each writes objects one by one. It stops at the first error, and where the manager is to die.
func each[T any](w *stepWriter, all []T, write func(T) error) error {
	return untilDeath(w, all, func(one T) error { return w.attempt(func() error { return write(one) }) })
}

// untilDeath calls a function for objects one by one, like each.
func untilDeath[T any](w *stepWriter, all []T, do func(T) error) error {
	for _, one := range all {
		if w.dies() {
			return errCut
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
		return errors.Join(write(), errConflict)
	}
	return errConflict
}

// eachJob writes Jobs one by one. If one cannot be written, the others still are.
func eachJob(w *stepWriter, jobs []*batchv1.Job, write func(*batchv1.Job) error) error {
	var failed error
	err := untilDeath(w, jobs, func(job *batchv1.Job) error {
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

func (w *stepWriter) createWorkloads(step *stages.Step) error {
	all := slices.Clone(step.CreateWorkloads)
	slices.Reverse(all)
	return each(w, all, w.create)
}

// create writes a quota Workload for the first time, unless its name is taken.
func (w *stepWriter) create(workload *kueue.Workload) error {
	if w.Workloads[cluster.KeyOf(workload)] != nil {
		return nil
	}
	for _, setting := range w.UserJobs[w.snapshot.Key].Settings {
		if w.Concerns(setting.Target, workload) {
			// The fields were validated when the scenario was read.
			_ = setting.Fields.Apply(workload)
		}
	}
	w.PutWorkload(workload)
	return nil
}

func (w *stepWriter) evictWorkloads(step *stages.Step) error {
	return each(w, step.EvictWorkloads, func(e stages.EvictWorkload) error {
		return w.onWorkload(e.Workload, sameVersion, func(now *kueue.Workload) error {
			status := workloadstatus.Evicted(now, e.Eviction, w.Time())
			w.Log("evict %s with %s", cluster.SubjectOf(now), cluster.SubjectOf(e.Cause))
			w.PutWorkload(workloadstatus.Merge(now, &status))
			return nil
		})
	})
}

func (w *stepWriter) changeWorkloads(step *stages.Step) error {
	return each(w, step.ChangeWorkloads, func(c stages.ChangeWorkload) error { return w.changeWorkload(c.Before, c.After) })
}

// changeWorkload writes the changes of a quota Workload. Its pod sets must not have changed otherwise.
func (w *stepWriter) changeWorkload(before, after *kueue.Workload) error {
	need := sameUID
	if !equality.Semantic.DeepEqual(before.Spec.PodSets, after.Spec.PodSets) {
		need = sameVersion
	}
	return w.onWorkload(before, need, func(now *kueue.Workload) error {
		if jobsetstate.GrowthNumber(after) > 0 && cluster.Counts(before.Spec.PodSets) != cluster.Counts(after.Spec.PodSets) {
			w.Log("ask %s pods=%s", cluster.SubjectOf(after), cluster.Counts(after.Spec.PodSets))
		}
		patched, err := patched(before, after, now)
		if err != nil {
			return err
		}
		if !equality.Semantic.DeepEqual(now.Spec, patched.Spec) {
			patched.Generation++
		}
		w.PutWorkload(patched)
		return nil
	})
}

// pause and start write the JobSet, like the functions after them that have one object to write.
func (w *stepWriter) pause(*stages.Step) error {
	return each(w, []bool{true}, func(suspend bool) error {
		js := w.snapshot.JobSet.DeepCopy()
		js.Spec.Suspend = &suspend
		delete(js.Annotations, apis.StartedAnnotation)
		return w.patchJobSet(js)
	})
}

func (w *stepWriter) start(*stages.Step) error {
	return each(w, []bool{false}, func(suspend bool) error {
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

func (w *stepWriter) restoreJobs(step *stages.Step) error {
	return eachJob(w, step.RestoreJobs, func(job *batchv1.Job) error { return w.patchJob(job, childjob.Restored(job), sameUID) })
}

// recordTimes writes into the latest version of the JobSet, which the manager reads if the API server rejects the write into another.
func (w *stepWriter) recordTimes(step *stages.Step) error {
	return each(w, []*stages.Step{step}, func(step *stages.Step) error {
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

func (w *stepWriter) progress(step *stages.Step) error {
	return each(w, step.Progress, func(p stages.ReportProgress) error {
		need := sameUID
		if p.Finished != nil {
			need = sameVersion
		}
		return w.onWorkload(p.Workload, need, func(now *kueue.Workload) error {
			w.writeProgress(p, now)
			return nil
		})
	})
}

func (w *stepWriter) writeProgress(p stages.ReportProgress, now *kueue.Workload) {
	status := workloadstatus.Progress(p.Workload, p.Ready, p.Finished, w.Time())
	after := now.DeepCopy()
	for _, condition := range []string{kueue.WorkloadPodsReady, kueue.WorkloadFinished} {
		apimeta.RemoveStatusCondition(&after.Status.Conditions, condition)
	}
	after.Status.Conditions = append(after.Status.Conditions, status.Conditions...)
	switch {
	case p.Finished == nil:
	case p.HasSucceeded:
		w.Log("finish %s", cluster.SubjectOf(after))
	case quotaworkload.HoldsQuota(now):
		w.Log("stop %s", cluster.SubjectOf(after))
	}
	w.PutWorkload(after)
}

func (w *stepWriter) reclaim(step *stages.Step) error {
	return each(w, step.Reclaim, func(r stages.ReclaimPods) error {
		return w.onWorkload(r.Workload, sameVersion, func(now *kueue.Workload) error {
			after := now.DeepCopy()
			after.Status.ReclaimablePods = r.Pods
			w.PutWorkload(after)
			return nil
		})
	})
}

// releaseQuota decides again on live reads.
func (w *stepWriter) releaseQuota(*stages.Step) error {
	return each(w, stages.Next(w.refresh(w.snapshot)).ReleaseQuota, func(workload *kueue.Workload) error {
		return w.onWorkload(workload, sameVersion, func(now *kueue.Workload) error {
			w.Log("stop %s", cluster.SubjectOf(now))
			w.PutWorkload(w.WithoutQuota(now))
			return nil
		})
	})
}

func (w *stepWriter) reopen(step *stages.Step) error { return each(w, step.Reopen, w.deleteWorkload) }

func (w *stepWriter) deleteWorkload(workload *kueue.Workload) error {
	return w.onWorkload(workload, sameVersion, func(now *kueue.Workload) error {
		w.DeleteWorkload(now)
		return nil
	})
}

func (w *stepWriter) removeFinalizers(step *stages.Step) error {
	return each(w, step.RemoveFinalizers, w.removeFinalizer)
}

func (w *stepWriter) removeFinalizer(workload *kueue.Workload) error {
	if !slices.Contains(workload.Finalizers, kueue.ResourceInUseFinalizerName) {
		return nil
	}
	return w.onWorkload(workload, sameUID, func(now *kueue.Workload) error {
		w.RemoveFinalizer(now)
		return nil
	})
}

func (w *stepWriter) deleteWorkloads(step *stages.Step) error {
	for _, workload := range step.DeleteWorkloads {
		if workload.DeletionTimestamp.IsZero() {
			if err := each(w, []*kueue.Workload{workload}, w.deleteWorkload); err != nil {
				return err
			}
		}
		if err := each(w, []*kueue.Workload{workload}, w.removeFinalizer); err != nil {
			return err
		}
	}
	return nil
}

// report writes the conditions of the JobSet, if they differ from those that the manager has read.
func (w *stepWriter) report(step *stages.Step) error {
	read := w.snapshot.JobSet
	if read == nil || w.IsQuiet || equality.Semantic.DeepEqual(read.Status.Conditions, conditionsAfter(read, step.Conditions)) {
		return nil
	}
	return each(w, []*jobsetapi.JobSet{read}, func(read *jobsetapi.JobSet) error {
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

func (w *stepWriter) createGrowths(step *stages.Step) error {
	return each(w, step.CreateGrowths, func(growth *kueue.Workload) error {
		w.Log("ask %s pods=%s", cluster.SubjectOf(growth), cluster.Counts(growth.Spec.PodSets))
		return w.create(growth)
	})
}
