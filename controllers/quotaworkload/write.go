package quotaworkload

import (
	"context"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/controllers/engine"
	"github.com/tranche-dev/tranche/controllers/events"
	"github.com/tranche-dev/tranche/controllers/internal/patch"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// write does the one write of a Step, and then emits its Events. The API server rejects the write if another client has changed the
// Workload since it was read: the decision may be outdated.
func (r *Reconciler) write(ctx context.Context, s *workloadstatus.Snapshot, step *workloadstatus.Step) (ctrl.Result, error) {
	done, err := r.writeOne(ctx, s.Workload, step)
	switch {
	case apierrors.IsConflict(err):
		// The cache lacks the change. When it arrives, the watch triggers the next reconcile; the requeue is for a lost event.
		return ctrl.Result{Requeue: true}, nil //nolint:staticcheck // a conflict is retried with the back-off of the queue
	case err != nil:
		return ctrl.Result{}, client.IgnoreNotFound(err)
	case done:
		r.announce(s.Workload, step.Transition)
	}
	return ctrl.Result{RequeueAfter: step.RequeueAfter}, nil
}

// writeOne does the write, and reports whether there was anything to write.
func (r *Reconciler) writeOne(ctx context.Context, workload *kueue.Workload, step *workloadstatus.Step) (bool, error) {
	switch {
	case step.Deactivate:
		after := workload.DeepCopy()
		after.Spec.Active = new(false)
		return true, wrap(r.config.Client.Patch(ctx, after, since(workload)), "deactivate quota Workload %s", client.ObjectKeyFromObject(workload))
	case len(step.RemoveChecks) > 0:
		return true, r.dropChecks(ctx, workload, step.RemoveChecks)
	case !writesAnything(workload, step):
		return false, nil
	}
	_, err := patch.ApplyWorkloadStatus(ctx, r.config.Client, workload, patch.Status{
		Part: *step.Status, Owner: apis.AdmissionFieldManager, ResourceVersion: workload.ResourceVersion,
	})
	return true, err
}

// writesAnything reports whether a step writes anything.
func writesAnything(workload *kueue.Workload, step *workloadstatus.Step) bool {
	return step.Deactivate || len(step.RemoveChecks) > 0 || step.Status != nil && workloadstatus.Differs(workload, step.Status)
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

// announce emits the Event of a transition on a quota Workload, and that of an eviction also on the JobSet of its stage.
func (r *Reconciler) announce(w *kueue.Workload, transition workloadstatus.Transition) {
	if event, ok := eventOf(transition); ok {
		event.Emit(r.config.Recorder, w)
	}
	n, isEvicted := transition.(workloadstatus.EvictedTransition)
	if stage := w.Labels[apis.StageLabel]; isEvicted && stage != "" && w.Status.Admission != nil {
		event := events.StageEvicted(engine.StageName(stage, w), engine.Usage(w.Status.Admission), n.Eviction.FullReason(), n.Eviction.Message)
		event.EmitOnOwner(r.config.Recorder, w)
	}
}

// eventOf returns the Event on a quota Workload for a transition, if it has one.
func eventOf(transition workloadstatus.Transition) (event events.Event, ok bool) {
	switch n := transition.(type) {
	case workloadstatus.EvictedTransition:
		return events.Evicted(n.Eviction.EventReason(), n.Eviction.Message), true
	case workloadstatus.AdmittedTransition:
		return events.Admitted(string(n.ClusterQueue), n.Waited), true
	case workloadstatus.RejectedTransition:
		return events.AdmissionCheckRejected(n.Verdict), true
	case workloadstatus.OutOfTimeTransition:
		return events.MaximumExecutionTimeExceeded(n.Seconds), true
	case workloadstatus.OutOfTriesTransition:
		return events.RequeuingLimitExceeded(n.Limit), true
	case workloadstatus.RequeuedTransition:
		return events.Requeued(n.Why), true
	case workloadstatus.GatedTransition:
		return events.AdmissionGated(n.By), true
	case workloadstatus.UngatedTransition:
		return events.AdmissionGateCleared(), true
	}
	return event, false
}
