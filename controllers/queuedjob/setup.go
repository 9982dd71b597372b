// Package queuedjob is the controller of queued Jobs: Jobs with a queue label that are submissions of their own. It keeps one quota Workload
// for each, releases the Job when that is admitted, and releases quota when the pods have terminated.
//
// A reconcile reads everything about one Job (read.go), lets lifecycle/queuedjob decide what to write, and writes that in the order of a Step
// (write.go). A step that releases quota or stops a Job is computed a second time from live reads: the pods of queued Jobs are not watched,
// because the status of a Job counts them.
package queuedjob

import (
	"context"
	"errors"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	k8sevents "k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/charge"
	"github.com/tranche-dev/tranche/admission/device"
	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	"github.com/tranche-dev/tranche/controllers/engine"
	"github.com/tranche-dev/tranche/controllers/internal/apply"
	"github.com/tranche-dev/tranche/controllers/internal/fairqueue"
	"github.com/tranche-dev/tranche/controllers/internal/ownwrites"
	"github.com/tranche-dev/tranche/controllers/internal/podcost"
	"github.com/tranche-dev/tranche/controllers/metrics"
	"github.com/tranche-dev/tranche/lifecycle/queuedjob"
)

// A Config configures the controller of queued Jobs.
type Config struct {
	// Runner owns the admission engine.
	Runner *engine.Runner
	// Client reads from the cache and writes.
	Client client.Client
	// Recorder emits Events.
	Recorder k8sevents.EventRecorder
	// Metrics counts released Jobs.
	Metrics *metrics.Metrics
	// Devices maps devices to the resources that are charged for them. Jobs that claim other devices are refused.
	Devices device.Mapping
	// Charges determine what is charged for a Job that ran before Tranche was installed.
	Charges charge.Rules
	// Retention configures how long finished quota Workloads are kept, and Jobs that the manager has deactivated.
	Retention configapi.WorkloadRetentionPolicy
	// Namespaces selects the namespaces whose Jobs are managed, by their labels.
	Namespaces labels.Selector
	// MaxPodPriority is the highest priority that a PriorityClass of pods gives.
	MaxPodPriority int32
	// Workers is how many Jobs are reconciled at the same time.
	Workers int
}

func (c *Config) validate() error {
	if c.Runner == nil || c.Client == nil || c.Recorder == nil || c.Metrics == nil || c.Namespaces == nil {
		return errors.New("queuedjob.Config: Runner, Client, Recorder, Metrics and Namespaces are required")
	}
	if c.Workers <= 0 {
		return fmt.Errorf("queuedjob.Config: Workers is %d, must be positive", c.Workers)
	}
	return nil
}

// A Reconciler runs queued Jobs.
type Reconciler struct {
	config Config
	writer apply.Writer
	costs  podcost.Reader
	// writes is the client of config, which knows what the cache does not show yet.
	writes *ownwrites.Client
	// reader reads past the cache.
	reader client.Reader
}

// SetupWithManager starts the controller of queued Jobs.
func SetupWithManager(mgr ctrl.Manager, config Config) error {
	if err := config.validate(); err != nil {
		return err
	}
	writes, err := ownwrites.Follow(config.Client, &batchv1.Job{}, &kueue.Workload{})
	if err != nil {
		return fmt.Errorf("follow the writes about queued Jobs: %w", err)
	}
	config.Client = writes
	r := &Reconciler{
		config: config, writes: writes, reader: mgr.GetAPIReader(), costs: podcost.Reader{Client: config.Client, Devices: config.Devices},
		writer: apply.Writer{Client: config.Client, Runner: config.Runner, Recorder: config.Recorder, Parallel: 1},
	}
	users := handler.EnqueueRequestsFromMapFunc(r.jobsOf)
	leads := ctrl.NewControllerManagedBy(mgr)
	if len(config.Devices) > 0 {
		leads.Watches(&resourcev1.ResourceClaimTemplate{}, users)
	}
	return leads.
		Named("queuedjob").
		For(&batchv1.Job{}, builder.WithPredicates(isHeldBySelf())).
		Watches(&kueue.Workload{}, handler.EnqueueRequestsFromMapFunc(jobOfWorkload)).
		Watches(&corev1.Namespace{}, users, builder.WithPredicates(predicate.LabelChangedPredicate{})).
		Watches(&kueue.WorkloadPriorityClass{}, users).
		Watches(&schedulingv1.PriorityClass{}, users).
		Watches(&corev1.LimitRange{}, users).
		Watches(&nodev1.RuntimeClass{}, users).
		WithOptions(fairqueue.Options(config.Workers, r.mayHoldQuota)).
		Complete(r)
}

