package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/controllers/events"
	"github.com/tranche-dev/tranche/controllers/internal/patch"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// The conditions of a quota Workload report that it is admitted, evicted or refused. The Events that repeat this are limited, so that not
// every one of many at a time gets an Event.
const (
	eventsPerSecond = 1
	eventBurst      = 50
)

// A writer applies decisions to the API. It keeps only the newest refusal of a stage, and none that is older than an admission. An
// admission and an older refusal may be written at the same time: the refusal names the version of its object, so it meets a conflict or is
// overwritten.
type writer struct {
	config   Config
	runner   *Runner
	queue    workqueue.TypedInterface[admission.StageKey]
	refusals *backlog
	budget   *budget
	events   flowcontrol.RateLimiter
	// refusing is full while a refusal is being written.
	refusing chan struct{}
	// refusalEvents keeps Events about refusals from using the budget of those about admissions.
	refusalEvents flowcontrol.RateLimiter

	mu      sync.Mutex
	orders  map[admission.StageKey][]admission.Decision
	retries workqueue.TypedRateLimiter[admission.StageKey]
}

func newWriter(config Config, runner *Runner) *writer {
	return &writer{
		config:        config,
		runner:        runner,
		queue:         workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[admission.StageKey]{Name: "tranche-orders"}),
		refusals:      newBacklog(config.SettleAfter),
		budget:        newBudget(),
		events:        flowcontrol.NewTokenBucketRateLimiter(eventsPerSecond, eventBurst),
		refusing:      make(chan struct{}, 1),
		refusalEvents: flowcontrol.NewTokenBucketRateLimiter(eventsPerSecond, eventBurst),
		orders:        map[admission.StageKey][]admission.Decision{},
		retries:       workqueue.NewTypedItemExponentialFailureRateLimiter[admission.StageKey](firstRetry, lastRetry),
	}
}

// Write passes a decision to the writers. The decisions about one stage are written in their order.
func (r *Runner) Write(decision admission.Decision) { r.writer.add(decision) }

// add accepts a decision. An admission or an eviction replaces earlier refusals of the stage.
func (w *writer) add(decision admission.Decision) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch d := decision.(type) {
	case admission.Admit:
		w.order(d.Stage, d)
	case admission.Evict:
		if !w.cancel(&d) {
			w.order(d.Stage, d)
		}
	case retriedEviction:
		w.order(d.Stage, d)
	case admission.Notice:
		w.order(d.Stage, d)
	case admission.Refuse:
		w.refusals.add(&d, time.Now())
	}
}

func (w *writer) order(key admission.StageKey, decision admission.Decision) {
	w.orders[key] = append(w.orders[key], decision)
	w.refusals.drop(key)
	w.queue.Add(key)
}

// cancel takes back an admission that has not been written yet, instead of writing both the admission and its eviction. No client has
// observed the admission, so there is nothing to stop and to wait for.
func (w *writer) cancel(d *admission.Evict) bool {
	orders := w.orders[d.Stage]
	if len(orders) == 0 {
		return false
	}
	admit, ok := orders[len(orders)-1].(admission.Admit)
	if !ok || admit.UID != d.UID {
		return false
	}
	if w.orders[d.Stage] = orders[:len(orders)-1]; len(orders) == 1 {
		delete(w.orders, d.Stage)
	}
	evict := d.ID
	w.runner.post(func(e *admission.Engine) {
		e.Settle(admit.ID)
		e.Settle(evict)
	})
	return true
}

// run writes until the context ends.
func (w *writer) run(ctx context.Context) {
	var workers sync.WaitGroup
	for range w.config.Writers {
		workers.Go(func() {
			for w.nextOrder(ctx) {
			}
		})
	}
	workers.Go(func() {
		for w.nextRefusal(ctx) {
		}
	})
	<-ctx.Done()
	w.queue.ShutDown()
	workers.Wait()
}

func (w *writer) nextOrder(ctx context.Context) bool {
	key, shutdown := w.queue.Get()
	if shutdown {
		return false
	}
	defer w.queue.Done(key)
	w.mu.Lock()
	orders := w.orders[key]
	delete(w.orders, key)
	w.mu.Unlock()
	for _, order := range orders {
		w.budget.spend(time.Now())
		switch d := order.(type) {
		case admission.Admit:
			w.admit(ctx, &d)
		case admission.Evict:
			w.evict(ctx, &d)
		case retriedEviction:
			w.evictIfAwaited(ctx, &d)
		case admission.Notice:
			w.notify(ctx, &d)
		case admission.Refuse: // is no order
		}
	}
	return true
}

