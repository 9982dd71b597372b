package queues

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/controllers/events"
	"github.com/tranche-dev/tranche/controllers/internal/fairqueue"
)

// finalizers writes Kueue's finalizer of objects of one kind.
type finalizers struct {
	client client.Client
	kind   string
}

// protect adds the finalizer to an object that is in use, unless the object is being deleted.
func (f *finalizers) protect(ctx context.Context, object client.Object) error {
	if !lacksFinalizer(object) {
		return nil
	}
	return f.write(ctx, object, controllerutil.AddFinalizer)
}

// release removes the finalizer from an object that is not in use and is being deleted.
func (f *finalizers) release(ctx context.Context, object client.Object) error {
	if object.GetDeletionTimestamp().IsZero() {
		return nil
	}
	return f.write(ctx, object, controllerutil.RemoveFinalizer)
}

func (f *finalizers) write(ctx context.Context, object client.Object, change func(client.Object, string) bool) error {
	after, ok := object.DeepCopyObject().(client.Object)
	if !ok || !change(after, kueue.ResourceInUseFinalizerName) {
		return nil
	}
	if err := f.client.Patch(ctx, after, client.MergeFromWithOptions(object, client.MergeFromWithOptimisticLock{})); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write finalizer of %s %s: %w", f.kind, object.GetName(), err)
	}
	return nil
}

// A finalizerReconciler keeps objects of one kind while a ClusterQueue names them.
type finalizerReconciler[T client.Object] struct {
	finalizers
	// index finds the ClusterQueues that name an object, and namesIn returns the names of the objects that a ClusterQueue names.
	index   string
	namesIn func(*kueue.ClusterQueue) []string
	// blocked, if it is set, is called for an object that is being deleted, with the sorted names of the ClusterQueues that name it.
	blocked func(client.Object, []string)
}

func (r *finalizerReconciler[T]) setUp(ctx context.Context, mgr ctrl.Manager, object T, kind string, workers int32) error {
	r.client, r.kind = mgr.GetClient(), kind
	names := func(queue client.Object) []string {
		if typed, ok := queue.(*kueue.ClusterQueue); ok {
			return r.namesIn(typed)
		}
		return nil
	}
	if err := mgr.GetFieldIndexer().IndexField(ctx, &kueue.ClusterQueue{}, r.index, names); err != nil {
		return fmt.Errorf("index ClusterQueues by %s: %w", kind, err)
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named(strings.ToLower(kind)).
		For(object).
		Watches(&kueue.ClusterQueue{}, handler.EnqueueRequestsFromMapFunc(func(_ context.Context, queue client.Object) []reconcile.Request {
			var requests []reconcile.Request
			for _, name := range names(queue) {
				requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Name: name}})
			}
			return requests
		}), builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, recreated))).
		WithOptions(fairqueue.Options(int(workers), nil)).
		Complete(reconcile.AsReconciler(r.client, r))
}

// recreated passes on that an object was deleted and created again while it was not watched, which the cache reports as one change.
var recreated = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool { return e.ObjectOld.GetUID() != e.ObjectNew.GetUID() }}

// Reconcile adds the finalizer to an object that is in use, and removes it from one that is being deleted and is not.
func (r *finalizerReconciler[T]) Reconcile(ctx context.Context, object T) (ctrl.Result, error) {
	name := object.GetName()
	var users kueue.ClusterQueueList
	if err := r.client.List(ctx, &users, client.MatchingFields{r.index: name}, client.UnsafeDisableDeepCopy); err != nil {
		return ctrl.Result{}, fmt.Errorf("list the ClusterQueues with %s %s: %w", r.kind, name, err)
	}
	isUsed := len(users.Items) > 0
	if r.blocked != nil && isUsed && !object.GetDeletionTimestamp().IsZero() {
		var names []string
		for i := range users.Items {
			names = append(names, users.Items[i].Name)
		}
		slices.Sort(names)
		r.blocked(object, names)
	}
	if isUsed {
		return ctrl.Result{}, r.protect(ctx, object)
	}
	return ctrl.Result{}, r.release(ctx, object)
}

func setUpChecks(ctx context.Context, mgr ctrl.Manager, workers int32) error {
	r := &finalizerReconciler[*kueue.AdmissionCheck]{index: "tranche.dev/admission-check", namesIn: checksOf}
	return r.setUp(ctx, mgr, &kueue.AdmissionCheck{}, "AdmissionCheck", workers)
}

func checksOf(queue *kueue.ClusterQueue) []string {
	if queue.Spec.AdmissionChecksStrategy == nil {
		return nil
	}
	var names []string
	for _, rule := range queue.Spec.AdmissionChecksStrategy.AdmissionChecks {
		names = append(names, string(rule.Name))
	}
	return names
}

func setUpFlavors(ctx context.Context, mgr ctrl.Manager, workers int32) error {
	recorder := mgr.GetEventRecorder("tranche")
	r := &finalizerReconciler[*kueue.ResourceFlavor]{
		index: "tranche.dev/flavor", namesIn: flavorsOf,
		blocked: func(flavor client.Object, users []string) { events.FlavorInUse(users).Emit(recorder, flavor) },
	}
	return r.setUp(ctx, mgr, &kueue.ResourceFlavor{}, "ResourceFlavor", workers)
}

func flavorsOf(queue *kueue.ClusterQueue) []string {
	var names []string
	for _, group := range queue.Spec.ResourceGroups {
		for i := range group.Flavors {
			names = append(names, string(group.Flavors[i].Name))
		}
	}
	return names
}