// mayHoldQuota reports whether a Job holds quota, according to the cache. A Job that was deleted may, and so may one that was released and has a quota
// Workload of another name.
func (r *Reconciler) mayHoldQuota(request reconcile.Request) bool {
	var job batchv1.Job
	if err := r.config.Client.Get(context.Background(), request.NamespacedName, &job, client.UnsafeDisableDeepCopy); err != nil {
		return apierrors.IsNotFound(err)
	}
	var workload kueue.Workload
	key := types.NamespacedName{Namespace: job.Namespace, Name: queuedjob.WorkloadName(&job)}
	if err := r.config.Client.Get(context.Background(), key, &workload, client.UnsafeDisableDeepCopy); err != nil {
		return !ptr.Deref(job.Spec.Suspend, false)
	}
	return quotaworkload.IsCharged(&workload)
}

// isHeldBySelf passes queued Jobs and those that were there before the admission policies, and no Jobs of JobSets.
func isHeldBySelf() predicate.Predicate {
	return predicate.NewPredicateFuncs(func(object client.Object) bool {
		job, ok := object.(*batchv1.Job)
		return ok && (queuedjob.IsQueued(job) || queuedjob.IsForeign(job))
	})
}

func jobOfWorkload(_ context.Context, object client.Object) []reconcile.Request {
	if name := object.GetLabels()[apis.JobLabel]; name != "" {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: object.GetNamespace(), Name: name}}}
	}
	return nil
}

// jobsOf maps a Namespace or a LimitRange to the queued Jobs of the namespace, a ResourceClaimTemplate to those of them that name it, and a class to all
// queued Jobs that may use it, by name or by default. Such objects change rarely.
func (r *Reconciler) jobsOf(ctx context.Context, object client.Object) []reconcile.Request {
	selected := client.MatchingLabels{apis.HoldLabel: apis.HoldQueued}
	options := []client.ListOption{selected, client.UnsafeDisableDeepCopy}
	uses := func(*batchv1.Job) bool { return true }
	switch object.(type) {
	case *corev1.Namespace:
		options = append(options, client.InNamespace(object.GetName()))
	case *corev1.LimitRange:
		options = append(options, client.InNamespace(object.GetNamespace()))
	case *resourcev1.ResourceClaimTemplate:
		options = append(options, client.InNamespace(object.GetNamespace()))
		uses = func(job *batchv1.Job) bool { return device.Names(&job.Spec.Template.Spec, object.GetName()) }
	case *kueue.WorkloadPriorityClass:
		selected[apis.PriorityClassLabel] = object.GetName()
	}
	var list batchv1.JobList
	if err := r.config.Client.List(ctx, &list, options...); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing Jobs", "because of", object.GetName())
		return nil
	}
	var requests []reconcile.Request
	for i := range list.Items {
		if job := &list.Items[i]; job.Status.CompletionTime == nil && uses(job) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(job)})
		}
	}
	return requests
}

// Reconcile takes the next step for one Job.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	ctx = ownwrites.For(ctx, req.NamespacedName)
	if left, err := r.writes.Wait(ctx, req.NamespacedName); err != nil || left > 0 {
		return ctrl.Result{RequeueAfter: left}, err
	}
	s, err := r.read(ctx, req.NamespacedName, r.config.Client)
	if apierrors.IsNotFound(err) {
		// Either the namespace is new and the cache lacks it, or it was deleted and the cache still has the Job.
		return ctrl.Result{Requeue: true}, nil //nolint:staticcheck // retried with the back-off of the queue
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	step := queuedjob.Next(s)
	if step.NeedsLive() {
		if s, err = r.read(ctx, req.NamespacedName, r.reader); err == nil {
			err = r.readPods(ctx, s)
		}
		if err != nil {
			return ctrl.Result{Requeue: apierrors.IsNotFound(err)}, client.IgnoreNotFound(err) //nolint:staticcheck // as above
		}
		step = queuedjob.Next(s)
	}
	return r.write(ctx, s, step)
}
