package queuedjob

import (
	"context"
	"fmt"
	"time"

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
	"github.com/tranche-dev/tranche/lifecycle/quotastep"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// write writes a Step. It stops at the first error: the next reconcile continues from the state reached.
func (r *Reconciler) write(ctx context.Context, s *queuedjob.Snapshot, step *queuedjob.Step) (ctrl.Result, error) {
	part := func(write func(context.Context, *queuedjob.Snapshot, *queuedjob.Step) error) func(*queuedjob.Step) error {
		return func(w *queuedjob.Step) error { return write(ctx, s, w) }
	}
	err := step.Write(&queuedjob.Writer{
		Job: part(r.writeJob), Ungate: part(r.ungate), EndPods: part(r.endPods), DeleteExpired: part(r.deleteExpired), Report: part(r.report),
		Quota: func(writes []quotastep.Write) error {
			return r.writer.Write(ctx, writes, apply.Outcome{
				Done:   func(write *quotastep.Write, written *kueue.Workload) { r.done(s, write, written) },
				Failed: func(write *quotastep.Write, err error) error { return r.failed(ctx, s, step, write, err) },
			})
		},
	})
	return apply.Result(&step.Step, err)
}

// done counts and reports a write to a quota Workload.
func (r *Reconciler) done(s *queuedjob.Snapshot, write *quotastep.Write, written *kueue.Workload) {
	var event events.Event
	switch write.Kind {
	case quotastep.Create:
		if written.Labels[apis.GrowthLabel] == "" {
			r.config.Metrics.WorkloadsCreated("Job", s.Job, time.Now())
			return
		}
		event = events.JobGrows(written.Spec.PodSets[0].Count)
	case quotastep.Admit:
		event = events.JobAdopted(string(write.Admission.ClusterQueue))
	case quotastep.Progress:
		if write.Finished == nil {
			return
		}
		event = events.JobFinished(write.Finished.Message)
	case quotastep.Release:
		event = events.JobSuspended()
		if quotaworkload.IsTrue(write.Workload, kueue.WorkloadEvicted) {
			event = events.JobRequeued(workloadstatus.EvictionOf(write.Workload).Message)
		}
	case quotastep.Evict, quotastep.Change, quotastep.Reclaim, quotastep.Reopen, quotastep.RemoveFinalizer, quotastep.Delete, quotastep.Grow:
		return
	}
	event.EmitAbout(r.config.Recorder, s.Job, written)
}

// failed explains to the user of the Job why it has no quota Workload.
func (r *Reconciler) failed(ctx context.Context, s *queuedjob.Snapshot, w *queuedjob.Step, write *quotastep.Write, err error) error {
	switch {
	case write.Kind != quotastep.Create:
	case apierrors.IsAlreadyExists(err):
		return r.explainExisting(ctx, s, w, write.Workload)
	case apply.IsRefusal(err):
		w.Refusal = fmt.Sprintf("the Job has no quota Workload, because the API server rejects it; fix the Job and submit it again: %v", err)
		w.RequeueAfter = workloadstatus.RecheckAfter
		return nil
	}
	return err
}

// explainExisting reports a Workload that has the name of the quota Workload and is not of the Job. The Workload that Kueue has made for the Job
// becomes its quota Workload. Otherwise the cache does not show it yet.
func (r *Reconciler) explainExisting(ctx context.Context, s *queuedjob.Snapshot, w *queuedjob.Step, created *kueue.Workload) error {
	var existing kueue.Workload
	if err := r.reader.Get(ctx, client.ObjectKeyFromObject(created), &existing); err != nil {
		return fmt.Errorf("read quota Workload %s, which exists: %w", client.ObjectKeyFromObject(created), err)
	}
	if taken := queuedjob.TakenOver(s.Job, &existing); taken != nil {
		return r.writer.Change(ctx, &existing, taken)
	}
	if w.Refusal = queuedjob.Taken(s.Job, &existing); w.Refusal != "" {
		w.RequeueAfter = workloadstatus.RecheckAfter
	}
	return nil
}

// writeJob makes the write to the Job, and reports it.
func (r *Reconciler) writeJob(ctx context.Context, _ *queuedjob.Snapshot, w *queuedjob.Step) error {
	before, change := w.Job.Before, patch.IfSameUID(w.Job.Before)
	if w.Job.IsLocked() {
		change = patch.Locked(before, before.ResourceVersion)
	}
	write := r.config.Client.Patch
	if w.Job.IsOfStatus() {
		write = func(ctx context.Context, job client.Object, change client.Patch, _ ...client.PatchOption) error {
			return r.config.Client.Status().Patch(ctx, job, change)
		}
	}
	err := write(ctx, w.Job.After, change)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case apply.IsRefusal(err) && w.Job.Kind == queuedjob.Release:
		w.Complain("the Job stays held: the API server rejects its release; delete the Job and submit it again: %v", err)
	case apply.IsRefusal(err) && w.Job.Kind == queuedjob.Resize:
		w.Complain("the Job keeps its size: the API server rejects the other; change spec.parallelism: %v", err)
	case err != nil:
		return fmt.Errorf("%s Job %s: %w", w.Job.Kind, client.ObjectKeyFromObject(before), err)
	default:
		r.reportJob(w.Job)
	}
	return nil
}

func (r *Reconciler) reportJob(w *queuedjob.JobWrite) {
	from, to := ptr.Deref(w.Before.Spec.Parallelism, 1), ptr.Deref(w.After.Spec.Parallelism, 1)
	switch {
	case w.Kind == queuedjob.Hold:
		events.JobStopped(w.Why).Emit(r.config.Recorder, w.Before)
	case w.Kind == queuedjob.Release:
		r.config.Metrics.Released(1)
		events.JobStarted(string(w.Workload.Status.Admission.ClusterQueue)).EmitAbout(r.config.Recorder, w.Before, w.Workload)
	case w.Kind == queuedjob.Resize && from != to:
		events.JobResized(to).Emit(r.config.Recorder, w.Before)
	}
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

// deleteExpired deletes a Job, unless its quota Workload was activated again according to the API server.
func (r *Reconciler) deleteExpired(ctx context.Context, s *queuedjob.Snapshot, w *queuedjob.Step) error {
	if is, err := apply.IsStillDeactivated(ctx, r.reader, w.DeleteExpired); err != nil || !is {
		return err
	}
	err := r.config.Client.Delete(ctx, s.Job.DeepCopy(), client.Preconditions{UID: &s.Job.UID}, client.PropagationPolicy(metav1.DeletePropagationBackground))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete deactivated Job %s: %w", s.Key, err)
	}
	if err == nil {
		events.JobDeleted(w.DeleteExpired.Name, s.Retention.AfterDeactivatedByKueue.Duration).Emit(r.config.Recorder, s.Job)
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
	if w.AwaitsPods {
		events.JobAwaitsPods().Emit(r.config.Recorder, s.Job)
	}
	if w.PriorityKept != "" {
		events.PriorityKept(w.PriorityKept).Emit(r.config.Recorder, s.Job)
	}
	return nil
}
