// Package groupstart lets the main containers of a group of pods start together (KEP-498). The pods wait in an init container that an
// admission policy adds to their Jobs. The controller counts the waiting pods, and when all of them wait it releases them in the ConfigMap
// of the group, which each of them mounts. That is one write for each group and attempt, whatever the number of pods, and one that removes
// the file started before the next attempt. Package barrier passes the release on to the pods.
//
//	JobSet queued      ConfigMap created, with a token         pods mount it when they are created
//	stage released     pods start, each runs the init container and waits
//	the last started   ConfigMap lists the Jobs of the group   init containers end, main containers start
//	restart, eviction  other Jobs, or another release of them: the list does not apply to their pods, and the file started is removed
//
// A reconcile reads everything about one JobSet (read.go), computes what to write without I/O (desired.go, group.go), and writes it
// (write.go).
package groupstart

import (
	"context"
	"errors"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	k8sevents "k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/controllers/groupstart/barrier"
	"github.com/tranche-dev/tranche/controllers/internal/fairqueue"
	"github.com/tranche-dev/tranche/controllers/internal/informer"
	"github.com/tranche-dev/tranche/controllers/metrics"
)

const (
	// settle is how long to wait for more pods of a group to start before they are counted again: counting costs as much as there are pods.
	settle = 20 * time.Millisecond
	// retryAfter is when a write that the API server has rejected is retried.
	retryAfter = time.Minute
	workers    = 4

	// indexGroup finds the Jobs and pods that are in the group of a JobSet, by its UID.
	indexGroup = "tranche.dev/group"
)

// A Config configures the controller of groups.
type Config struct {
	// Metrics counts groups.
	Metrics *metrics.Metrics
	// Namespaces selects the namespaces whose JobSets are managed, by their labels.
	Namespaces labels.Selector
	// WithoutQueueName is true if JobSets without a queue name are managed, too.
	WithoutQueueName bool
	// Injected is true if the admission policies make pods wait.
	Injected bool
	// Server configures the server for pods. Its defaults must be set.
	Server configapi.GroupStart
}

func (c *Config) validate() error {
	if c.Metrics == nil || c.Namespaces == nil || c.Server.MaxWaiters == nil {
		return errors.New("groupstart.Config: Metrics, Namespaces and the defaults of Server are required")
	}
	return nil
}

// isServed reports whether pods can ask the manager.
func (c *Config) isServed() bool { return c.Server.BindAddress != "0" }

// A Reconciler lets groups start. It is also the Counter for the Server of package barrier, whether or not this process leads.
type Reconciler struct {
	config Config
	client client.Client
	// live reads past the cache, which has only the ConfigMaps of groups.
	live     client.Reader
	recorder k8sevents.EventRecorder
}

// SetupWithManager adds the controller of groups to a manager, and the server for their pods, unless it is turned off.
func SetupWithManager(ctx context.Context, mgr ctrl.Manager, config Config) error {
	if err := config.validate(); err != nil {
		return err
	}
	r := &Reconciler{config: config, client: mgr.GetClient(), live: mgr.GetAPIReader(), recorder: mgr.GetEventRecorder("tranche")}
	if err := r.setUp(ctx, mgr); err != nil || !config.isServed() {
		return err
	}
	notices := barrier.NewNoticeStore(int(*config.Server.MaxWaiters))
	_, err := informer.Watch(ctx, mgr.GetCache(), &corev1.ConfigMap{}, informer.Handler[*corev1.ConfigMap]{
		Added: notices.Observe, Changed: func(_, after *corev1.ConfigMap) { notices.Observe(after) }, Deleted: notices.Remove,
	})
	if err != nil {
		return err
	}
	return mgr.Add(barrier.NewServer(notices, r, config.Server.BindAddress))
}