// nextRefusal writes one refusal, unless it no longer holds or may not be written yet. It returns false when the context has ended.
func (w *writer) nextRefusal(ctx context.Context) bool {
	u := w.refusals.next(ctx)
	if u == nil {
		return false
	}
	w.refusing <- struct{}{}
	isWritten := w.refuse(ctx, u)
	<-w.refusing
	return !isWritten || w.budget.wait(ctx, time.Now()) == nil
}

// admit writes an admission and settles the decision.
func (w *writer) admit(ctx context.Context, d *admission.Admit) {
	written, err := w.writeAdmission(ctx, d)
	if err == nil {
		if len(d.Checks) == 0 {
			w.config.Metrics.Admitted(string(d.Admission.ClusterQueue))
		}
		w.settle(d.Stage, d.ID, written)
		w.announce(written, d)
		if w.config.Beside {
			if err := EndWaiting(ctx, w.config.Client, written); err != nil {
				ctrl.LoggerFrom(ctx).V(1).Info("The reason why a quota Workload waited stays in its status", "workload", klog.KRef(d.Stage.Namespace, d.Stage.Name), "cause", err.Error())
			}
		}
		return
	}
	w.config.Metrics.WriteFailed("Admit")
	ctrl.LoggerFrom(ctx).V(1).Info("Writing an admission failed, the engine will decide again", "workload", klog.KRef(d.Stage.Namespace, d.Stage.Name), "cause", err.Error())
	w.takeBack(ctx, d.Stage, d.ID)
}

// settle passes the quota Workload as it was written, or read if there was nothing to write, to the engine, and settles the decision.
func (w *writer) settle(key admission.StageKey, id admission.DecisionID, workload *kueue.Workload) {
	w.retries.Forget(key)
	w.runner.post(func(e *admission.Engine) {
		e.Apply(admission.WorkloadObserved{Workload: workload})
		e.Settle(id)
	})
}

// takeBack settles a decision that was not written, after a while and after a live read of the object: a write that returned an error may
// have succeeded, and then its quota must not be given to another stage.
func (w *writer) takeBack(ctx context.Context, key admission.StageKey, id admission.DecisionID) {
	time.AfterFunc(w.retries.When(key), func() {
		if ctx.Err() != nil {
			return
		}
		var current kueue.Workload
		err := w.config.Reader.Get(ctx, key, &current)
		if client.IgnoreNotFound(err) != nil {
			w.takeBack(ctx, key, id)
			return
		}
		w.runner.post(func(e *admission.Engine) {
			if err == nil {
				e.Apply(admission.WorkloadObserved{Workload: &current})
			}
			e.Settle(id)
		})
	})
}

func (w *writer) writeAdmission(ctx context.Context, d *admission.Admit) (*kueue.Workload, error) {
	var seen kueue.Workload
	if err := w.config.Client.Get(ctx, d.Stage, &seen); err != nil {
		return nil, fmt.Errorf("read quota Workload %s: %w", d.Stage, err)
	}
	if seen.UID == d.UID && !asksFor(&seen, &d.Admission) {
		return nil, fmt.Errorf("write status of quota Workload %s: its pod sets have changed since the decision", d.Stage)
	}
	if w.config.Beside && seen.Status.Admission != nil {
		return nil, fmt.Errorf("write status of quota Workload %s: Kueue has admitted it meanwhile", d.Stage)
	}
	seen.UID = d.UID
	status := workloadstatus.Admitted(&seen, &d.Admission, time.Now())
	if len(d.Checks) > 0 {
		status = workloadstatus.Reserved(&seen, &d.Admission, d.Checks, time.Now())
	}
	version := ""
	if w.config.Beside {
		// Whatever Kueue has written meanwhile is read first, such as a last admission of its own.
		status, version = workloadstatus.Passed(status, d.Passed, time.Now()), seen.ResourceVersion
	}
	return w.apply(ctx, &seen, status, version)
}

// asksFor reports whether a quota Workload still asks for the quota that it gets. Its pod sets may have changed since that was decided. A
// pod set may get fewer pods than it asks for, by its minCount or because some are reclaimable.
func asksFor(workload *kueue.Workload, given *kueue.Admission) bool {
	return !slices.ContainsFunc(given.PodSetAssignments, func(a kueue.PodSetAssignment) bool {
		i := slices.IndexFunc(workload.Spec.PodSets, func(p kueue.PodSet) bool { return p.Name == a.Name })
		if i < 0 || a.Count == nil {
			return i < 0
		}
		podSet := &workload.Spec.PodSets[i]
		least := podSet.Count
		if podSet.MinCount != nil {
			least = min(least, *podSet.MinCount)
		}
		for _, r := range workload.Status.ReclaimablePods {
			if r.Name == podSet.Name {
				least -= r.Count
			}
		}
		return *a.Count < least || *a.Count > podSet.Count
	})
}

