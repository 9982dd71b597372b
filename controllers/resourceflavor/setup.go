// Package resourceflavor feeds ResourceFlavors to the engine, and keeps those that a ClusterQueue names from disappearing.
package resourceflavor

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	k8sevents "k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/controllers/engine"
	"github.com/tranche-dev/tranche/controllers/events"
)

// indexFlavor finds the ClusterQueues that name a ResourceFlavor.
const indexFlavor = "tranche.dev/flavor"

// A Reconciler keeps the finalizer of ResourceFlavors.
type Reconciler struct {
	client   client.Client
	recorder k8sevents.EventRecorder
}

// SetupWithManager starts to watch ResourceFlavors, with this many workers.
func SetupWithManager(ctx context.Context, mgr ctrl.Manager, runner *engine.Runner, workers int) error {
	err := engine.Watch(ctx, mgr, runner, &kueue.ResourceFlavor{}, engine.Source[*kueue.ResourceFlavor]{
		Observed: func(flavor *kueue.ResourceFlavor) admission.Event { return admission.FlavorObserved{Flavor: flavor} },
		Gone:     func(flavor *kueue.ResourceFlavor) admission.Event { return admission.FlavorGone{Name: flavor.Name} },
	})
	if err != nil {
		return err
	}
	if err := mgr.GetFieldIndexer().IndexField(ctx, &kueue.ClusterQueue{}, indexFlavor, flavorsOf); err != nil {
		return fmt.Errorf("index ClusterQueues by flavor: %w", err)
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("resourceflavor").
		For(&kueue.ResourceFlavor{}).
		Watches(&kueue.ClusterQueue{}, handler.EnqueueRequestsFromMapFunc(func(_ context.Context, object client.Object) []reconcile.Request {
			var requests []reconcile.Request
			for _, name := range flavorsOf(object) {
				requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Name: name}})
			}
			return requests
		})).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Complete(&Reconciler{client: mgr.GetClient(), recorder: mgr.GetEventRecorder("tranche")})
}

func flavorsOf(object client.Object) []string {
	queue, ok := object.(*kueue.ClusterQueue)
	if !ok {
		return nil
	}
	var names []string
	for _, group := range queue.Spec.ResourceGroups {
		for i := range group.Flavors {
			names = append(names, string(group.Flavors[i].Name))
		}
	}
	return names
}

// Reconcile adds the finalizer to a ResourceFlavor that is in use, and removes it from one that is being deleted and is not.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var flavor kueue.ResourceFlavor
	if err := r.client.Get(ctx, req.NamespacedName, &flavor); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	var users kueue.ClusterQueueList
	if err := r.client.List(ctx, &users, client.MatchingFields{indexFlavor: flavor.Name}); err != nil {
		return ctrl.Result{}, fmt.Errorf("list the ClusterQueues with ResourceFlavor %s: %w", flavor.Name, err)
	}
	after := flavor.DeepCopy()
	if !flavor.DeletionTimestamp.IsZero() && len(users.Items) > 0 {
		var names []string
		for i := range users.Items {
			names = append(names, users.Items[i].Name)
		}
		slices.Sort(names)
		events.FlavorInUse(names).Emit(r.recorder, &flavor)
	}
	deleted, used := !flavor.DeletionTimestamp.IsZero(), len(users.Items) > 0
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
	if err := r.client.Patch(ctx, after, client.MergeFromWithOptions(&flavor, client.MergeFromWithOptimisticLock{})); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("write finalizer of ResourceFlavor %s: %w", flavor.Name, err)
	}
	return ctrl.Result{}, nil
}
