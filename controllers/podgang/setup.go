// Package podgang admits gangs of pods: it keeps the quota Workloads of each gang, ungates its pods when they are admitted, and releases
// quota when pods have terminated. Package lifecycle/podgang decides which pods are a gang, and computes its next step.
//
// A reconcile reads everything about one gang (read.go), lets that package compute the next step, and writes it in an order that can be
// interrupted after any write (write.go). A step that ungates pods or releases quota is computed a second time from live reads. At the end
// the controller writes the state of the pods into the status of the PodGroup, unless another client writes that status (status.go).
//
// The pods of gangs have a cache of their own, which keeps more of each pod than the cache for the pods of JobSets. PodGroups are watched
// in the APIs that are served when the manager starts.
package podgang

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	k8sevents "k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/device"
	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	"github.com/tranche-dev/tranche/controllers/apiwatch"
	"github.com/tranche-dev/tranche/controllers/engine"
	"github.com/tranche-dev/tranche/controllers/internal/apply"
	"github.com/tranche-dev/tranche/controllers/internal/fairqueue"
	"github.com/tranche-dev/tranche/controllers/metrics"
	"github.com/tranche-dev/tranche/lifecycle/podgang"
	"github.com/tranche-dev/tranche/lifecycle/podgroup"
)

const (
	// reportsPerSecond and reportBurst limit the gangs that get Events, and reportedPods the pods of one gang that do. A gang over the limit is
	// reconciled again after reportLater.
	reportsPerSecond = 5
	reportBurst      = 50
	reportedPods     = 8
	reportLater      = time.Second

	// indexGang finds the pods, Jobs and quota Workloads of a gang.
	indexGang = "tranche.dev/gang"
	// indexController finds by the UID of a controller the quota Workloads that its other pods may take over, and these pods.
	indexController = "tranche.dev/controller"
)

// A Config configures the controller of gangs.
type Config struct {
	// Runner owns the admission engine.
	Runner *engine.Runner
	// Recorder emits Events.
	Recorder k8sevents.EventRecorder
	// Metrics records how fast pods are ungated.
	Metrics *metrics.Metrics
	// Pods has the pods of gangs, as NewPodCache returns it.
	Pods cache.Cache
	// Resources lists the APIs of PodGroups that are served.
	Resources apiwatch.Lister
	// Namespaces selects the namespaces whose gangs are managed, by their labels.
	Namespaces labels.Selector
	// Requeuing configures the requeue delay of a gang that has released its partial quota. Its defaults must be set.
	Requeuing configapi.RequeuingStrategy
	// Retention configures how long finished quota Workloads are kept, and pods whose quota Workload the manager has deactivated.
	Retention configapi.WorkloadRetentionPolicy
	// Devices maps the devices that pods claim to the resources that are charged for them.
	Devices device.Mapping
	// Status configures which controller keeps the status of PodGroups.
	Status configapi.PodGroupStatus
	// Gangs configures how long gangs wait, and what happens to them afterwards.
	Gangs podgroup.Settings
	// MaxPodPriority is the highest priority that a PriorityClass of pods gives.
	MaxPodPriority int32
	// Workers is how many gangs are reconciled at the same time.
	Workers int
	// Releases is how many pods of one gang are ungated at the same time.
	Releases int
}

func (c *Config) validate() error {
	if c.Runner == nil || c.Recorder == nil || c.Metrics == nil || c.Pods == nil || c.Resources == nil || c.Namespaces == nil {
		return errors.New("podgang.Config: Runner, Recorder, Metrics, Pods, Resources and Namespaces are required")
	}
	if c.Requeuing.BackoffBaseSeconds == nil {
		return errors.New("podgang.Config: the defaults of Requeuing are not set")
	}
	if c.Gangs.Wait <= 0 {
		return fmt.Errorf("podgang.Config: Gangs.Wait is %s, must be positive", c.Gangs.Wait)
	}
	if c.Workers <= 0 || c.Releases <= 0 {
		return fmt.Errorf("podgang.Config: Workers is %d and Releases is %d, must be positive", c.Workers, c.Releases)
	}
	return nil
}

