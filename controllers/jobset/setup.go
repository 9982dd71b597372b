// Package jobset is the stage controller: it keeps one quota Workload for each stage of a queued JobSet, opens stages when their start
// conditions are met, releases the child Jobs of admitted stages, and releases quota when the pods of a stage have terminated.
//
// A reconcile reads everything about one JobSet (read.go), lets package stages decide what to write, and writes that in the order of
// a stages.Step (write.go, and a file for each kind of object).
package jobset

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
	"k8s.io/client-go/util/flowcontrol"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/charge"
	"github.com/tranche-dev/tranche/admission/device"
	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/controllers/engine"
	"github.com/tranche-dev/tranche/controllers/gangobjects"
	"github.com/tranche-dev/tranche/controllers/internal/apply"
	"github.com/tranche-dev/tranche/controllers/internal/fairqueue"
	"github.com/tranche-dev/tranche/controllers/internal/ownwrites"
	"github.com/tranche-dev/tranche/controllers/metrics"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstatus"
	"github.com/tranche-dev/tranche/lifecycle/stages"
)

const (
	// waitsPerSecond and waitBurst bound the Events about stages that wait, of which there may be thousands at a time.
	waitsPerSecond = 5
	waitBurst      = 100

	// indexJobSetUID finds the Jobs, pods and quota Workloads of a JobSet by its UID, also when the JobSet is gone.
	indexJobSetUID = "tranche.dev/jobset-uid"
)

// A Config configures the stage controller.
type Config struct {
	// Runner owns the admission engine.
	Runner *engine.Runner
	// Client reads from the cache and writes.
	Client client.Client
	// Recorder emits Events.
	Recorder k8sevents.EventRecorder
	// Metrics counts released Jobs, and quota that waits for other stages.
	Metrics *metrics.Metrics
	// Gangs keeps the objects of gangs.
	Gangs *gangobjects.Registry
	// Waiting is the init container in which the pods of a group wait for each other, as far as it costs quota. If it is nil, no pods wait.
	Waiting *corev1.Container
	// Devices maps devices to the resources that are charged for them. JobSets that claim other devices are refused.
	Devices device.Mapping
	// Charges determine what is charged for a JobSet that ran when Tranche was installed.
	Charges charge.Rules
	// Retention configures how long quota Workloads are kept after they and their JobSet have finished, and how long JobSets that the
	// manager has deactivated.
	Retention configapi.WorkloadRetentionPolicy
	// Namespaces selects the namespaces whose JobSets are managed, by their labels.
	Namespaces labels.Selector
	// WithoutQueueName is true if JobSets without a queue name are held too.
	WithoutQueueName bool
	// Safety is asked whether a stage may open, if another engine admits the quota Workloads. It is nil if Tranche's engine admits them.
	Safety Safety
	// Fields reports whether the API server drops fields of JobSets.
	Fields Fields
	// MaxPodPriority is the highest priority that a PriorityClass of pods gives.
	MaxPodPriority int32
	// Workers is how many JobSets are reconciled at the same time.
	Workers int
	// Releases is how many Jobs of one stage are released at the same time.
	Releases int
	// ExpectedStarts predicts when waiting stages start. If it is nil, JobSets have no condition StartExpected.
	ExpectedStarts ExpectedStarts
}

// ExpectedStarts predicts when waiting stages start.
type ExpectedStarts interface {
	// ExpectedStart returns what the condition StartExpected of a JobSet is to contain while its stage waits, or nil.
	ExpectedStart(js *jobsetapi.JobSet) *jobsetstatus.ExpectedStart
	// Changes has an event for each JobSet with a new expected start.
	Changes() <-chan event.GenericEvent
}

// Safety judges stages that another engine may admit as soon as they are open.
type Safety interface {
	// Unsafe returns why a stage of a JobSet must not open yet, or "".
	Unsafe(ctx context.Context, js *jobsetapi.JobSet, plan *stageplan.Plan, stage string) (string, error)
	// Protection returns whether stages of a JobSet may hold quota while they wait for more. The plan must have been observed.
	Protection(ctx context.Context, js *jobsetapi.JobSet) (admission.Protection, error)
	// Changes has an event for each JobSet with a stage that must be judged again.
	Changes() <-chan event.GenericEvent
}

// Fields knows the CRD of JobSets that the API server serves.
type Fields interface {
	// Missing returns the fields of Tranche that the API server drops although it has served them before.
	Missing(ctx context.Context) ([]string, error)
}

