package jobset

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/controllers/events"
	"github.com/tranche-dev/tranche/controllers/internal/patch"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// lookAgain is when a JobSet with complaints is reconciled again, in case a user has fixed something that no watch reports.
const lookAgain = time.Minute

// write executes the actions in the order that the package comment gives. It stops at the first error: later steps may rely on earlier
// ones, and the next reconcile continues from the state reached. A failed step on which no other step relies does not stop it.
func (r *Reconciler) write(ctx context.Context, s *snapshot, w *actions) (ctrl.Result, error) {
	steps := []func(context.Context, *snapshot, *actions) error{
		r.create, r.evict, r.change, r.setScheduler, r.pause, r.start, r.deleteGangs, r.ensureGangs, r.noteFinished, r.release, r.grow, r.hold, r.skip, r.reportStopped,
		r.end, r.conclude, r.recreateJobs, r.restore,
		r.note, r.progress, r.reclaim,
		r.releaseQuota, r.remove, r.removeFinalizers, r.drop, r.report, r.createGrowths, r.deleteExpired,
	}
	for _, step := range steps {
		if err := step(ctx, s, w); err != nil {
			if refused, ok := errors.AsType[*refusedWorkload](err); ok {
				return r.tellRefused(ctx, s, refused)
			}
			return retry(errors.Join(err, w.failed))
		}
	}
	if w.failed != nil {
		return retry(w.failed)
	}
	if w.awaitsEngine {
		return ctrl.Result{Requeue: true}, nil //nolint:staticcheck // no watch reports when the engine has observed it
	}
	if len(w.complaints) > 0 {
		w.lookAfter(lookAgain)
	}
	return ctrl.Result{RequeueAfter: w.requeueAfter}, nil
}

func retry(err error) (ctrl.Result, error) {
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		// Nothing new can be created there, and the namespace controller deletes the JobSet.
		return ctrl.Result{}, nil
	}
	if apierrors.IsConflict(err) {
		return ctrl.Result{Requeue: true}, nil //nolint:staticcheck // a conflict is retried with the back-off of the queue
	}
	return ctrl.Result{}, err
}

// A refusedWorkload is a quota Workload that the API server will always reject for its JobSet.
type refusedWorkload struct{ cause error }

func (e *refusedWorkload) Error() string { return e.cause.Error() }

func (e *refusedWorkload) Unwrap() error { return e.cause }

// create creates the last stage first: if one is rejected, no stage that is open from the start holds quota without use.
func (r *Reconciler) create(ctx context.Context, _ *snapshot, w *actions) error {
	for _, workload := range slices.Backward(w.create) {
		err := r.config.Client.Create(ctx, workload)
		if apierrors.IsInvalid(err) {
			return &refusedWorkload{fmt.Errorf("stage %q gets no quota Workload, mend the JobSet and submit it again: %w", workload.Labels[apis.StageLabel], err)}
		}
		if client.IgnoreAlreadyExists(err) != nil {
			return fmt.Errorf("create quota Workload %s: %w", client.ObjectKeyFromObject(workload), err)
		}
	}
	return nil
}

func (r *Reconciler) change(ctx context.Context, s *snapshot, w *actions) error {
	for _, c := range w.change {
		change := patch.IfSameUID(c.before)
		if !equality.Semantic.DeepEqual(c.before.Spec.PodSets, c.after.Spec.PodSets) {
			// It may have been admitted in the meantime, for the pods that it asked for before.
			change = patch.Locked(c.before, c.before.ResourceVersion)
		}
		if err := r.config.Client.Patch(ctx, c.after, change); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("change quota Workload %s: %w", client.ObjectKeyFromObject(c.before), err)
		}
		if c.opened {
			events.StageOpened(c.after.Labels[apis.StageLabel]).EmitAbout(r.config.Recorder, s.jobSet, c.after)
		}
	}
	return nil
}

// start resumes the JobSet and records that from now on a suspension is requested by the user. For a JobSet without a queue, the Event of
// the pause has announced that it is resumed.
func (r *Reconciler) start(ctx context.Context, s *snapshot, w *actions) error {
	if !w.start {
		return nil
	}
	after := s.jobSet.DeepCopy()
	after.Spec.Suspend = new(false)
	if s.isUnqueued {
		delete(after.Annotations, apis.PausedAnnotation)
	} else {
		metav1.SetMetaDataAnnotation(&after.ObjectMeta, apis.StartedAnnotation, "true")
	}
	if err := r.patchIfSame(ctx, s.jobSet, after); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("resume JobSet %s: %w", s.key, err)
	}
	if s.isUnqueued {
		return nil
	}
	events.JobSetStarted().Emit(r.config.Recorder, s.jobSet)
	return nil
}

