// Package cohort feeds Cohorts to the engine and writes their status.
package cohort

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/controllers/conditions"
	"github.com/tranche-dev/tranche/controllers/engine"
)

// A Reconciler writes the engine's view of Cohorts into their status.
type Reconciler struct {
	client client.Client
	runner *engine.Runner
}

// SetupWithManager starts to watch Cohorts and to write their status.
func SetupWithManager(ctx context.Context, mgr ctrl.Manager, runner *engine.Runner) error {
	err := engine.Watch(ctx, mgr, runner, &kueue.Cohort{}, engine.Source[*kueue.Cohort]{
		Observed: func(cohort *kueue.Cohort) admission.Event { return admission.CohortObserved{Cohort: cohort} },
		Differs: func(before, after *kueue.Cohort) bool {
			return before.UID != after.UID || before.Generation != after.Generation
		},
		Gone: func(cohort *kueue.Cohort) admission.Event { return admission.CohortGone{Name: cohort.Name} },
	})
	if err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("cohort").
		For(&kueue.Cohort{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(engine.Changes(runner.OnCohortChange, func(name string) reconcile.Request {
			return reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}
		})).
		Complete(&Reconciler{client: mgr.GetClient(), runner: runner})
}

// Reconcile brings the status of one Cohort up to date.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var cohort kueue.Cohort
	if err := r.client.Get(ctx, req.NamespacedName, &cohort); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	var view admission.CohortView
	var known bool
	if err := r.runner.View(ctx, func(e *admission.Engine) { view, known = e.Cohort(cohort.Name) }); err != nil || !known {
		return ctrl.Result{}, err
	}
	status := kueue.CohortStatus{FairSharing: view.FairSharing}
	if equality.Semantic.DeepEqual(status, cohort.Status) {
		return ctrl.Result{}, nil
	}
	patch, err := conditions.QueuePatch(&cohort, "Cohort", &status)
	if err != nil {
		return ctrl.Result{}, err
	}
	err = r.client.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(patch), client.FieldOwner(apis.FieldManager), client.ForceOwnership)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("write status of Cohort %s: %w", cohort.Name, err)
	}
	return ctrl.Result{}, nil
}