func (c *Config) validate() error {
	if c.Runner == nil || c.Client == nil || c.Recorder == nil || c.Metrics == nil || c.Gangs == nil || c.Namespaces == nil || c.Fields == nil {
		return errors.New("jobset.Config: Runner, Client, Recorder, Metrics, Gangs, Namespaces and Fields are required")
	}
	if c.Workers <= 0 || c.Releases <= 0 {
		return fmt.Errorf("jobset.Config: Workers is %d and Releases is %d, must be positive", c.Workers, c.Releases)
	}
	return nil
}

// A Reconciler runs JobSets stage by stage.
type Reconciler struct {
	config Config
	writer apply.Writer
	// writes is the client of config, which knows what the cache does not show yet.
	writes *ownwrites.Client
	// reader reads past the cache.
	reader client.Reader
	// waits limits the Events about stages that wait. The conditions of the JobSets report these waits as well.
	waits flowcontrol.RateLimiter
	// unreported has the JobSets whose conditions have to be written.
	unreported unreported
	yielder    *yielder
}

// SetupWithManager starts the stage controller, and feeds the plans of JobSets to the engine.
func SetupWithManager(ctx context.Context, mgr ctrl.Manager, config Config) error {
	if err := config.validate(); err != nil {
		return err
	}
	if err := addIndexes(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	writes, err := ownwrites.Follow(config.Client, &jobsetapi.JobSet{}, &batchv1.Job{}, &kueue.Workload{})
	if err != nil {
		return fmt.Errorf("follow the writes about JobSets: %w", err)
	}
	config.Client = writes
	r := &Reconciler{
		config: config, writes: writes, reader: mgr.GetAPIReader(), yielder: newYielder(config.Runner), waits: flowcontrol.NewTokenBucketRateLimiter(waitsPerSecond, waitBurst),
		writer: apply.Writer{Client: config.Client, Runner: config.Runner, Recorder: config.Recorder, Parallel: config.Releases},
	}
	r.unreported.news = map[types.NamespacedName]unreportedConditions{}
	if err := (&planPublisher{reconciler: r}).setUp(ctx, mgr); err != nil {
		return err
	}
	byLabel := func(label string) handler.EventHandler {
		return handler.EnqueueRequestsFromMapFunc(func(_ context.Context, object client.Object) []reconcile.Request {
			if name := object.GetLabels()[label]; name != "" {
				return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: object.GetNamespace(), Name: name}}}
			}
			return nil
		})
	}
	users := handler.EnqueueRequestsFromMapFunc(r.jobSetsOf)
	leads := ctrl.NewControllerManagedBy(mgr)
	for _, kind := range config.Gangs.Kinds() {
		leads.Watches(kind, byLabel(apis.JobSetLabel))
	}
	if len(config.Devices) > 0 {
		leads.Watches(&resourcev1.ResourceClaimTemplate{}, users)
	}
	if config.ExpectedStarts != nil {
		leads.WatchesRawSource(source.Channel(config.ExpectedStarts.Changes(), &handler.EnqueueRequestForObject{}))
	}
	if config.Safety != nil {
		leads.WatchesRawSource(source.Channel(config.Safety.Changes(), &handler.EnqueueRequestForObject{}))
	}
	return leads.
		Named("jobset").
		For(&jobsetapi.JobSet{}).
		Watches(&batchv1.Job{}, byLabel(jobset.JobSetNameKey)).
		Watches(&kueue.Workload{}, byLabel(apis.JobSetLabel)).
		Watches(&corev1.Pod{}, byLabel(jobset.JobSetNameKey), builder.WithPredicates(podChanges())).
		Watches(&corev1.Namespace{}, users, builder.WithPredicates(predicate.LabelChangedPredicate{})).
		Watches(&kueue.WorkloadPriorityClass{}, users).
		Watches(&schedulingv1.PriorityClass{}, users).
		Watches(&corev1.LimitRange{}, users).
		Watches(&nodev1.RuntimeClass{}, users).
		WithOptions(fairqueue.Options(config.Workers, r.holdsQuota)).
		Complete(r)
}

