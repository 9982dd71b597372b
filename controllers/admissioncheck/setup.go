// Package admissioncheck feeds AdmissionChecks to the engine, and keeps those that a ClusterQueue names from disappearing.
package admissioncheck

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/controllers/engine"
)

// indexCheck finds the ClusterQueues that name an AdmissionCheck.
const indexCheck = "tranche.dev/admission-check"

// A Reconciler keeps the finalizer of AdmissionChecks.
type Reconciler struct {
	client client.Client
}

// SetupWithManager starts to watch AdmissionChecks, with this many workers.
func SetupWithManager(ctx context.Context, mgr ctrl.Manager, runner *engine.Runner, workers int) error {
	err := engine.Watch(ctx, mgr, runner, &kueue.AdmissionCheck{}, engine.Source[*kueue.AdmissionCheck]{
		Observed: func(check *kueue.AdmissionCheck) admission.Event {
			return admission.CheckObserved{AdmissionCheck: check}
		},
		Gone: func(check *kueue.AdmissionCheck) admission.Event {
			return admission.CheckGone{Name: check.Name}
		},
	})
	if err != nil {
		return err
	}
	if err := mgr.GetFieldIndexer().IndexField(ctx, &kueue.ClusterQueue{}, indexCheck, checksOf); err != nil {
		return fmt.Errorf("index ClusterQueues by AdmissionCheck: %w", err)
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("admissioncheck").
		For(&kueue.AdmissionCheck{}).
		Watches(&kueue.ClusterQueue{}, handler.EnqueueRequestsFromMapFunc(func(_ context.Context, object client.Object) []reconcile.Request {
			var requests []reconcile.Request
			for _, name := range checksOf(object) {
				requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Name: name}})
			}
			return requests
		})).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Complete(&Reconciler{client: mgr.GetClient()})
}

func checksOf(object client.Object) []string {
	queue, ok := object.(*kueue.ClusterQueue)
	if !ok || queue.Spec.AdmissionChecksStrategy == nil {
		return nil
	}
	var names []string
	for _, rule := range queue.Spec.AdmissionChecksStrategy.AdmissionChecks {
		names = append(names, string(rule.Name))
	}
	return names
}

// Reconcile adds the finalizer to an AdmissionCheck that is in use, and removes it from one that is being deleted and is not.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var check kueue.AdmissionCheck
	if err := r.client.Get(ctx, req.NamespacedName, &check); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	var users kueue.ClusterQueueList
	if err := r.client.List(ctx, &users, client.MatchingFields{indexCheck: check.Name}); err != nil {
		return ctrl.Result{}, fmt.Errorf("list the ClusterQueues with AdmissionCheck %s: %w", check.Name, err)
	}
	after := check.DeepCopy()
	deleted, used := !check.DeletionTimestamp.IsZero(), len(users.Items) > 0
	differs := false
	switch {
	case used && !deleted:
		differs = controllerutil.AddFinalizer(after, kueue.ResourceInUseFinalizerName)
	case !used && deleted:
		differs = controllerutil.RemoveFinalizer(after, kueue.ResourceInUseFinalizerName)
	}
	if !differs {
		return ctrl.Result{}, nil
	}
	if err := r.client.Patch(ctx, after, client.MergeFromWithOptions(&check, client.MergeFromWithOptimisticLock{})); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("write finalizer of AdmissionCheck %s: %w", check.Name, err)
	}
	return ctrl.Result{}, nil
}
