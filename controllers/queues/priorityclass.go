package queues

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/controllers/internal/fairqueue"
	"github.com/tranche-dev/tranche/controllers/internal/patch"
)

// indexClass finds the quota Workloads of a WorkloadPriorityClass.
const indexClass = "tranche.dev/workload-priority-class"

// A priorityReconciler makes quota Workloads follow the value of their WorkloadPriorityClass.
type priorityReconciler struct {
	client client.Client
}

func setUpPriorityClasses(ctx context.Context, mgr ctrl.Manager) error {
	if err := mgr.GetFieldIndexer().IndexField(ctx, &kueue.Workload{}, indexClass, classOf); err != nil {
		return fmt.Errorf("index quota Workloads by WorkloadPriorityClass: %w", err)
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("workloadpriorityclass").
		For(&kueue.WorkloadPriorityClass{}, builder.WithPredicates(changesValue())).
		WithOptions(fairqueue.Options(1, nil)).
		Complete(reconcile.AsReconciler(mgr.GetClient(), &priorityReconciler{client: mgr.GetClient()}))
}

// changesValue passes WorkloadPriorityClasses that are new or have another value. As in Kueue, a priority that was written into a quota
// Workload by hand stays until then. All classes are new to a starting manager: otherwise it would miss values that changed before.
func changesValue() predicate.Funcs {
	return predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, wasClass := e.ObjectOld.(*kueue.WorkloadPriorityClass)
			after, isClass := e.ObjectNew.(*kueue.WorkloadPriorityClass)
			return wasClass && isClass && before.Value != after.Value
		},
		DeleteFunc: func(event.DeleteEvent) bool { return false },
	}
}

// classOf returns the WorkloadPriorityClass that a quota Workload follows here.
func classOf(object client.Object) []string {
	workload, ok := object.(*kueue.Workload)
	if !ok {
		return nil
	}
	ref := workload.Spec.PriorityClassRef
	hasController := workload.Labels[apis.JobSetLabel] != "" || workload.Labels[apis.JobLabel] != "" || workload.Labels[apis.PodGroupKey] != ""
	if ref == nil || ref.Kind != kueue.WorkloadPriorityClassKind || hasController {
		return nil
	}
	return []string{ref.Name}
}

// Reconcile sets the priority of all quota Workloads of a WorkloadPriorityClass to its value.
func (r *priorityReconciler) Reconcile(ctx context.Context, class *kueue.WorkloadPriorityClass) (ctrl.Result, error) {
	var list kueue.WorkloadList
	if err := r.client.List(ctx, &list, client.MatchingFields{indexClass: class.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return ctrl.Result{}, fmt.Errorf("list quota Workloads of WorkloadPriorityClass %q: %w", class.Name, err)
	}
	var problems []error
	for i := range list.Items {
		workload := &list.Items[i]
		if quotaworkload.IsTrue(workload, kueue.WorkloadFinished) || ptr.Equal(workload.Spec.Priority, &class.Value) {
			continue
		}
		after := workload.DeepCopy()
		after.Spec.Priority = &class.Value
		if err := r.client.Patch(ctx, after, patch.IfSameUID(workload)); client.IgnoreNotFound(err) != nil {
			problems = append(problems, fmt.Errorf("write priority of quota Workload %s: %w", client.ObjectKeyFromObject(workload), err))
		}
	}
	return ctrl.Result{}, errors.Join(problems...)
}
