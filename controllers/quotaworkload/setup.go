// Package quotaworkload feeds quota Workloads to the engine. What the engine decides about them is written by the engine's own
// writers, and their stages are led by the controller of their JobSet.
package quotaworkload

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/controllers/engine"
)

// SetupWithManager starts to watch quota Workloads.
func SetupWithManager(ctx context.Context, mgr ctrl.Manager, runner *engine.Runner) error {
	return engine.Watch(ctx, mgr, runner, &kueue.Workload{}, engine.Source[*kueue.Workload]{
		Observed: func(workload *kueue.Workload) admission.Event { return admission.WorkloadObserved{Workload: workload} },
		Gone: func(workload *kueue.Workload) admission.Event {
			return admission.WorkloadGone{Key: client.ObjectKeyFromObject(workload)}
		},
	})
}
