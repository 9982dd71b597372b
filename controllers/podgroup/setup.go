// Package podgroup admits gangs of pods: it keeps the quota Workloads of each gang, lets its pods go when they are admitted, and gives
// quota back when pods are over. Which pods are a gang, and what comes next for it, is decided by package admission/podgroup.
//
// A pass reads everything about one gang (read.go), lets that package compute the next step, and writes it in an order that is safe to be
// cut off after any write (write.go). A step that lets pods or quota go is computed once more from what the API server says. At its end the
// status of the PodGroup says how the pods are, unless somebody else writes it (status.go).
//
// Pods of gangs are watched by a cache of their own, which keeps more of each than that of the pods of JobSets does. PodGroups are watched
// in those APIs that are served when the manager starts.
package podgroup

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	k8sevents "k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/device"
	"github.com/tranche-dev/tranche/admission/podgroup"
	"github.com/tranche-dev/tranche/apis"
	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	"github.com/tranche-dev/tranche/controllers/engine"
	"github.com/tranche-dev/tranche/controllers/served"
)

const (
	defaultWorkers  = 4
	defaultReleases = 16

	firstRetry   = 5 * time.Millisecond
	longestRetry = 15 * time.Second
	// toldPerSecond and toldBurst bound the gangs that are told something new, and toldPods the pods of one gang that are. Whose turn has not
	// come is looked at again after tellLater.
	toldPerSecond = 5
	toldBurst     = 50
	toldPods      = 8
	tellLater     = time.Second

	// indexGang finds the pods and quota Workloads of a gang.
	indexGang = "tranche.dev/gang"
)

// A Config says what the controller of gangs works with.
type Config struct {
	// Runner owns the admission engine.
	Runner *engine.Runner
	// Recorder emits Events.
	Recorder k8sevents.EventRecorder
	// Resources tells which PodGroups there are.
	Resources served.Lister
	// Namespaces selects the namespaces whose gangs are managed, by their labels.
	Namespaces labels.Selector
	// Requeuing says how long a gang is put off that has given back what it had gathered. Its defaults must be set.
	Requeuing configapi.RequeuingStrategy
	// Retention says how long finished quota Workloads are kept, and pods whose quota Workload the manager has deactivated.
	Retention configapi.WorkloadRetentionPolicy
	// Devices say what quota is charged for the devices that pods claim.
	Devices device.Mapping
	// Status says who keeps the status of PodGroups.
	Status configapi.PodGroupStatus
	// Gangs says how long gangs wait, and what becomes of them afterwards.
	Gangs podgroup.Settings
	// Workers is how many gangs are reconciled at the same time. Zero means 4.
	Workers int
	// Releases is how many pods of one gang are let go at the same time. Zero means 16.
	Releases int
}

func (c *Config) validate() error {
	if c.Runner == nil || c.Recorder == nil || c.Resources == nil || c.Namespaces == nil {
		return errors.New("podgroup.Config: Runner, Recorder, Resources and Namespaces are required")
	}
	if c.Requeuing.BackoffBaseSeconds == nil {
		return errors.New("podgroup.Config: the defaults of Requeuing are not set")
	}
	if c.Gangs.Wait <= 0 {
		return fmt.Errorf("podgroup.Config: Gangs.Wait is %s, must be positive", c.Gangs.Wait)
	}
	if c.Workers < 0 || c.Releases < 0 {
		return fmt.Errorf("podgroup.Config: Workers is %d and Releases is %d, must not be negative", c.Workers, c.Releases)
	}
	if c.Workers == 0 {
		c.Workers = defaultWorkers
	}
	if c.Releases == 0 {
		c.Releases = defaultReleases
	}
	return nil
}

// A Reconciler admits gangs of pods.
type Reconciler struct {
	config Config
	client client.Client
	// pods reads the pods of gangs from their cache, live everything past any cache.
	pods, live client.Reader
	apis       podGroupAPIs
	statuses   statusAPIs
	told       flowcontrol.RateLimiter
	queue      workqueue.TypedRateLimitingInterface[reconcile.Request]

	// mu guards what this process remembers of gangs, only to tell each news once. It can be forgotten.
	mu     sync.Mutex
	memory map[podgroup.Ref]*memory
	// watchers are the gangs that name a gang as one that they start together with.
	watchers map[podgroup.Ref]map[podgroup.Ref]struct{}
}

