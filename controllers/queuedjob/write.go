package queuedjob

import (
	"context"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/controllers/events"
	"github.com/tranche-dev/tranche/controllers/internal/apply"
	"github.com/tranche-dev/tranche/controllers/internal/patch"
	"github.com/tranche-dev/tranche/lifecycle/queuedjob"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// write writes a Step. It stops at the first error: the next reconcile continues from the state reached.
func (r *Reconciler) write(ctx context.Context, s *queuedjob.Snapshot, step *queuedjob.Step) (ctrl.Result, error) {
	part := func(write func(context.Context, *queuedjob.Snapshot, *queuedjob.Step) error) func(*queuedjob.Step) error {
		return func(w *queuedjob.Step) error { return write(ctx, s, w) }
	}
	err := step.Write(&queuedjob.Writer{
		Create: part(r.create), Admit: part(r.admit), Adopt: part(r.adopt), Hold: part(r.hold), ClearSuspended: part(r.clearSuspended), ClearStart: part(r.clearStart), Restore: part(r.restore), Release: part(r.release), Resize: part(r.resize),
		Ungate: part(r.ungate), EndPods: part(r.endPods), Progress: part(r.progress), ReleaseQuota: part(r.releaseQuota), DeleteExpired: part(r.deleteExpired), Report: part(r.report),
		Change:           func(w *queuedjob.Step) error { return r.writer.Change(ctx, w.Change.Before, w.Change.After) },
		Conclude:         func(w *queuedjob.Step) error { return r.suspend(ctx, w.Conclude, new(false)) },
		Reclaim:          func(w *queuedjob.Step) error { return r.writer.Reclaim(ctx, w.Reclaim.Workload, w.Reclaim.Pods) },
		Reopen:           func(w *queuedjob.Step) error { return r.writer.Delete(ctx, w.Reopen) },
		RemoveFinalizers: func(w *queuedjob.Step) error { return r.writer.RemoveFinalizers(ctx, w.RemoveFinalizers) },
		DeleteWorkloads:  func(w *queuedjob.Step) error { return r.writer.DeleteAll(ctx, w.DeleteWorkloads) },
	})
	if err != nil {
		return apply.Failed(err)
	}
	if step.AwaitsEngine {
		return ctrl.Result{Requeue: true}, nil //nolint:staticcheck // no watch reports when the engine has observed it
	}
	return ctrl.Result{RequeueAfter: step.RequeueAfter}, nil
}

func (r *Reconciler) create(ctx context.Context, s *queuedjob.Snapshot, w *queuedjob.Step) error {
	err := r.writer.Create(ctx, w.Create)
	switch {
	case err == nil && w.Create.Labels[apis.GrowthLabel] != "":
		events.JobGrows(w.Create.Spec.PodSets[0].Count).EmitAbout(r.config.Recorder, s.Job, w.Create)
	case err == nil:
		r.config.Metrics.WorkloadsCreated("Job", s.Job, time.Now())
	case apierrors.IsAlreadyExists(err):
		return r.explainExisting(ctx, s, w)
	case apply.IsRefusal(err):
		w.Refusal = fmt.Sprintf("the Job has no quota Workload, because the API server rejects it; fix the Job and submit it again: %v", err)
		w.RequeueAfter = workloadstatus.RecheckAfter
		return nil
	}
	return err
}

// admit admits the quota Workload of a Job that ran before Tranche was installed. The quota Workload must not have changed.
func (r *Reconciler) admit(ctx context.Context, s *queuedjob.Snapshot, w *queuedjob.Step) error {
	written, err := r.writer.Admission(ctx, w.Admit.Workload, workloadstatus.Admitted(w.Admit.Workload, w.Admit.Admission, s.Now))
	if written != nil {
		events.JobAdopted(string(w.Admit.Admission.ClusterQueue)).EmitAbout(r.config.Recorder, s.Job, written)
	}
	return err
}

// adopt makes a Job a queued Job. The Job must not have changed: it may have been resumed, or resized.
func (r *Reconciler) adopt(ctx context.Context, s *queuedjob.Snapshot, w *queuedjob.Step) error {
	err := r.config.Client.Patch(ctx, w.Adopt, patch.Locked(s.Job, s.Job.ResourceVersion))
	return ignoreNotFound(err, "make Job %s a queued Job", s.Key)
}

// explainExisting reports a Workload that has the name of the quota Workload and is not of the Job. The Workload that Kueue has made for the Job
// becomes its quota Workload. Otherwise the cache does not show it yet.
func (r *Reconciler) explainExisting(ctx context.Context, s *queuedjob.Snapshot, w *queuedjob.Step) error {
	var existing kueue.Workload
	if err := r.reader.Get(ctx, client.ObjectKeyFromObject(w.Create), &existing); err != nil {
		return fmt.Errorf("read quota Workload %s, which exists: %w", client.ObjectKeyFromObject(w.Create), err)
	}
	if taken := queuedjob.TakenOver(s.Job, &existing); taken != nil {
		return r.writer.Change(ctx, &existing, taken)
	}
	if w.Refusal = queuedjob.Taken(s.Job, &existing); w.Refusal != "" {
		w.RequeueAfter = workloadstatus.RecheckAfter
	}
	return nil
}

// hold suspends a Job that may no longer run.
func (r *Reconciler) hold(ctx context.Context, _ *queuedjob.Snapshot, w *queuedjob.Step) error {
	if err := r.suspend(ctx, w.Hold, new(true)); err != nil {
		return err
	}
	events.JobStopped(w.Why).Emit(r.config.Recorder, w.Hold)
	return nil
}

// suspend sets spec.suspend of a Job to the given value.
func (r *Reconciler) suspend(ctx context.Context, job *batchv1.Job, suspend *bool) error {
	after := job.DeepCopy()
	after.Spec.Suspend = suspend
	err := r.config.Client.Patch(ctx, after, patch.IfSameUID(job))
	return ignoreNotFound(err, "set spec.suspend of Job %s to %t", client.ObjectKeyFromObject(job), *suspend)
}

// clearSuspended removes the condition Suspended of a held Job, and the annotation that demands this, in one write. The Job must not have changed.
func (r *Reconciler) clearSuspended(ctx context.Context, _ *queuedjob.Snapshot, w *queuedjob.Step) error {
	after := queuedjob.Unconfirmed(w.ClearSuspended)
	err := r.config.Client.Status().Patch(ctx, after, patch.Locked(w.ClearSuspended, w.ClearSuspended.ResourceVersion))
	return ignoreNotFound(err, "remove the condition Suspended of Job %s", client.ObjectKeyFromObject(after))
}

// clearStart removes the start time of a held Job, without which the API server accepts changes of its pod template. The Job must not have changed.
func (r *Reconciler) clearStart(ctx context.Context, _ *queuedjob.Snapshot, w *queuedjob.Step) error {
	after := w.ClearStart.DeepCopy()
	after.Status.StartTime = nil
	err := r.config.Client.Status().Patch(ctx, after, patch.Locked(w.ClearStart, w.ClearStart.ResourceVersion))
	return ignoreNotFound(err, "remove status.startTime of Job %s", client.ObjectKeyFromObject(after))
}

// restore removes the fields that an admission has added to a held Job. The Job must not have changed: it would get its own size although it was
// released again with fewer pods.
func (r *Reconciler) restore(ctx context.Context, _ *queuedjob.Snapshot, w *queuedjob.Step) error {
	err := r.config.Client.Patch(ctx, queuedjob.Restored(w.Restore), patch.Locked(w.Restore, w.Restore.ResourceVersion))
	return ignoreNotFound(err, "remove the additions of the admission from Job %s", client.ObjectKeyFromObject(w.Restore))
}

// release lets a Job start. The Job must not have changed since it was read: it may have grown.
func (r *Reconciler) release(ctx context.Context, _ *queuedjob.Snapshot, w *queuedjob.Step) error {
	before, after := w.Release.Before, w.Release.After
	err := r.config.Client.Patch(ctx, after, patch.Locked(before, before.ResourceVersion))
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case apply.IsRefusal(err):
		w.Complaint = fmt.Sprintf("the Job stays held: the API server rejects its release; delete the Job and submit it again: %v", err)
		w.RequeueAfter = workloadstatus.RecheckAfter
		return nil
	case err != nil:
		return fmt.Errorf("release Job %s: %w", client.ObjectKeyFromObject(after), err)
	}
	r.config.Metrics.Released(1)
	events.JobStarted(string(w.Release.Workload.Status.Admission.ClusterQueue)).EmitAbout(r.config.Recorder, before, w.Release.Workload)
	return nil
}