func (r *Reconciler) setUp(ctx context.Context, mgr ctrl.Manager) error {
	for _, kind := range []client.Object{&batchv1.Job{}, &corev1.Pod{}} {
		if err := mgr.GetFieldIndexer().IndexField(ctx, kind, indexGroup, groupUID); err != nil {
			return fmt.Errorf("index %T by group: %w", kind, err)
		}
	}
	asking := predicate.NewPredicateFuncs(func(object client.Object) bool {
		js, ok := object.(*jobsetapi.JobSet)
		return ok && asks(js)
	})
	inGroup := predicate.NewPredicateFuncs(func(object client.Object) bool { return groupUID(object) != nil })
	return ctrl.NewControllerManagedBy(mgr).
		Named("group-start").
		For(&jobsetapi.JobSet{}, builder.WithPredicates(asking)).
		Watches(&batchv1.Job{}, handler.EnqueueRequestsFromMapFunc(byLabel(jobset.JobSetNameKey)), builder.WithPredicates(inGroup)).
		Watches(&corev1.Pod{}, settled(byLabel(jobset.JobSetNameKey)), builder.WithPredicates(inGroup, starts())).
		Watches(&kueue.Workload{}, handler.EnqueueRequestsFromMapFunc(byLabel(apis.JobSetLabel)), builder.WithPredicates(recordsSuccess())).
		Watches(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(byLabel(apis.JobSetLabel))).
		WithOptions(fairqueue.Options(workers, nil)).
		Complete(r)
}

// recordsSuccess selects the quota Workloads that record another Job as succeeded. The cache may show that record later than the new state
// of the Job.
func recordsSuccess() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.GetAnnotations()[apis.SucceededJobsAnnotation] != e.ObjectNew.GetAnnotations()[apis.SucceededJobsAnnotation]
	}, CreateFunc: func(event.CreateEvent) bool { return false }, DeleteFunc: func(event.DeleteEvent) bool { return false }}
}

// groupUID indexes Jobs and pods that are in a group by the UID of their JobSet.
func groupUID(object client.Object) []string {
	mark := apis.GroupStartAnnotation
	if _, isPod := object.(*corev1.Pod); isPod {
		mark = apis.ReleaseAnnotation
	}
	if uid := object.GetLabels()[jobset.JobSetUIDKey]; uid != "" && object.GetAnnotations()[mark] != "" {
		return []string{uid}
	}
	return nil
}

func byLabel(label string) handler.MapFunc {
	return func(_ context.Context, object client.Object) []reconcile.Request {
		if name := object.GetLabels()[label]; name != "" {
			return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: object.GetNamespace(), Name: name}}}
		}
		return nil
	}
}

// settled requests a reconcile a moment later, so that many pods that start at the same time are counted once.
func settled(to handler.MapFunc) handler.EventHandler {
	add := func(ctx context.Context, object client.Object, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
		for _, request := range to(ctx, object) {
			queue.AddAfter(request, settle)
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			add(ctx, e.Object, queue)
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			add(ctx, e.ObjectNew, queue)
		},
	}
}

// starts passes pods that begin to count, or that have timed out. A deleted pod does not complete a group.
func starts() predicate.Predicate {
	type state struct{ hasStarted, hasGivenUp bool }
	stateOf := func(object client.Object) state {
		pod, ok := object.(*corev1.Pod)
		return state{ok && hasStarted(pod), ok && hasGivenUp(pod)}
	}
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return stateOf(e.Object) != state{} },
		UpdateFunc: func(e event.UpdateEvent) bool {
			s := stateOf(e.ObjectNew)
			return s != state{} && s != stateOf(e.ObjectOld)
		},
		DeleteFunc: func(event.DeleteEvent) bool { return false },
	}
}

// Reconcile takes the next step for one group.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	s, err := r.read(ctx, req.NamespacedName)
	if err != nil {
		return ctrl.Result{}, err
	}
	if s == nil {
		r.config.Metrics.GroupWaitsNot(req.NamespacedName)
		return ctrl.Result{}, nil
	}
	return r.write(ctx, s, desired(s))
}