// SetupWithManager starts the controller of gangs, and feeds the plans of gangs that gather their quota to the engine.
func SetupWithManager(ctx context.Context, mgr ctrl.Manager, config Config) error {
	if err := config.validate(); err != nil {
		return err
	}
	podGroups, err := servedAPIs(config.Resources)
	if err != nil {
		return err
	}
	statuses, err := servedStatus(config.Resources, podGroups)
	if err != nil {
		return err
	}
	pods, err := newPodCache(mgr)
	if err != nil {
		return err
	}
	r := &Reconciler{
		config: config, client: mgr.GetClient(), pods: pods, live: mgr.GetAPIReader(), apis: podGroups, statuses: statuses,
		told: flowcontrol.NewTokenBucketRateLimiter(toldPerSecond, toldBurst), memory: map[podgroup.Ref]*memory{}, watchers: map[podgroup.Ref]map[podgroup.Ref]struct{}{},
	}
	if err := addIndexes(ctx, mgr, pods); err != nil {
		return err
	}
	config.Runner.BeforeFirst(r.feedPlans)
	leads := ctrl.NewControllerManagedBy(mgr)
	for kind, versions := range podGroups {
		for _, gvk := range versions {
			object := &unstructured.Unstructured{}
			object.SetGroupVersionKind(gvk)
			leads.Watches(object, handler.EnqueueRequestsFromMapFunc(func(_ context.Context, object client.Object) []reconcile.Request {
				if isOfJobSet(object) {
					return nil
				}
				return []reconcile.Request{requestOf(podgroup.Ref{Kind: kind, Namespace: object.GetNamespace(), Name: object.GetName()})}
			}))
		}
	}
	return leads.
		Named("podgroup").
		Watches(&kueue.Workload{}, handler.EnqueueRequestsFromMapFunc(gangOfWorkload)).
		WatchesRawSource(source.Kind(pods, &corev1.Pod{}, handler.TypedEnqueueRequestsFromMapFunc(gangOfPod))).
		WatchesRawSource(source.Kind(mgr.GetCache(), &resourcev1.ResourceClaim{}, handler.TypedEnqueueRequestsFromMapFunc(r.gangOfClaim))).
		WatchesRawSource(source.Kind(mgr.GetCache(), &resourcev1.ResourceClaimTemplate{}, handler.TypedEnqueueRequestsFromMapFunc(r.gangsOfTemplate))).
		WatchesRawSource(source.Func(r.keepQueue)).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: config.Workers,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, longestRetry),
		}).
		Complete(r)
}

// newPodCache watches the pods of gangs, and nothing else.
func newPodCache(mgr ctrl.Manager) (cache.Cache, error) {
	members := labels.SelectorFromSet(labels.Set{apis.PodGroupMemberLabel: apis.PodGroupMemberValue})
	pods, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		ByObject: map[client.Object]cache.ByObject{&corev1.Pod{}: {Label: members, Transform: stripPod}},
	})
	if err != nil {
		return nil, fmt.Errorf("set up the cache of pods of gangs: %w", err)
	}
	if err := mgr.Add(pods); err != nil {
		return nil, fmt.Errorf("start the cache of pods of gangs: %w", err)
	}
	return pods, nil
}

func addIndexes(ctx context.Context, mgr ctrl.Manager, pods cache.Cache) error {
	err := errors.Join(
		pods.IndexField(ctx, &corev1.Pod{}, indexGang, func(object client.Object) []string {
			if pod, ok := object.(*corev1.Pod); ok {
				if ref, named := podgroup.RefOf(pod); named {
					return []string{ref.String()}
				}
			}
			return nil
		}),
		mgr.GetFieldIndexer().IndexField(ctx, &kueue.Workload{}, indexGang, func(object client.Object) []string {
			if ref, ok := refOfWorkload(object); ok {
				return []string{ref.String()}
			}
			return nil
		}),
	)
	if err != nil {
		return fmt.Errorf("index by gang: %w", err)
	}
	return nil
}

func requestOf(ref podgroup.Ref) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: ref.Namespace, Name: ref.String()}}
}

func refOfWorkload(object client.Object) (podgroup.Ref, bool) {
	return podgroup.ParseRef(object.GetNamespace(), object.GetAnnotations()[apis.PodGroupKey])
}

func gangOfWorkload(_ context.Context, object client.Object) []reconcile.Request {
	if ref, ok := refOfWorkload(object); ok {
		return []reconcile.Request{requestOf(ref)}
	}
	return nil
}

func gangOfPod(_ context.Context, pod *corev1.Pod) []reconcile.Request {
	if ref, ok := podgroup.RefOf(pod); ok {
		return []reconcile.Request{requestOf(ref)}
	}
	return nil
}

// keepQueue remembers the queue of the controller, so that a gang can have those looked at that start together with it.
func (r *Reconciler) keepQueue(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queue = queue
	return nil
}

// Reconcile brings one gang a step further.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	ref, ok := podgroup.ParseRef(req.Namespace, req.Name)
	if !ok {
		return ctrl.Result{}, nil
	}
	s, err := r.read(ctx, ref, r.cached())
	if err != nil {
		return ctrl.Result{}, err
	}
	if s == nil {
		r.leave(ref)
		return ctrl.Result{}, nil
	}
	step := podgroup.Next(&s.Seen, time.Now())
	if step.NeedsLive() {
		if s, err = r.read(ctx, ref, r.past()); err != nil || s == nil {
			return ctrl.Result{Requeue: err == nil}, err //nolint:staticcheck // the namespace has just gone: the next pass takes leave of the gang
		}
		step = podgroup.Next(&s.Seen, time.Now())
	}
	return r.write(ctx, s, step)
}