// A Reconciler admits gangs of pods.
type Reconciler struct {
	config Config
	client client.Client
	writer apply.Writer
	// pods reads the pods of gangs from their cache; live reads everything past any cache.
	pods, live client.Reader
	apis       podGroupAPIs
	// statuses has the APIs of PodGroups whose status has a subresource.
	statuses sets.Set[schema.GroupVersionKind]
	// reports limits the reports about gangs.
	reports flowcontrol.RateLimiter
	// queue is the queue of the controller. A gang is added when a peer has changed.
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]

	// mu guards the two maps of the memory of gangs, which only prevents repeated reports. It can be forgotten.
	mu       sync.Mutex
	gangMemo map[podgroup.Ref]*gangMemo
	// watchers maps a gang to the gangs that name it as a peer.
	watchers map[podgroup.Ref]sets.Set[podgroup.Ref]
}

// SetupWithManager starts the controller of gangs, and sends the plans of gangs with several parts to the engine.
func SetupWithManager(ctx context.Context, mgr ctrl.Manager, config Config) error {
	if err := config.validate(); err != nil {
		return err
	}
	podGroups, statuses, err := servedAPIs(config.Resources)
	if err != nil {
		return err
	}
	pods := config.Pods
	r := &Reconciler{
		config: config, client: mgr.GetClient(), pods: pods, live: mgr.GetAPIReader(), apis: podGroups, statuses: statuses,
		reports: flowcontrol.NewTokenBucketRateLimiter(reportsPerSecond, reportBurst), gangMemo: map[podgroup.Ref]*gangMemo{}, watchers: map[podgroup.Ref]sets.Set[podgroup.Ref]{},
		writer: apply.Writer{Client: mgr.GetClient(), Runner: config.Runner, Recorder: config.Recorder, Parallel: config.Releases},
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
	if len(config.Devices) > 0 {
		leads.WatchesRawSource(source.Kind(mgr.GetCache(), &resourcev1.ResourceClaim{}, handler.TypedEnqueueRequestsFromMapFunc(r.gangOfClaim)))
		leads.WatchesRawSource(source.Kind(mgr.GetCache(), &resourcev1.ResourceClaimTemplate{}, handler.TypedEnqueueRequestsFromMapFunc(r.gangsOfTemplate)))
	}
	return leads.
		Named("podgroup").
		Watches(&kueue.Workload{}, handler.EnqueueRequestsFromMapFunc(r.gangsOfWorkload)).
		Watches(&batchv1.Job{}, handler.EnqueueRequestsFromMapFunc(gangOfJob), builder.WithPredicates(jobDiffers())).
		WatchesRawSource(source.Kind(pods, &corev1.Pod{}, handler.TypedEnqueueRequestsFromMapFunc(gangOfPod))).
		WatchesRawSource(source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			r.queue = queue
			return nil
		})).
		WithOptions(fairqueue.Options(config.Workers, r.holdsQuota)).
		Complete(r)
}