// release lets the Jobs of each admitted stage start, many at a time. If one Job cannot be released, the others still are.
func (r *Reconciler) release(ctx context.Context, s *snapshot, w *actions) error {
	held := map[client.ObjectKey]*batchv1.Job{}
	for _, job := range s.mine.jobs {
		held[client.ObjectKeyFromObject(job)] = job
	}
	var all []error
	for _, rel := range w.release {
		err := r.each(ctx, len(rel.jobs), func(i int) error {
			job := rel.jobs[i]
			key := client.ObjectKeyFromObject(job)
			if err := r.patchIfSame(ctx, held[key], job); client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("release Job %s: %w", key, err)
			}
			return nil
		})
		if err != nil {
			all = append(all, err)
			continue
		}
		r.config.Metrics.Released(len(rel.jobs))
		if s.isUnqueued {
			events.StageReleasedUnqueued(rel.stage, len(rel.jobs)).EmitAbout(r.config.Recorder, s.jobSet, rel.jobs[0])
		} else {
			events.StageReleased(rel.stage, rel.queue, len(rel.jobs)).EmitAbout(r.config.Recorder, s.jobSet, rel.workload)
		}
	}
	return errors.Join(all...)
}

// each runs f for 0 to n-1, a bounded number at a time, and joins the errors.
func (r *Reconciler) each(ctx context.Context, n int, f func(int) error) error {
	var mu sync.Mutex
	var all []error
	workqueue.ParallelizeUntil(ctx, r.config.Releases, n, func(i int) {
		if err := f(i); err != nil {
			mu.Lock()
			defer mu.Unlock()
			all = append(all, err)
		}
	})
	return errors.Join(all...)
}

func (r *Reconciler) hold(ctx context.Context, _ *snapshot, w *actions) error {
	return r.suspend(ctx, w.hold, true)
}

func (r *Reconciler) conclude(ctx context.Context, _ *snapshot, w *actions) error {
	return r.suspend(ctx, w.conclude, false)
}

// suspend sets spec.suspend of Jobs to the given value.
func (r *Reconciler) suspend(ctx context.Context, jobs []*batchv1.Job, suspend bool) error {
	return r.each(ctx, len(jobs), func(i int) error {
		after := jobs[i].DeepCopy()
		after.Spec.Suspend = &suspend
		if err := r.config.Client.Patch(ctx, after, patch.IfSameUID(jobs[i])); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("set spec.suspend of Job %s to %t: %w", client.ObjectKeyFromObject(after), suspend, err)
		}
		return nil
	})
}

func (r *Reconciler) progress(ctx context.Context, s *snapshot, w *actions) error {
	for _, p := range w.progress {
		// A stage finishes once. If the cache does not show yet that it has, the API server rejects the write and no Event is emitted
		// twice.
		version := ""
		if p.finished != nil {
			version = p.workload.ResourceVersion
		}
		status := workloadstatus.Progress(p.workload, p.ready, p.finished, time.Now())
		written, err := r.apply(ctx, p.workload, status, apis.FieldManager, version)
		if err != nil {
			return err
		}
		switch {
		case written == nil:
		case p.finished != nil:
			events.StageFinished(p.stage, p.finished.Message).EmitAbout(r.config.Recorder, s.jobSet, p.workload)
		case p.ready.Status == metav1.ConditionTrue:
			events.StageReady(p.stage).EmitAbout(r.config.Recorder, s.jobSet, p.workload)
		}
	}
	return nil
}

// apply writes a part of the status of a quota Workload if the Workload is unchanged since resourceVersion, unless that is empty. It does
// nothing if the Workload has disappeared.
func (r *Reconciler) apply(ctx context.Context, workload *kueue.Workload, status kueue.WorkloadStatus, owner client.FieldOwner, resourceVersion string) (*kueue.Workload, error) {
	written, err := patch.ApplyStatus(ctx, r.config.Client, workload, patch.Status{Part: r.config.Runner.Shown(status), Owner: owner, ResourceVersion: resourceVersion})
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // nothing was written, and that is all right
	}
	return written, err
}

func (r *Reconciler) remove(ctx context.Context, s *snapshot, w *actions) error {
	for _, workload := range w.remove {
		if err := r.delete(ctx, workload); err != nil {
			return err
		}
		events.StageReopened(workload.Labels[apis.StageLabel]).EmitAbout(r.config.Recorder, s.jobSet, workload)
	}
	return nil
}

// delete deletes a quota Workload as it was read. A Workload that was admitted in the meantime is reconciled again.
func (r *Reconciler) delete(ctx context.Context, workload *kueue.Workload) error {
	err := r.config.Client.Delete(ctx, workload, client.Preconditions{UID: &workload.UID, ResourceVersion: &workload.ResourceVersion})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete quota Workload %s: %w", client.ObjectKeyFromObject(workload), err)
	}
	return nil
}

func (r *Reconciler) removeFinalizers(ctx context.Context, _ *snapshot, w *actions) error {
	for _, workload := range w.removeFinalizers {
		if err := patch.RemoveFinalizer(ctx, r.config.Client, workload); err != nil {
			return err
		}
	}
	return nil
}

func (r *Reconciler) drop(ctx context.Context, _ *snapshot, w *actions) error {
	for _, workload := range w.drop {
		if workload.DeletionTimestamp.IsZero() {
			if err := r.delete(ctx, workload); err != nil {
				return err
			}
		}
		if err := patch.RemoveFinalizer(ctx, r.config.Client, workload); err != nil {
			return err
		}
	}
	return nil
}