// resize changes the size of an elastic Job that runs. The Job must not have changed: its user may want another size.
func (r *Reconciler) resize(ctx context.Context, _ *queuedjob.Snapshot, w *queuedjob.Step) error {
	before, after := w.Resize.Before, w.Resize.After
	err := r.config.Client.Patch(ctx, after, patch.Locked(before, before.ResourceVersion))
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case apply.IsRefusal(err):
		w.Complaint = fmt.Sprintf("the Job keeps its size: the API server rejects the other; change spec.parallelism: %v", err)
		w.RequeueAfter = workloadstatus.RecheckAfter
		return nil
	case err != nil:
		return fmt.Errorf("resize Job %s: %w", client.ObjectKeyFromObject(after), err)
	}
	if from, to := ptr.Deref(before.Spec.Parallelism, 1), ptr.Deref(after.Spec.Parallelism, 1); from != to {
		events.JobResized(to).Emit(r.config.Recorder, before)
	}
	return nil
}

// ungate removes Kueue's gate for elastic Jobs from pods of a Job that runs.
func (r *Reconciler) ungate(ctx context.Context, s *queuedjob.Snapshot, w *queuedjob.Step) error {
	for _, pod := range w.Ungate {
		err := r.config.Client.Patch(ctx, queuedjob.Ungated(pod), patch.Locked(pod, pod.ResourceVersion))
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("ungate pod %s of Job %s: %w", client.ObjectKeyFromObject(pod), s.Key, err)
		}
	}
	return nil
}

