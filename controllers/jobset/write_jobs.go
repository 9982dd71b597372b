package jobset

import (
	"context"
	"errors"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/controllers/engine"
	"github.com/tranche-dev/tranche/controllers/events"
	"github.com/tranche-dev/tranche/controllers/internal/apply"
	"github.com/tranche-dev/tranche/controllers/internal/patch"
	"github.com/tranche-dev/tranche/lifecycle/childjob"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
	"github.com/tranche-dev/tranche/lifecycle/stages"
)

// releaseJobs lets the Jobs of each admitted stage start, many at a time. If one Job cannot be released, the others still are, and
// the stages that have finished still release their quota.
func (r *Reconciler) releaseJobs(ctx context.Context, s *jobsetstate.Snapshot, w *stages.Step) error {
	held := map[client.ObjectKey]*batchv1.Job{}
	for _, job := range s.Owned.Jobs {
		held[client.ObjectKeyFromObject(job)] = job
	}
	var all []error
	for _, rel := range w.ReleaseJobs {
		if s.OtherEngine {
			isAdmitted, err := r.confirm(ctx, &rel)
			if err != nil {
				all = append(all, err)
			}
			if !isAdmitted {
				continue // a watch reports the change
			}
		}
		err := r.writer.Each(ctx, len(rel.Jobs), func(i int) error {
			job := rel.Jobs[i]
			key := client.ObjectKeyFromObject(job)
			return apply.IgnoreNotFound(r.patchIfSame(ctx, held[key], job), "release Job %s", key)
		})
		if err != nil {
			all = append(all, err)
			continue
		}
		r.config.Metrics.Released(len(rel.Jobs))
		if s.IsUnqueued {
			events.StageReleasedUnqueued(rel.Stage, len(rel.Jobs)).EmitAbout(r.config.Recorder, s.JobSet, rel.Jobs[0])
		} else {
			events.StageReleased(rel.Stage, rel.ClusterQueue, engine.Usage(rel.Workload.Status.Admission), len(rel.Jobs)).EmitAbout(r.config.Recorder, s.JobSet, rel.Workload)
		}
	}
	return stages.Independent(errors.Join(all...))
}

// resizeJobs makes running Jobs larger or smaller.
func (r *Reconciler) resizeJobs(ctx context.Context, s *jobsetstate.Snapshot, w *stages.Step) error {
	for _, g := range w.ResizeJobs {
		err := r.writer.Each(ctx, len(g.After), func(i int) error {
			err := r.patchIfSame(ctx, g.Before[i], g.After[i])
			return apply.IgnoreNotFound(err, "change the number of pods of Job %s", client.ObjectKeyFromObject(g.After[i]))
		})
		if err != nil {
			return err
		}
		events.StageResized(g.Stage, len(g.After), ptr.Deref(g.After[0].Spec.Parallelism, 0)).Emit(r.config.Recorder, s.JobSet)
	}
	return nil
}

func (r *Reconciler) holdJobs(ctx context.Context, s *jobsetstate.Snapshot, w *stages.Step) error {
	if len(w.Unpaid) > 0 {
		// Whether they run without quota is decided again on live reads.
		live, err := r.refresh(ctx, s)
		if err != nil {
			return err
		}
		again := stages.Next(live)
		w.HoldJobs, w.Unpaid, w.Stopped = again.HoldJobs, again.Unpaid, again.Stopped
	}
	if err := r.suspend(ctx, w.HoldJobs, true); err != nil {
		return err
	}
	for _, stage := range w.Unpaid {
		events.StageUnpaid(stage).Emit(r.config.Recorder, s.JobSet)
	}
	if w.Stopped > 0 {
		events.JobSetStopped(w.Stopped).Emit(r.config.Recorder, s.Leaving)
	}
	return nil
}

// suspend sets spec.suspend of Jobs to the given value.
func (r *Reconciler) suspend(ctx context.Context, jobs []*batchv1.Job, suspend bool) error {
	return r.writer.Each(ctx, len(jobs), func(i int) error {
		after := jobs[i].DeepCopy()
		after.Spec.Suspend = &suspend
		err := r.config.Client.Patch(ctx, after, patch.IfSameUID(jobs[i]))
		return apply.IgnoreNotFound(err, "set spec.suspend of Job %s to %t", client.ObjectKeyFromObject(after), suspend)
	})
}

