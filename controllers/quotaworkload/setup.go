// Package quotaworkload feeds quota Workloads to the engine, and handles the part of their lifecycle that concerns a single Workload: the
// AdmissionChecks between its reservation and its admission, its timeouts, its deactivation, and its return to the queue. The engine's own
// writers write decisions about quota, and the JobSet controller of Tranche handles the Jobs of a stage.
//
// A reconcile reads the state of one Workload (read.go), lets package workloadstatus compute from that and the time what to write, does one
// write, and emits the Events about it (write.go). The change triggers the next reconcile.
package quotaworkload

import (
	"context"
	"errors"
	"fmt"
	"time"

	k8sevents "k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/quotaworkload"
	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	"github.com/tranche-dev/tranche/controllers/engine"
	"github.com/tranche-dev/tranche/controllers/internal/fairqueue"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

const (
	// indexUnchecked finds the quota Workloads that wait for AdmissionChecks of a ClusterQueue.
	indexUnchecked = "tranche.dev/unchecked-in"
	// indexStopped finds the quota Workloads that were evicted because their LocalQueue or its ClusterQueue was stopped.
	indexStopped = "tranche.dev/stopped-in"
	// indexClusterQueue finds the LocalQueues of a ClusterQueue.
	indexClusterQueue = "tranche.dev/cluster-queue"
)

// A Config configures the controller of quota Workloads.
type Config struct {
	// Runner owns the admission engine.
	Runner *engine.Runner
	// Client reads from the cache and writes.
	Client client.Client
	// Live reads past the cache.
	Live client.Reader
	// Recorder emits Events.
	Recorder k8sevents.EventRecorder
	// PodsReady configures how long the pods of an admitted Workload may take to be ready. Its defaults must be set.
	PodsReady configapi.WaitForPodsReady
	// Gates are the feature gates of Kueue that are on.
	Gates configapi.FeatureGates
	// Workers is how many Workloads are reconciled at the same time.
	Workers int
}

func (c *Config) validate() error {
	if c.Runner == nil || c.Client == nil || c.Live == nil || c.Recorder == nil {
		return errors.New("quotaworkload.Config: Runner, Client, Live and Recorder are required")
	}
	if c.PodsReady.Enable == nil {
		return errors.New("quotaworkload.Config: the defaults of PodsReady are not set")
	}
	if c.Workers <= 0 {
		return fmt.Errorf("quotaworkload.Config: Workers is %d, must be positive", c.Workers)
	}
	return nil
}

// A Reconciler handles the lifecycle of quota Workloads.
type Reconciler struct {
	config Config
}

// SetupWithManager starts to watch and to reconcile quota Workloads.
func SetupWithManager(ctx context.Context, mgr ctrl.Manager, config Config) error {
	if err := config.validate(); err != nil {
		return err
	}
	err := engine.Watch(ctx, mgr, config.Runner,
		func(w *kueue.Workload) admission.Event { return admission.WorkloadObserved{Workload: w} },
		func(w *kueue.Workload) admission.Event {
			return admission.WorkloadGone{Key: client.ObjectKeyFromObject(w), UID: w.UID}
		})
	if err != nil {
		return err
	}
	if err := addIndexes(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	r := &Reconciler{config: config}
	changed := builder.WithPredicates(predicate.GenerationChangedPredicate{})
	return ctrl.NewControllerManagedBy(mgr).
		Named("quotaworkload").
		For(&kueue.Workload{}, builder.WithPredicates(predicate.NewPredicateFuncs(func(w client.Object) bool { return r.hasStep(w, time.Now()) }))).
		Watches(&kueue.ClusterQueue{}, handler.EnqueueRequestsFromMapFunc(r.ofClusterQueue), changed).
		Watches(&kueue.LocalQueue{}, handler.EnqueueRequestsFromMapFunc(r.ofLocalQueue), changed).
		WithOptions(fairqueue.Options(config.Workers, r.holdsQuota)).
		Complete(reconcile.AsReconciler(config.Client, r))
}

// holdsQuota reports whether a quota Workload holds quota and has not finished, according to the cache.
func (r *Reconciler) holdsQuota(request reconcile.Request) bool {
	var workload kueue.Workload
	err := r.config.Client.Get(context.Background(), request.NamespacedName, &workload, client.UnsafeDisableDeepCopy)
	return err == nil && quotaworkload.IsCharged(&workload)
}

// hasStep reports whether there may be a step for a quota Workload. There is none for most that wait: without this, a manager that starts to lead would reconcile
// a hundred thousand of them before the few in which something has to be done.
func (r *Reconciler) hasStep(object client.Object, now time.Time) bool {
	workload, ok := object.(*kueue.Workload)
	if !ok {
		return false
	}
	if r.needsRead(workload, now) {
		return true
	}
	step := workloadstatus.Next(&workloadstatus.Snapshot{Workload: workload, Gates: r.config.Gates}, &r.config.PodsReady, now)
	return step.RequeueAfter > 0 || writesAnything(workload, step)
}

func addIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	for _, index := range []struct {
		kind client.Object
		name string
		f    func(client.Object) []string
	}{
		{&kueue.Workload{}, indexUnchecked, uncheckedIn},
		{&kueue.Workload{}, indexStopped, stoppedIn},
		{&kueue.LocalQueue{}, indexClusterQueue, clusterQueueOf},
	} {
		if err := indexer.IndexField(ctx, index.kind, index.name, index.f); err != nil {
			return fmt.Errorf("index %T by %s: %w", index.kind, index.name, err)
		}
	}
	return nil
}

func uncheckedIn(object client.Object) []string {
	workload, ok := object.(*kueue.Workload)
	if !ok || workload.Status.Admission == nil || quotaworkload.IsTrue(workload, kueue.WorkloadAdmitted) {
		return nil
	}
	return []string{string(workload.Status.Admission.ClusterQueue)}
}

func stoppedIn(object client.Object) []string {
	workload, ok := object.(*kueue.Workload)
	if !ok || !workloadstatus.IsStopped(workload) {
		return nil
	}
	return []string{string(workload.Spec.QueueName)}
}

func clusterQueueOf(object client.Object) []string {
	queue, ok := object.(*kueue.LocalQueue)
	if !ok {
		return nil
	}
	return []string{string(queue.Spec.ClusterQueue)}
}

// ofClusterQueue maps a ClusterQueue to the quota Workloads that depend on its checks or on its stopPolicy.
func (r *Reconciler) ofClusterQueue(ctx context.Context, object client.Object) []reconcile.Request {
	requests := r.workloads(ctx, client.MatchingFields{indexUnchecked: object.GetName()})
	var queues kueue.LocalQueueList
	if err := r.config.Client.List(ctx, &queues, client.MatchingFields{indexClusterQueue: object.GetName()}, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing LocalQueues", "because of", object.GetName())
	}
	for i := range queues.Items {
		requests = append(requests, r.ofLocalQueue(ctx, &queues.Items[i])...)
	}
	return requests
}

// ofLocalQueue maps a LocalQueue to the quota Workloads that wait until it is resumed, or exists again.
func (r *Reconciler) ofLocalQueue(ctx context.Context, object client.Object) []reconcile.Request {
	return r.workloads(ctx, client.InNamespace(object.GetNamespace()), client.MatchingFields{indexStopped: object.GetName()})
}

func (r *Reconciler) workloads(ctx context.Context, options ...client.ListOption) []reconcile.Request {
	var list kueue.WorkloadList
	if err := r.config.Client.List(ctx, &list, append(options, client.UnsafeDisableDeepCopy)...); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing quota Workloads of a queue")
		return nil
	}
	var requests []reconcile.Request
	for i := range list.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return requests
}

// Reconcile takes the next step for one quota Workload.
func (r *Reconciler) Reconcile(ctx context.Context, workload *kueue.Workload) (ctrl.Result, error) {
	s, err := r.read(ctx, workload)
	if err != nil {
		return ctrl.Result{}, err
	}
	return r.write(ctx, s, workloadstatus.Next(s, &r.config.PodsReady, time.Now()))
}