// endPods deletes the pods of a Job that is being deleted and has finalizers: the Job controller does not.
func (r *Reconciler) endPods(ctx context.Context, s *queuedjob.Snapshot, w *queuedjob.Step) error {
	for _, pod := range w.EndPods {
		if !pod.DeletionTimestamp.IsZero() {
			continue
		}
		err := r.config.Client.Delete(ctx, pod, client.Preconditions{UID: &pod.UID})
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete pod %s of a deleted Job: %w", client.ObjectKeyFromObject(pod), err)
		}
		if err == nil {
			events.PodEnded(pod.Name, fmt.Sprintf("its Job %q is being deleted, and finalizers keep the Job", s.Key.Name)).Emit(r.config.Recorder, s.Leaving)
		}
	}
	return nil
}

func (r *Reconciler) progress(ctx context.Context, s *queuedjob.Snapshot, w *queuedjob.Step) error {
	written, err := r.writer.Progress(ctx, w.Progress.Workload, w.Progress.Ready, w.Progress.Finished)
	if written != nil && w.Progress.Finished != nil {
		events.JobFinished(w.Progress.Finished.Message).EmitAbout(r.config.Recorder, s.Job, written)
	}
	return err
}

// releaseQuota releases the quota of a suspended or evicted Job, and notifies the engine at once.
func (r *Reconciler) releaseQuota(ctx context.Context, s *queuedjob.Snapshot, w *queuedjob.Step) error {
	workload := w.ReleaseQuota
	status, event := workloadstatus.Suspended(workload, time.Now()), events.JobSuspended()
	if quotaworkload.IsTrue(workload, kueue.WorkloadEvicted) {
		status, event = workloadstatus.QuotaReleased(workload, time.Now()), events.JobRequeued(workloadstatus.EvictionOf(workload).Message)
	}
	written, err := r.writer.Admission(ctx, workload, status)
	if written != nil {
		event.EmitAbout(r.config.Recorder, s.Job, written)
	}
	return err
}

// deleteExpired deletes a Job, unless its quota Workload was activated again according to the API server.
func (r *Reconciler) deleteExpired(ctx context.Context, s *queuedjob.Snapshot, w *queuedjob.Step) error {
	var live kueue.Workload
	if err := r.reader.Get(ctx, client.ObjectKeyFromObject(w.DeleteExpired), &live); err != nil {
		return client.IgnoreNotFound(err)
	}
	if at := workloadstatus.DeactivatedAt(&live); live.UID != w.DeleteExpired.UID || at == nil || !at.Equal(*workloadstatus.DeactivatedAt(w.DeleteExpired)) {
		return nil
	}
	err := r.config.Client.Delete(ctx, s.Job.DeepCopy(), client.Preconditions{UID: &s.Job.UID}, client.PropagationPolicy(metav1.DeletePropagationBackground))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete deactivated Job %s: %w", s.Key, err)
	}
	if err == nil {
		events.JobDeleted(live.Name, s.Retention.AfterDeactivatedByKueue.Duration).Emit(r.config.Recorder, s.Job)
	}
	return nil
}

// report tells the user of the Job what has to be changed.
func (r *Reconciler) report(_ context.Context, s *queuedjob.Snapshot, w *queuedjob.Step) error {
	if w.Refusal != "" {
		events.Misconfigured(w.Refusal).Emit(r.config.Recorder, s.Job)
	}
	if w.Complaint != "" {
		events.JobRefused(w.Complaint).Emit(r.config.Recorder, s.Job)
	}
	if w.PriorityKept != "" {
		events.PriorityKept(w.PriorityKept).Emit(r.config.Recorder, s.Job)
	}
	return nil
}

// ignoreNotFound says what was attempted when an object could not be written. An object that has disappeared is no error.
func ignoreNotFound(err error, format string, args ...any) error {
	if client.IgnoreNotFound(err) == nil {
		return nil
	}
	return fmt.Errorf(format+": %w", append(args, err)...)
}
