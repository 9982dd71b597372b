package jobset

import (
	"context"
	"errors"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/controllers/internal/patch"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
	"github.com/tranche-dev/tranche/lifecycle/stages"
)

// write writes a Step. It stops at the first error: later writes may rely on earlier ones, and the next reconcile continues from the state
// reached. A failed write on which no other write relies does not stop it.
func (r *Reconciler) write(ctx context.Context, s *jobsetstate.Snapshot, w *stages.Step) (ctrl.Result, error) {
	err := w.Write(r.writer(ctx, s))
	if refused, ok := errors.AsType[*refusedWorkload](err); ok {
		return r.reportRefused(ctx, s, refused)
	}
	if err != nil {
		return retry(err)
	}
	if w.AwaitsEngine {
		return ctrl.Result{Requeue: true}, nil //nolint:staticcheck // no watch reports when the engine has observed it
	}
	if len(w.Complaints) > 0 {
		w.RequeueWithin(jobsetstate.RecheckAfter)
	}
	return ctrl.Result{RequeueAfter: w.RequeueAfter}, nil
}

// writer returns the functions that write the parts of a Step to the API server.
func (r *Reconciler) writer(ctx context.Context, s *jobsetstate.Snapshot) *stages.Writer {
	part := func(write func(context.Context, *jobsetstate.Snapshot, *stages.Step) error) func(*stages.Step) error {
		return func(w *stages.Step) error { return write(ctx, s, w) }
	}
	return &stages.Writer{
		CreateWorkloads: part(r.createWorkloads), EvictWorkloads: part(r.evictWorkloads), ChangeWorkloads: part(r.changeWorkloads),
		SetScheduler: part(r.setScheduler), Pause: part(r.pause), Start: part(r.start),
		DeleteGangs: part(r.deleteGangs), EnsureGangs: part(r.ensureGangs), RecordFinished: part(r.recordFinished),
		ReleaseJobs: part(r.releaseJobs), ResizeJobs: part(r.resizeJobs), HoldJobs: part(r.holdJobs), SkipJobs: part(r.skipJobs),
		EndPods: part(r.endPods), ConcludeJobs: part(r.concludeJobs), RecreateJobs: part(r.recreateJobs), RestoreJobs: part(r.restoreJobs),
		RecordTimes: part(r.recordTimes), Progress: part(r.reportProgress), Reclaim: part(r.reclaimPods), ReleaseQuota: part(r.releaseQuota),
		Reopen: part(r.reopenStages), RemoveFinalizers: part(r.removeFinalizers), DeleteWorkloads: part(r.deleteWorkloads),
		Report: part(r.report), CreateGrowths: part(r.createGrowths), DeleteExpired: part(r.deleteExpired),
	}
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

// apply writes a part of the status of a quota Workload if the Workload is unchanged since resourceVersion, unless that is empty. It does
// nothing if the Workload has disappeared.
func (r *Reconciler) apply(ctx context.Context, workload *kueue.Workload, status kueue.WorkloadStatus, owner client.FieldOwner, resourceVersion string) (*kueue.Workload, error) {
	written, err := patch.ApplyWorkloadStatus(ctx, r.config.Client, workload, patch.Status{Part: r.config.Runner.Shown(status), Owner: owner, ResourceVersion: resourceVersion})
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // nothing was written, and that is all right
	}
	return written, err
}