// refuse writes why a stage waits, and reports whether it has tried to. A conflict means that the Workload has changed: then the engine will check it
// again.
func (w *writer) refuse(ctx context.Context, u *unwritten) bool {
	d := &u.refuse
	if w.config.Beside && !w.leads(ctx, d.Stage) {
		return false
	}
	var seen kueue.Workload
	err := w.config.Client.Get(ctx, d.Stage, &seen)
	if apierrors.IsNotFound(err) || err == nil && (seen.UID != d.UID || seen.Status.Admission != nil) {
		return false
	}
	if err == nil && !w.refusals.mayWrite(u, workloadstatus.WaitOf(&seen), time.Now()) {
		return false
	}
	if w.config.Beside {
		if err == nil {
			err = w.refuseBeside(ctx, &seen, d)
		}
		if err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil {
			w.retryRefusal(u)
		}
		return true
	}
	var written *kueue.Workload
	if err == nil {
		status := workloadstatus.Pending(&seen, d.Wait(), time.Now())
		written, err = w.apply(ctx, &seen, status, seen.ResourceVersion)
	}
	switch {
	case err == nil:
		w.retries.Forget(d.Stage)
		w.announceRefusal(&seen, written, d)
	case apierrors.IsNotFound(err) || ctx.Err() != nil:
	default:
		w.retryRefusal(u)
	}
	return true
}

// announceRefusal emits an Event if the refusal has changed the condition QuotaReserved. Without a resourceVersion the recorder counts all
// refusals of a quota Workload that have the same reason as one Event.
func (w *writer) announceRefusal(before, written *kueue.Workload, d *admission.Refuse) {
	was, is := workloadstatus.WaitOf(before), workloadstatus.WaitOf(written)
	if !d.Refusal.HasEvent() || is == nil || was != nil && was.KueueReason == is.KueueReason && was.KueueMessage == is.KueueMessage {
		return
	}
	if w.refusalEvents.TryAccept() {
		about := *written
		about.ResourceVersion = ""
		events.Pending(is.KueueReason, is.KueueMessage).Emit(w.config.Recorder, &about)
	}
}

// retryRefusal retries later, unless there is another decision about the stage by then.
func (w *writer) retryRefusal(u *unwritten) {
	w.config.Metrics.WriteFailed("Refuse")
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.orders[u.refuse.Stage]) == 0 {
		w.refusals.putBack(u, time.Now(), w.retries.When(u.refuse.Stage))
	}
}

// apply writes the status of a quota Workload under Kueue's field manager and returns the Workload from the response. Server-side apply
// removes fields that the field manager owns and a write omits, so apply always repeats the accumulated execution time.
func (w *writer) apply(ctx context.Context, seen *kueue.Workload, status kueue.WorkloadStatus, resourceVersion string) (*kueue.Workload, error) {
	if status.AccumulatedPastExecutionTimeSeconds == nil {
		status.AccumulatedPastExecutionTimeSeconds = seen.Status.AccumulatedPastExecutionTimeSeconds
	}
	return patch.ApplyWorkloadStatus(ctx, w.config.Client, seen, patch.Status{
		Part: w.runner.Shown(status), Owner: apis.AdmissionFieldManager, ResourceVersion: resourceVersion,
	})
}

// announce emits Events on the quota Workload, as Kueue does. That of a stage has its Events on the JobSet: one when the stage waits for AdmissionChecks, and one when it
// is released, which follows its admission.
func (w *writer) announce(workload *kueue.Workload, d *admission.Admit) {
	queue := string(d.Admission.ClusterQueue)
	if d.StageName == "" {
		if w.events.TryAccept() {
			reserved := apimeta.FindStatusCondition(workload.Status.Conditions, kueue.WorkloadQuotaReserved)
			events.QuotaReserved(queue, reserved.LastTransitionTime.Sub(workloadstatus.QueuedSince(workload))).Emit(w.config.Recorder, workload)
			if len(d.Checks) == 0 {
				events.Admitted(queue, 0).Emit(w.config.Recorder, workload)
			}
		}
		return
	}
	if len(d.Checks) == 0 {
		return
	}
	var checks []string
	for _, check := range d.Checks {
		checks = append(checks, string(check))
	}
	events.StageReserved(StageName(d.StageName, workload), queue, Usage(&d.Admission), checks).EmitOnOwner(w.config.Recorder, workload)
}

// Usage renders the charges of an admission, such as "15 nvidia.com/gpu of flavor a100".
func Usage(a *kueue.Admission) string {
	var parts []string
	for i := range a.PodSetAssignments {
		assignment := &a.PodSetAssignments[i]
		for resource, flavor := range assignment.Flavors {
			quantity := assignment.ResourceUsage[resource]
			parts = append(parts, fmt.Sprintf("%s %s of flavor %s", quantity.String(), resource, flavor))
		}
	}
	if len(parts) == 0 {
		return "no quota needed"
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}