// skipJobs marks held Jobs as succeeded, and releases them so that they can end: the Job controller creates no pods for a Job whose success is
// decided, and does not complete a Job without a start time.
func (r *Reconciler) skipJobs(ctx context.Context, s *jobsetstate.Snapshot, w *stages.Step) error {
	return r.writer.Each(ctx, len(w.SkipJobs), func(i int) error {
		job, key := w.SkipJobs[i], client.ObjectKeyFromObject(w.SkipJobs[i])
		marked := job.DeepCopy()
		now := metav1.Now()
		marked.Status.Conditions = append(marked.Status.Conditions, batchv1.JobCondition{
			Type: batchv1.JobSuccessCriteriaMet, Status: corev1.ConditionTrue, Reason: batchv1.JobReasonCompletionsReached,
			Message:       "A Job of this name has succeeded in this attempt of the JobSet, and was deleted: this one ends without running",
			LastProbeTime: now, LastTransitionTime: now,
		})
		// The API server rejects the write if the Job has changed since: it may have been released.
		if err := r.config.Client.Status().Patch(ctx, marked, patch.Locked(job, job.ResourceVersion)); err != nil {
			return apply.IgnoreNotFound(err, "mark Job %s as succeeded", key)
		}
		released := marked.DeepCopy()
		released.Spec.Suspend = new(false)
		if err := r.config.Client.Patch(ctx, released, patch.IfSameUID(marked)); err != nil {
			return apply.IgnoreNotFound(err, "unsuspend Job %s, which has succeeded", key)
		}
		events.JobSkipped(job.Name).Emit(r.config.Recorder, s.JobSet)
		return nil
	})
}

// recreateJobs deletes Jobs without running pods, so that the JobSet controller recreates them.
func (r *Reconciler) recreateJobs(ctx context.Context, _ *jobsetstate.Snapshot, w *stages.Step) error {
	return r.writer.Each(ctx, len(w.RecreateJobs), func(i int) error {
		job := w.RecreateJobs[i]
		err := r.config.Client.Delete(ctx, job, client.Preconditions{UID: &job.UID}, client.PropagationPolicy("Background"))
		return apply.IgnoreNotFound(err, "delete Job %s, which has to start from its beginning", client.ObjectKeyFromObject(job))
	})
}

// restoreJobs removes the fields that an admission has added to held Jobs.
func (r *Reconciler) restoreJobs(ctx context.Context, _ *jobsetstate.Snapshot, w *stages.Step) error {
	return r.writer.Each(ctx, len(w.RestoreJobs), func(i int) error {
		job := w.RestoreJobs[i]
		err := r.config.Client.Patch(ctx, childjob.Restored(job), patch.IfSameUID(job))
		return apply.IgnoreNotFound(err, "remove the additions of the admission from Job %s", client.ObjectKeyFromObject(job))
	})
}

// endPods deletes pods that no Job ends.
func (r *Reconciler) endPods(ctx context.Context, s *jobsetstate.Snapshot, w *stages.Step) error {
	return r.writer.Each(ctx, len(w.EndPods), func(i int) error {
		pod := w.EndPods[i].Pod
		err := r.config.Client.Delete(ctx, pod, client.Preconditions{UID: &pod.UID})
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete pod %s, which no Job ends: %w", client.ObjectKeyFromObject(pod), err)
		}
		if err == nil {
			events.PodEnded(pod.Name, w.EndPods[i].Reason).Emit(r.config.Recorder, subjectOr(s, pod))
		}
		return nil
	})
}

// subjectOr returns the JobSet, even if it is being deleted, or else another object.
func subjectOr(s *jobsetstate.Snapshot, object client.Object) client.Object {
	switch {
	case s.JobSet != nil:
		return s.JobSet
	case s.Leaving != nil:
		return s.Leaving
	}
	return object
}
