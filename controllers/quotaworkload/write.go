package quotaworkload

import (
	"context"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/controllers/internal/patch"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// write does the one write that is wanted, and then emits its Events. The API server rejects the write if another client has changed the
// Workload since it was read: the decision may be outdated.
func (r *Reconciler) write(ctx context.Context, s *workloadstatus.Snapshot, w *wanted) (ctrl.Result, error) {
	done, err := r.writeOne(ctx, s.Workload, w)
	switch {
	case apierrors.IsConflict(err):
		// The cache lacks the change. When it arrives, the watch triggers the next reconcile; the requeue is for a lost event.
		return ctrl.Result{Requeue: true}, nil //nolint:staticcheck // a conflict is retried with the back-off of the queue
	case err != nil:
		return ctrl.Result{}, client.IgnoreNotFound(err)
	case done:
		for _, event := range w.events {
			event.Emit(r.config.Recorder, s.Workload)
		}
		if w.onJobSet != nil {
			w.onJobSet.EmitOnOwner(r.config.Recorder, s.Workload)
		}
	}
	return ctrl.Result{RequeueAfter: w.RequeueAfter}, nil
}

// writeOne does the write, and reports whether there was anything to write.
func (r *Reconciler) writeOne(ctx context.Context, workload *kueue.Workload, w *wanted) (bool, error) {
	switch {
	case w.Deactivate:
		after := workload.DeepCopy()
		after.Spec.Active = new(false)
		return true, wrap(r.config.Client.Patch(ctx, after, since(workload)), "deactivate quota Workload %s", client.ObjectKeyFromObject(workload))
	case len(w.RemoveChecks) > 0:
		return true, r.dropChecks(ctx, workload, w.RemoveChecks)
	case w.Status == nil || !workloadstatus.Differs(workload, w.Status):
		return false, nil
	}
	_, err := patch.ApplyWorkloadStatus(ctx, r.config.Client, workload, patch.Status{
		Part: *w.Status, Owner: apis.AdmissionFieldManager, ResourceVersion: workload.ResourceVersion,
	})
	return true, err
}

// dropChecks removes the states of AdmissionChecks. Server-side apply would keep states that the controller of a check has written.
func (r *Reconciler) dropChecks(ctx context.Context, workload *kueue.Workload, names []kueue.AdmissionCheckReference) error {
	after := workload.DeepCopy()
	after.Status.AdmissionChecks = slices.DeleteFunc(after.Status.AdmissionChecks, func(c kueue.AdmissionCheckState) bool {
		return slices.Contains(names, c.Name)
	})
	err := r.config.Client.Status().Patch(ctx, after, since(workload), client.FieldOwner(apis.AdmissionFieldManager))
	return wrap(err, "drop AdmissionChecks of quota Workload %s", client.ObjectKeyFromObject(workload))
}

// since returns a merge patch that fails if the object has changed.
func since(before client.Object) client.Patch {
	return client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
}