// NewPodCache watches the pods of gangs, and nothing else.
func NewPodCache(mgr ctrl.Manager) (cache.Cache, error) {
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
		pods.IndexField(ctx, &corev1.Pod{}, indexController, func(object client.Object) []string {
			if pod, ok := object.(*corev1.Pod); ok {
				return podgang.ControllerOfReplacement(pod)
			}
			return nil
		}),
		mgr.GetFieldIndexer().IndexField(ctx, &kueue.Workload{}, indexController, func(object client.Object) []string {
			if w, ok := object.(*kueue.Workload); ok {
				return podgang.ControllersOfReplaced(w)
			}
			return nil
		}),
		mgr.GetFieldIndexer().IndexField(ctx, &batchv1.Job{}, indexGang, func(object client.Object) []string {
			if job, ok := object.(*batchv1.Job); ok {
				if ref, named := podgroup.RefOfJob(job); named {
					return []string{ref.String()}
				}
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

// holdsQuota reports whether a quota Workload of a gang holds quota, according to the cache.
func (r *Reconciler) holdsQuota(request reconcile.Request) bool {
	var list kueue.WorkloadList
	err := r.client.List(context.Background(), &list, client.InNamespace(request.Namespace), client.MatchingFields{indexGang: request.Name}, client.UnsafeDisableDeepCopy)
	return err == nil && quotaworkload.AnyCharged(list.Items)
}

func refOfWorkload(object client.Object) (podgroup.Ref, bool) {
	return podgroup.ParseRef(object.GetNamespace(), object.GetAnnotations()[apis.PodGroupKey])
}

// gangsOfWorkload maps a quota Workload to its gang, and to the pods that wait for it to be handed over.
func (r *Reconciler) gangsOfWorkload(ctx context.Context, object client.Object) []reconcile.Request {
	var requests []reconcile.Request
	if ref, ok := refOfWorkload(object); ok {
		requests = append(requests, requestOf(ref))
	}
	workload, ok := object.(*kueue.Workload)
	if !ok {
		return requests
	}
	for _, controller := range podgang.ControllersOfReplaced(workload) {
		var pods corev1.PodList
		err := r.pods.List(ctx, &pods, client.InNamespace(workload.Namespace), client.MatchingFields{indexController: controller}, client.UnsafeDisableDeepCopy)
		if err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Listing pods that wait for a quota Workload", "workload", client.ObjectKeyFromObject(workload))
			continue
		}
		for i := range pods.Items {
			requests = append(requests, gangOfPod(ctx, &pods.Items[i])...)
		}
	}
	return requests
}

func gangOfPod(_ context.Context, pod *corev1.Pod) []reconcile.Request {
	if ref, ok := podgroup.RefOf(pod); ok {
		return []reconcile.Request{requestOf(ref)}
	}
	return nil
}

// gangOfJob maps a Job to the gang that its pods name.
func gangOfJob(_ context.Context, object client.Object) []reconcile.Request {
	if job, ok := object.(*batchv1.Job); ok {
		if ref, named := podgroup.RefOfJob(job); named {
			return []reconcile.Request{requestOf(ref)}
		}
	}
	return nil
}

// jobDiffers passes the updates of Jobs on which the next step of a gang depends. The gang is also reconciled when a pod of it changes.
func jobDiffers() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		DeleteFunc: func(event.DeleteEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, isJob := e.ObjectOld.(*batchv1.Job)
			after, isStill := e.ObjectNew.(*batchv1.Job)
			return isJob && isStill && podgang.JobDiffers(before, after)
		},
	}
}

// gangOfClaim maps a ResourceClaim to the gang of its pod or of its PodGroup.
func (r *Reconciler) gangOfClaim(ctx context.Context, claim *resourcev1.ResourceClaim) []reconcile.Request {
	owner := metav1.GetControllerOfNoCopy(claim)
	switch {
	case owner != nil && owner.Kind == "PodGroup" && strings.HasPrefix(owner.APIVersion, "scheduling.k8s.io/"):
		return []reconcile.Request{requestOf(podgroup.Ref{Kind: podgroup.Core, Namespace: claim.Namespace, Name: owner.Name})}
	case owner == nil || owner.Kind != "Pod":
		return nil
	}
	var pod corev1.Pod
	// An event will report a pod that the cache lacks.
	if err := r.pods.Get(ctx, types.NamespacedName{Namespace: claim.Namespace, Name: owner.Name}, &pod); err != nil {
		return nil
	}
	return gangOfPod(ctx, &pod)
}

// gangsOfTemplate maps a ResourceClaimTemplate to the gangs of the pods that name it.
func (r *Reconciler) gangsOfTemplate(ctx context.Context, template *resourcev1.ResourceClaimTemplate) []reconcile.Request {
	var pods corev1.PodList
	if err := r.pods.List(ctx, &pods, client.InNamespace(template.Namespace)); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing pods of gangs", "because of", template.Name)
		return nil
	}
	var requests []reconcile.Request
	for i := range pods.Items {
		if slices.ContainsFunc(pods.Items[i].Spec.ResourceClaims, func(c corev1.PodResourceClaim) bool {
			return ptr.Deref(c.ResourceClaimTemplateName, "") == template.Name
		}) {
			requests = append(requests, gangOfPod(ctx, &pods.Items[i])...)
		}
	}
	return requests
}

// Reconcile takes the next step for one gang.
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
	step := podgang.Next(&s.Snapshot, time.Now())
	if step.NeedsLive() {
		if s, err = r.read(ctx, ref, r.past()); err != nil || s == nil {
			return ctrl.Result{Requeue: err == nil}, err //nolint:staticcheck // the namespace was just deleted: the next reconcile forgets the gang
		}
		step = podgang.Next(&s.Snapshot, time.Now())
	}
	return r.write(ctx, s, step)
}
