package jobset

import (
	"context"
	"fmt"
	"sync"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/checkpoint"
	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/controllers/engine"
	"github.com/tranche-dev/tranche/controllers/internal/fairqueue"
)

// A planPublisher sends the plan of each JobSet to the engine. While this process does not lead, it sends a plan whenever a JobSet is created or
// changes, so that the engine knows which JobSets are pending. Before this process decides anything, it sends all plans; from then on the
// stage controller sends a plan with each reconcile. It also reads what the cluster adds to the pods of a JobSet.
type planPublisher struct {
	reconciler *Reconciler
	// mu makes sure that a plan that was read before this process began to decide is not sent after that.
	mu      sync.Mutex
	decides bool
}

func (f *planPublisher) setUp(ctx context.Context, mgr ctrl.Manager) error {
	f.reconciler.config.Runner.BeforeFirst(f.publishAll)
	err := engine.Watch(ctx, mgr, f.reconciler.config.Runner,
		func(*jobsetapi.JobSet) admission.Event { return nil },
		func(js *jobsetapi.JobSet) admission.Event { return admission.PlanGone{UID: js.UID} })
	if err != nil {
		return err
	}
	changes := predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{})
	options := fairqueue.Options(1, nil)
	options.NeedLeaderElection = new(false)
	return ctrl.NewControllerManagedBy(mgr).
		Named("jobset-plan").
		For(&jobsetapi.JobSet{}, builder.WithPredicates(changes)).
		WithOptions(options).
		Complete(f)
}

// Reconcile sends the plan of one JobSet to the engine as long as this process decides nothing.
func (f *planPublisher) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.decides {
		return ctrl.Result{}, nil
	}
	var js jobsetapi.JobSet
	if err := f.reconciler.config.Client.Get(ctx, req.NamespacedName, &js, &client.GetOptions{UnsafeDisableDeepCopy: new(true)}); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	return ctrl.Result{}, f.publish(ctx, &js)
}

// publishAll sends all plans to the engine, and leaves the rest to the stage controller.
func (f *planPublisher) publishAll(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.decides = true
	var list jobsetapi.JobSetList
	if err := f.reconciler.config.Client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list JobSets: %w", err)
	}
	for i := range list.Items {
		if err := f.publish(ctx, &list.Items[i]); err != nil {
			return err
		}
	}
	return nil
}

// publish sends the plan of a JobSet to the engine, if it has a valid one.
func (f *planPublisher) publish(ctx context.Context, js *jobsetapi.JobSet) error {
	js, _ = stageplan.Restored(js)
	spec, _, err := f.reconciler.withClusterDefaults(ctx, js)
	if err != nil {
		return fmt.Errorf("plan JobSet %s: %w", client.ObjectKeyFromObject(js), err)
	}
	plan, err := stageplan.New(spec)
	if err != nil {
		return nil //nolint:nilerr // the stage controller reports that
	}
	if f.reconciler.config.Safety != nil && plan.HoldsAndWaits() {
		if plan, err = f.keptPlan(ctx, js, plan); err != nil {
			return err
		}
	}
	f.reconciler.config.Runner.Observe(observation(js, plan))
	return nil
}

// keptPlan returns the plan for which the quota Workloads of a JobSet were made. It asks the engine nothing, which waits for this.
func (f *planPublisher) keptPlan(ctx context.Context, js *jobsetapi.JobSet, plan *stageplan.Plan) (*stageplan.Plan, error) {
	var list kueue.WorkloadList
	if err := f.reconciler.config.Client.List(ctx, &list, client.InNamespace(js.Namespace), client.MatchingFields{indexJobSetUID: string(js.UID)}); err != nil {
		return nil, fmt.Errorf("list quota Workloads of JobSet %s: %w", client.ObjectKeyFromObject(js), err)
	}
	var workloads []*kueue.Workload
	for i := range list.Items {
		workloads = append(workloads, &list.Items[i])
	}
	return keptPlan(plan, workloads), nil
}

func observation(js *jobsetapi.JobSet, plan *stageplan.Plan) admission.Event {
	return admission.PlanObserved{
		Owner:          admission.Owner{Kind: admission.JobSetOwner, Key: client.ObjectKeyFromObject(js)},
		UID:            js.UID,
		Submitted:      js.CreationTimestamp.Time,
		StageAdmission: js.Annotations[apis.StageAdmissionAnnotation],
		CheckpointedAt: checkpoint.Of(js.Annotations),
		Plan:           plan,
	}
}
