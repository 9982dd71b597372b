// Package localqueue feeds LocalQueues to the engine and writes their status.
package localqueue

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
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/controllers/conditions"
	"github.com/tranche-dev/tranche/controllers/engine"
)

// A Reconciler writes the engine's view of LocalQueues into their status.
type Reconciler struct {
	client client.Client
	runner *engine.Runner
}

// SetupWithManager starts to watch LocalQueues and to write their status, with this many workers.
func SetupWithManager(ctx context.Context, mgr ctrl.Manager, runner *engine.Runner, workers int) error {
	err := engine.Watch(ctx, mgr, runner, &kueue.LocalQueue{}, engine.Source[*kueue.LocalQueue]{
		Observed: func(queue *kueue.LocalQueue) admission.Event { return admission.LocalQueueObserved{LocalQueue: queue} },
		Gone: func(queue *kueue.LocalQueue) admission.Event {
			return admission.LocalQueueGone{Key: client.ObjectKeyFromObject(queue)}
		},
	})
	if err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("localqueue").
		// Our own status writes must not trigger a reconcile: there would be something new to write each time, without end.
		For(&kueue.LocalQueue{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(engine.Changes(runner.OnLocalQueueChange, func(key types.NamespacedName) reconcile.Request {
			return reconcile.Request{NamespacedName: key}
		})).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Complete(&Reconciler{client: mgr.GetClient(), runner: runner})
}

// Reconcile brings the status of one LocalQueue up to date.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var queue kueue.LocalQueue
	if err := r.client.Get(ctx, req.NamespacedName, &queue); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	var view admission.LocalQueueView
	var known bool
	if err := r.runner.View(ctx, func(e *admission.Engine) { view, known = e.LocalQueue(req.NamespacedName) }); err != nil || !known {
		return ctrl.Result{}, err
	}
	status := desired(&queue, &view)
	if equality.Semantic.DeepEqual(status, queue.Status) {
		return ctrl.Result{}, nil
	}
	patch, err := conditions.QueuePatch(&queue, "LocalQueue", &status)
	if err != nil {
		return ctrl.Result{}, err
	}
	err = r.client.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(patch), client.FieldOwner(apis.FieldManager), client.ForceOwnership)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("write status of LocalQueue %s: %w", req.NamespacedName, err)
	}
	return ctrl.Result{}, nil
}

// desired returns the status of a LocalQueue according to the engine.
func desired(queue *kueue.LocalQueue, view *admission.LocalQueueView) kueue.LocalQueueStatus {
	return kueue.LocalQueueStatus{
		Conditions:         []metav1.Condition{conditions.Active(queue.Status.Conditions, queue.Generation, view.Active)},
		PendingWorkloads:   view.Pending,
		ReservingWorkloads: view.Reserving,
		AdmittedWorkloads:  view.Admitted,
		FlavorsReservation: view.FlavorsReservation,
		FlavorsUsage:       view.FlavorsUsage,
		FairSharing:        view.FairSharing,
	}
}
