package jobset

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/controllers/internal/apply"
	"github.com/tranche-dev/tranche/controllers/internal/patch"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
	"github.com/tranche-dev/tranche/lifecycle/quotastep"
	"github.com/tranche-dev/tranche/lifecycle/stages"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// write writes a Step. It stops at the first error: later writes may rely on earlier ones, and the next reconcile continues from the state
// reached. A failed write on which no other write relies does not stop it.
func (r *Reconciler) write(ctx context.Context, s *jobsetstate.Snapshot, w *stages.Step) (ctrl.Result, error) {
	part := func(write func(context.Context, *jobsetstate.Snapshot, *stages.Step) error) func(*stages.Step) error {
		return func(w *stages.Step) error { return write(ctx, s, w) }
	}
	if err := recordRules(ctx, r, s); err != nil {
		return apply.Failed(err)
	}
	err := w.Write(&stages.Writer{
		Quota: func(writes []quotastep.Write) error { return r.writeQuota(ctx, s, w, writes) }, ReleaseQuota: part(r.releaseQuota),
		Stop: part(r.stop), MarkJobs: part(r.markJobs), MarkTemplates: part(r.markTemplates),
		NoteStarted:  func(*stages.Step) error { return noteStarted(ctx, r.config.Client, s) },
		SetScheduler: part(r.setScheduler), Pause: part(r.pause), Start: part(r.start),
		DeleteGangs: part(r.deleteGangs), EnsureGangs: part(r.ensureGangs), RecordFinished: part(r.recordFinished),
		ReleaseJobs: part(r.releaseJobs), ResizeJobs: part(r.resizeJobs), HoldJobs: part(r.holdJobs), SkipJobs: part(r.skipJobs),
		EndPods: part(r.endPods), RecreateJobs: part(r.recreateJobs), RestoreJobs: part(r.restoreJobs),
		ConcludeJobs: func(w *stages.Step) error { return r.suspend(ctx, w.ConcludeJobs, false) },
		RecordTimes:  part(r.recordTimes), Report: part(r.report), DeleteExpired: part(r.deleteExpired),
		Yield: func(w *stages.Step) error { return r.yielder.yield(ctx, s, w) },
	})
	if refused, ok := errors.AsType[*refusedWorkload](err); ok {
		return r.reportRefused(ctx, s, refused)
	}
	if len(w.Complaints) > 0 {
		w.RequeueWithin(workloadstatus.RecheckAfter)
	}
	return apply.Result(&w.Step, err)
}

// A refusedWorkload is a quota Workload that the API server will always reject for its JobSet.
type refusedWorkload struct{ cause error }

func (e *refusedWorkload) Error() string { return e.cause.Error() }

func (e *refusedWorkload) Unwrap() error { return e.cause }

// patchTries is how often a patch is tried while other clients write to the object.
const patchTries = 5

// patchIfSame patches an object if its spec has not changed since it was read: a Job or JobSet that has grown in the meantime must not
// start. Concurrent writes to its status, which are frequent when it is about to start, do not matter. The answer to the first patch does not show what
// is wrong with it, so that a second one is for the version that the object has by then.
func (r *Reconciler) patchIfSame(ctx context.Context, before, after client.Object) error {
	err := r.config.Client.Patch(ctx, after, patch.IfSameSpec(before))
	isRetried := apierrors.IsInvalid(err)
	for try := 1; isRetried && try < patchTries; try++ {
		current, ok := before.DeepCopyObject().(client.Object)
		if !ok {
			return err
		}
		if cause := r.reader.Get(ctx, client.ObjectKeyFromObject(before), current); cause != nil {
			return errors.Join(err, cause)
		}
		if current.GetUID() != before.GetUID() || current.GetGeneration() != before.GetGeneration() {
			return apierrors.NewConflict(schema.GroupResource{}, before.GetName(), err)
		}
		err = r.config.Client.Patch(ctx, after, patch.Locked(before, current.GetResourceVersion()))
		isRetried = apierrors.IsConflict(err)
	}
	return err
}
