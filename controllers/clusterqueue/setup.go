// Package clusterqueue feeds ClusterQueues to the engine, writes their status, and keeps those that hold quota from disappearing.
package clusterqueue

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/controllers/conditions"
	"github.com/tranche-dev/tranche/controllers/engine"
)

// A Reconciler writes the engine's view of ClusterQueues into their status.
type Reconciler struct {
	client client.Client
	runner *engine.Runner
}

// SetupWithManager starts to watch ClusterQueues and to write their status, with this many workers.
func SetupWithManager(ctx context.Context, mgr ctrl.Manager, runner *engine.Runner, workers int) error {
	err := engine.Watch(ctx, mgr, runner, &kueue.ClusterQueue{}, engine.Source[*kueue.ClusterQueue]{
		Observed: func(queue *kueue.ClusterQueue) admission.Event {
			return admission.ClusterQueueObserved{ClusterQueue: queue, IsUnprotected: lacksFinalizer(queue)}
		},
		Gone: func(queue *kueue.ClusterQueue) admission.Event { return admission.ClusterQueueGone{Name: queue.Name} },
	})
	if err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("clusterqueue").
		// Our own status writes must not trigger a reconcile: there would be something new to write each time, without end.
		For(&kueue.ClusterQueue{}, builder.WithPredicates(predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, predicate.NewPredicateFuncs(lacksFinalizer)))).
		WatchesRawSource(engine.Changes(runner.OnClusterQueueChange, func(name string) reconcile.Request {
			return reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}
		})).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Complete(&Reconciler{client: mgr.GetClient(), runner: runner})
}

// lacksFinalizer reports whether a ClusterQueue would disappear at once if it were deleted: it is new, or its finalizer was removed by
// hand. The engine reserves no quota in it until the Reconciler has added the finalizer, since a deletion could come between the two.
func lacksFinalizer(queue client.Object) bool {
	return queue.GetDeletionTimestamp().IsZero() && !controllerutil.ContainsFinalizer(queue, kueue.ResourceInUseFinalizerName)
}

// Reconcile brings the status and the finalizer of one ClusterQueue up to date.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var queue kueue.ClusterQueue
	if err := r.client.Get(ctx, req.NamespacedName, &queue); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	// The engine reserves quota in it only after this.
	if queue.DeletionTimestamp.IsZero() {
		if err := r.writeFinalizer(ctx, &queue, true); err != nil {
			return ctrl.Result{}, err
		}
	}
	var view admission.ClusterQueueView
	var known, isComplete bool
	err := r.runner.View(ctx, func(e *admission.Engine) {
		view, known = e.ClusterQueue(queue.Name)
		isComplete = r.runner.IsComplete()
	})
	if err != nil || !known || !isComplete {
		return ctrl.Result{}, err // the first decisions of the engine report every ClusterQueue
	}
	if !queue.DeletionTimestamp.IsZero() {
		// The finalizer is written first: it names the version of the object, which the status would change. An engine that has not
		// observed the deletion could still reserve quota.
		isUsed := view.Reserving > 0 || view.Active.Reason != kueue.ClusterQueueActiveReasonTerminating
		if err := r.writeFinalizer(ctx, &queue, isUsed); err != nil {
			return ctrl.Result{}, err
		}
	}
	return ctrl.Result{}, r.writeStatus(ctx, &queue, &view)
}

func (r *Reconciler) writeStatus(ctx context.Context, queue *kueue.ClusterQueue, view *admission.ClusterQueueView) error {
	status := desired(queue, view)
	if equality.Semantic.DeepEqual(status, queue.Status) {
		return nil
	}
	patch, err := conditions.QueuePatch(queue, "ClusterQueue", &status)
	if err != nil {
		return err
	}
	err = r.client.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(patch), client.FieldOwner(apis.FieldManager), client.ForceOwnership)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write status of ClusterQueue %s: %w", queue.Name, err)
	}
	return nil
}

// desired returns the status of a ClusterQueue according to the engine.
func desired(queue *kueue.ClusterQueue, view *admission.ClusterQueueView) kueue.ClusterQueueStatus {
	return kueue.ClusterQueueStatus{
		Conditions:         []metav1.Condition{conditions.Active(queue.Status.Conditions, view.Generation, view.Active)},
		PendingWorkloads:   view.Pending,
		ReservingWorkloads: view.Reserving,
		AdmittedWorkloads:  view.Admitted,
		FlavorsReservation: view.FlavorsReservation,
		FlavorsUsage:       view.FlavorsUsage,
		FairSharing:        view.FairSharing,
	}
}

// writeFinalizer keeps a ClusterQueue as long as it holds quota, so that its stages can still be charged to it.
func (r *Reconciler) writeFinalizer(ctx context.Context, queue *kueue.ClusterQueue, used bool) error {
	after := queue.DeepCopy()
	deleted := !queue.DeletionTimestamp.IsZero()
	differs := false
	switch {
	case !deleted:
		differs = controllerutil.AddFinalizer(after, kueue.ResourceInUseFinalizerName)
	case !used:
		differs = controllerutil.RemoveFinalizer(after, kueue.ResourceInUseFinalizerName)
	}
	if !differs {
		return nil
	}
	if err := r.client.Patch(ctx, after, client.MergeFromWithOptions(queue, client.MergeFromWithOptimisticLock{})); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write finalizer of ClusterQueue %s: %w", queue.Name, err)
	}
	return nil
}
