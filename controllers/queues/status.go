package queues

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/controllers/engine"
	"github.com/tranche-dev/tranche/controllers/internal/fairqueue"
	"github.com/tranche-dev/tranche/controllers/internal/patch"
)

// A statusReconciler writes the engine's view of objects of one kind into their status.
type statusReconciler[T client.Object] struct {
	finalizers
	runner *engine.Runner
	// isKept is true if the objects have Kueue's finalizer from their creation until they are deleted and no longer in use.
	isKept bool
	// view returns what the engine knows of an object, or nil. It must only read the engine.
	view func(*admission.Engine, T) *view
}

// A view is what the engine knows of an object.
type view struct {
	// current and wanted are pointers to the status that the object has, and to the one that it should have.
	current, wanted any
	// isUsed is true if the object must not disappear, in case it is being deleted.
	isUsed bool
}

// setUp starts the controller, which also reconciles the objects that the engine reports.
func (r *statusReconciler[T]) setUp(mgr ctrl.Manager, object T, kind string, changes engine.Kind, workers int32) error {
	r.client, r.kind = mgr.GetClient(), kind
	isUnprotected := func(object client.Object) bool { return r.isKept && lacksFinalizer(object) }
	return ctrl.NewControllerManagedBy(mgr).
		Named(strings.ToLower(kind)).
		// Our own status writes must not trigger a reconcile: there would be something new to write each time, without end.
		For(object, builder.WithPredicates(predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, predicate.NewPredicateFuncs(isUnprotected)))).
		WatchesRawSource(engine.Changes(r.runner, changes)).
		WithOptions(fairqueue.Options(int(workers), nil)).
		Complete(reconcile.AsReconciler(r.client, r))
}

// lacksFinalizer reports whether an object would disappear at once if it were deleted: it is new, or its finalizer was removed by hand. The
// engine reserves no quota in such a ClusterQueue until its reconciler has added the finalizer, since a deletion could come between the two.
func lacksFinalizer(object client.Object) bool {
	return object.GetDeletionTimestamp().IsZero() && !controllerutil.ContainsFinalizer(object, kueue.ResourceInUseFinalizerName)
}

// Reconcile brings the status of one object up to date, and its finalizer, if it has one.
func (r *statusReconciler[T]) Reconcile(ctx context.Context, object T) (ctrl.Result, error) {
	if r.isKept {
		if err := r.protect(ctx, object); err != nil {
			return ctrl.Result{}, err
		}
	}
	var seen *view
	if err := r.runner.View(ctx, func(e *admission.Engine) { seen = r.view(e, object) }); err != nil || seen == nil {
		return ctrl.Result{}, err
	}
	if r.isKept && !seen.isUsed {
		// The finalizer is written before the status: the patch names the version of the object, which the status would change. An engine
		// that has not observed the deletion could still reserve quota.
		if err := r.release(ctx, object); err != nil {
			return ctrl.Result{}, err
		}
	}
	if equality.Semantic.DeepEqual(seen.wanted, seen.current) {
		return ctrl.Result{}, nil
	}
	err := patch.ApplyStatus(ctx, r.client, object, client.FieldOwner(apis.FieldManager), seen.wanted)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("write status of %s %s: %w", r.kind, client.ObjectKeyFromObject(object), err)
	}
	return ctrl.Result{}, nil
}

// active returns the condition Active of a queue with these conditions.
func active(old []metav1.Condition, generation int64, activity admission.Activity) []metav1.Condition {
	conditions := slices.DeleteFunc(slices.Clone(old), func(c metav1.Condition) bool { return c.Type != kueue.ClusterQueueActive })
	apimeta.SetStatusCondition(&conditions, metav1.Condition{
		Type: kueue.ClusterQueueActive, Status: activity.Status, Reason: activity.Reason, Message: activity.Message, ObservedGeneration: generation,
	})
	return conditions
}

func setUpClusterQueues(mgr ctrl.Manager, runner *engine.Runner, workers int32) error {
	r := &statusReconciler[*kueue.ClusterQueue]{
		runner: runner, isKept: true,
		view: func(e *admission.Engine, queue *kueue.ClusterQueue) *view {
			seen, known := e.ClusterQueue(queue.Name)
			if !known || !runner.IsComplete() {
				return nil // the first scheduling cycle reports every ClusterQueue
			}
			return &view{
				current: &queue.Status,
				wanted: &kueue.ClusterQueueStatus{
					Conditions:         active(queue.Status.Conditions, seen.Generation, seen.Active),
					PendingWorkloads:   seen.Pending,
					ReservingWorkloads: seen.Reserving,
					AdmittedWorkloads:  seen.Admitted,
					FlavorsReservation: seen.FlavorsReservation,
					FlavorsUsage:       seen.FlavorsUsage,
					FairSharing:        seen.FairSharing,
				},
				isUsed: seen.Reserving > 0 || seen.Active.Reason != kueue.ClusterQueueActiveReasonTerminating,
			}
		},
	}
	return r.setUp(mgr, &kueue.ClusterQueue{}, "ClusterQueue", engine.ClusterQueues, workers)
}

func setUpLocalQueues(mgr ctrl.Manager, runner *engine.Runner, workers int32) error {
	r := &statusReconciler[*kueue.LocalQueue]{
		runner: runner,
		view: func(e *admission.Engine, queue *kueue.LocalQueue) *view {
			seen, known := e.LocalQueue(client.ObjectKeyFromObject(queue))
			if !known {
				return nil
			}
			return &view{current: &queue.Status, wanted: &kueue.LocalQueueStatus{
				Conditions:         active(queue.Status.Conditions, queue.Generation, seen.Active),
				PendingWorkloads:   seen.Pending,
				ReservingWorkloads: seen.Reserving,
				AdmittedWorkloads:  seen.Admitted,
				FlavorsReservation: seen.FlavorsReservation,
				FlavorsUsage:       seen.FlavorsUsage,
				FairSharing:        seen.FairSharing,
			}}
		},
	}
	return r.setUp(mgr, &kueue.LocalQueue{}, "LocalQueue", engine.LocalQueues, workers)
}

func setUpCohorts(mgr ctrl.Manager, runner *engine.Runner) error {
	r := &statusReconciler[*kueue.Cohort]{
		runner: runner,
		view: func(e *admission.Engine, cohort *kueue.Cohort) *view {
			seen, known := e.Cohort(cohort.Name)
			if !known {
				return nil
			}
			return &view{current: &cohort.Status, wanted: &kueue.CohortStatus{FairSharing: seen.FairSharing}}
		},
	}
	return r.setUp(mgr, &kueue.Cohort{}, "Cohort", engine.Cohorts, 1)
}
