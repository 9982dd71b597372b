// Package stagesafety keeps staged JobSets free of deadlocks where Kueue's manager admits their quota Workloads.
//
// Kueue may reserve quota for any quota Workload without a gate, at any time. So the engine is asked twice (decision 34):
//
//   - The stage controller asks through Safety before it opens a stage. Safety has an event for a JobSet whose answer may have changed.
//   - The controller of AdmissionChecks with the controllerName tranche.dev/stage-safety answers Ready or Retry for each reservation, one after the
//     other. Quota Workloads that are no stages of JobSets are Ready at once. If quota is removed later and not all JobSets can finish with what is
//     left, it changes its answer for the stages of the cheapest ones to Retry, and Kueue's manager evicts them.
package stagesafety

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/controllers/engine"
	"github.com/tranche-dev/tranche/controllers/internal/fairqueue"
)

// indexPending lists quota Workloads by the AdmissionChecks that are pending.
const indexPending = "tranche.dev/pending-check"

// A Config configures the controllers of this package.
type Config struct {
	// Runner owns the admission engine.
	Runner *engine.Runner
	// Client reads from the cache, and writes. Live reads past the cache.
	Client client.Client
	Live   client.Reader
	// Workers is how many quota Workloads are judged at the same time. The engine still answers one after the other.
	Workers int
}

func (c *Config) validate() error {
	if c.Runner == nil || c.Client == nil || c.Live == nil {
		return errors.New("stagesafety.Config: Runner, Client and Live are required")
	}
	if c.Workers <= 0 {
		return fmt.Errorf("stagesafety.Config: Workers is %d, must be positive", c.Workers)
	}
	return nil
}

// SetupWithManager feeds quota Workloads to the engine, starts the controllers, and returns what the stage controller asks.
func SetupWithManager(ctx context.Context, mgr ctrl.Manager, config Config) (*Safety, error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	safety, revoked := newSafety(config.Runner), newFeed()
	config.Runner.OnRevoked(func(key admission.StageKey) {
		revoked.note(&kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}})
	})
	r := &reconciler{config: config, judge: judge{runner: config.Runner}}
	return safety, errors.Join(
		engine.Watch(ctx, mgr, config.Runner,
			func(w *kueue.Workload) admission.Event { return admission.WorkloadObserved{Workload: w} },
			func(w *kueue.Workload) admission.Event {
				return admission.WorkloadGone{Key: client.ObjectKeyFromObject(w), UID: w.UID}
			}),
		mgr.GetFieldIndexer().IndexField(ctx, &kueue.Workload{}, indexPending, pendingChecks),
		mgr.Add(safety),
		mgr.Add(revoked),
		ctrl.NewControllerManagedBy(mgr).
			Named("stagesafety-check").
			For(&kueue.AdmissionCheck{}).
			WithOptions(fairqueue.Options(1, nil)).
			Complete(reconcile.AsReconciler(config.Client, &activator{client: config.Client})),
		ctrl.NewControllerManagedBy(mgr).
			Named("stagesafety").
			For(&kueue.Workload{}, builder.WithPredicates(predicate.NewPredicateFuncs(isPending))).
			Watches(&kueue.AdmissionCheck{}, handler.EnqueueRequestsFromMapFunc(r.ofCheck)).
			WatchesRawSource(source.Channel(revoked.changes, &handler.EnqueueRequestForObject{})).
			WithOptions(fairqueue.Options(config.Workers, nil)).
			Complete(reconcile.AsReconciler(config.Client, r)),
	)
}

// ofCheck maps an AdmissionCheck to the quota Workloads that wait for it: it may be observed after them.
func (r *reconciler) ofCheck(ctx context.Context, check client.Object) []reconcile.Request {
	var list kueue.WorkloadList
	if err := r.config.Client.List(ctx, &list, client.MatchingFields{indexPending: check.GetName()}, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing quota Workloads of an AdmissionCheck")
		return nil
	}
	var requests []reconcile.Request
	for i := range list.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return requests
}

func isPending(object client.Object) bool { return len(pendingChecks(object)) > 0 }
