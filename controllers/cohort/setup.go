// Package cohort feeds Cohorts to the engine.
package cohort

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/controllers/engine"
)

// SetupWithManager starts to watch Cohorts.
func SetupWithManager(ctx context.Context, mgr ctrl.Manager, runner *engine.Runner) error {
	return engine.Watch(ctx, mgr, runner, &kueue.Cohort{}, engine.Source[*kueue.Cohort]{
		Observed: func(cohort *kueue.Cohort) admission.Event { return admission.CohortObserved{Cohort: cohort} },
		Differs: func(before, after *kueue.Cohort) bool {
			return before.UID != after.UID || before.Generation != after.Generation
		},
		Gone: func(cohort *kueue.Cohort) admission.Event { return admission.CohortGone{Name: cohort.Name} },
	})
}