// holdsQuota reports whether a stage of a JobSet holds quota, according to the cache. That of a JobSet that was deleted may.
func (r *Reconciler) holdsQuota(request reconcile.Request) bool {
	ctx := context.Background()
	var js jobsetapi.JobSet
	if err := r.config.Client.Get(ctx, request.NamespacedName, &js, client.UnsafeDisableDeepCopy); err != nil {
		return apierrors.IsNotFound(err)
	}
	var list kueue.WorkloadList
	err := r.config.Client.List(ctx, &list, client.InNamespace(js.Namespace), client.MatchingFields{indexJobSetUID: string(js.UID)}, client.UnsafeDisableDeepCopy)
	return err == nil && quotaworkload.AnyCharged(list.Items)
}

// jobSetsOf maps a Namespace or a LimitRange to the JobSets of the namespace, a ResourceClaimTemplate to those of them that name it, and a
// class to all JobSets that may use it, by name or by default. Such objects change rarely.
func (r *Reconciler) jobSetsOf(ctx context.Context, object client.Object) []reconcile.Request {
	options := []client.ListOption{client.UnsafeDisableDeepCopy}
	uses := func(*jobsetapi.JobSet) bool { return true }
	switch object.(type) {
	case *corev1.Namespace:
		options = append(options, client.InNamespace(object.GetName()))
	case *corev1.LimitRange:
		options = append(options, client.InNamespace(object.GetNamespace()))
	case *resourcev1.ResourceClaimTemplate:
		options = append(options, client.InNamespace(object.GetNamespace()))
		uses = func(js *jobsetapi.JobSet) bool { return claims(js, object.GetName()) }
	case *kueue.WorkloadPriorityClass:
		options = append(options, client.MatchingLabels{apis.PriorityClassLabel: object.GetName()})
	}
	var list jobsetapi.JobSetList
	if err := r.config.Client.List(ctx, &list, options...); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing JobSets", "because of", object.GetName())
		return nil
	}
	var requests []reconcile.Request
	for i := range list.Items {
		if js := &list.Items[i]; js.Status.TerminalState == "" && uses(js) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(js)})
		}
	}
	return requests
}

func addIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	byUID := func(object client.Object) []string { return indexed(types.UID(object.GetLabels()[apis.JobUIDLabel])) }
	for _, index := range []struct {
		kind client.Object
		f    client.IndexerFunc
	}{
		{&batchv1.Job{}, func(job client.Object) []string { return indexed(jobsetstate.JobSetOfJob(job)) }},
		{&corev1.Pod{}, func(pod client.Object) []string { return indexed(jobsetstate.JobSetOfPod(pod)) }},
		{&kueue.Workload{}, byUID},
	} {
		if err := indexer.IndexField(ctx, index.kind, indexJobSetUID, index.f); err != nil {
			return fmt.Errorf("index %T by JobSet: %w", index.kind, err)
		}
	}
	return nil
}

// indexed returns the entries of an index for an object of the JobSet with this UID, if any.
func indexed(jobSet types.UID) []string {
	if jobSet == "" {
		return nil
	}
	return []string{string(jobSet)}
}

// podChanges passes only events that can release quota, detach a pod from its Job, or say why it has no node: a pod has become terminal, is no longer
// controlled by a Job, has disappeared, or a scheduler has refused it for the first time.
func podChanges() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, wasPod := e.ObjectOld.(*corev1.Pod)
			after, isPod := e.ObjectNew.(*corev1.Pod)
			return wasPod && isPod && jobsetstate.IsCharged(before) && (!jobsetstate.IsCharged(after) || jobsetstate.IsLoose(after) && !jobsetstate.IsLoose(before) ||
				jobsetstate.WithoutNode(before) == "" && jobsetstate.WithoutNode(after) != "")
		},
	}
}

// Reconcile takes the next step for one JobSet.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	ctx = ownwrites.For(ctx, req.NamespacedName)
	if left, err := r.writes.Wait(ctx, req.NamespacedName); err != nil || left > 0 {
		return ctrl.Result{RequeueAfter: left}, err
	}
	s, err := r.read(ctx, req.NamespacedName)
	if apierrors.IsNotFound(err) {
		// Either the namespace is new and the cache lacks it, or it was deleted and the cache still has the JobSet.
		return ctrl.Result{Requeue: true}, nil //nolint:staticcheck // retried with the back-off of the queue
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	w := stages.Next(s)
	if !w.EndsQuota() {
		return r.write(ctx, s, w)
	}
	if s, err = r.refresh(ctx, s); err != nil {
		return ctrl.Result{}, err
	}
	w = stages.Next(s)
	w.RequeueForUnwatchedPods(s)
	return r.write(ctx, s, w)
}
