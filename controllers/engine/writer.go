package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/controllers/conditions"
	"github.com/tranche-dev/tranche/controllers/events"
	"github.com/tranche-dev/tranche/controllers/metrics"
)

// Admissions are written before refusals: somebody's accelerators wait for them.
const (
	priorityAdmit  = 1
	priorityRefuse = 0
)

// A writer applies decisions to the API. Of the decisions about one stage only the newest refusal is kept, and never two are
// written at once.
type writer struct {
	config Config
	runner *Runner
	queue  priorityqueue.PriorityQueue[admission.StageKey]

	mu      sync.Mutex
	pending map[admission.StageKey]task
	retries workqueue.TypedRateLimiter[admission.StageKey]
}

// A task is what is still to be written for one stage.
type task struct {
	admit  *admission.Admit
	refuse *admission.Refuse
}

func newWriter(config Config, runner *Runner) *writer {
	return &writer{
		config:  config,
		runner:  runner,
		queue:   priorityqueue.New[admission.StageKey]("tranche-decisions"),
		pending: map[admission.StageKey]task{},
		retries: workqueue.NewTypedItemExponentialFailureRateLimiter[admission.StageKey](firstRetry, lastRetry),
	}
}

// add takes a decision over. An admission makes earlier refusals of the stage pointless.
func (w *writer) add(decision admission.Decision) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch d := decision.(type) {
	case admission.Admit:
		w.pending[d.Stage] = task{admit: &d}
		w.queue.AddWithOpts(priorityqueue.AddOpts{Priority: new(priorityAdmit)}, d.Stage)
	case admission.Refuse:
		t := w.pending[d.Stage]
		t.refuse = &d
		w.pending[d.Stage] = t
		w.queue.AddWithOpts(priorityqueue.AddOpts{Priority: new(priorityRefuse)}, d.Stage)
	}
}

// run writes until the context ends.
func (w *writer) run(ctx context.Context) {
	var workers sync.WaitGroup
	for range w.config.Writers {
		workers.Go(func() {
			for w.next(ctx) {
			}
		})
	}
	<-ctx.Done()
	w.queue.ShutDown()
	workers.Wait()
}

func (w *writer) next(ctx context.Context) bool {
	key, shutdown := w.queue.Get()
	if shutdown {
		return false
	}
	defer w.queue.Done(key)
	w.mu.Lock()
	t := w.pending[key]
	delete(w.pending, key)
	w.mu.Unlock()
	if t.admit != nil {
		w.admit(ctx, t.admit)
	}
	if t.refuse != nil {
		w.refuse(ctx, t.refuse)
	}
	return true
}

// admit writes an admission and settles the decision.
func (w *writer) admit(ctx context.Context, d *admission.Admit) {
	written, err := w.writeAdmission(ctx, d)
	if err == nil {
		w.retries.Forget(d.Stage)
		metrics.Admitted(string(d.Admission.ClusterQueue))
		w.runner.post(func(e *admission.Engine) {
			e.Apply(admission.WorkloadObserved{Workload: written})
			e.Settle(d.ID, nil)
		})
		w.announce(written, d)
		return
	}
	metrics.WriteFailed("Admit")
	ctrl.LoggerFrom(ctx).V(1).Info("Admission not written, taking it back", "workload", klog.KRef(d.Stage.Namespace, d.Stage.Name), "cause", err.Error())
	w.takeBack(ctx, d, err)
}

// takeBack settles an admission that was not written, after a while and after a look at the object itself: a write that was given up
// may have been done all the same, and then its quota must not be given to anybody else.
func (w *writer) takeBack(ctx context.Context, d *admission.Admit, cause error) {
	time.AfterFunc(w.retries.When(d.Stage), func() {
		if ctx.Err() != nil {
			return
		}
		var current kueue.Workload
		err := w.config.Reader.Get(ctx, d.Stage, &current)
		if client.IgnoreNotFound(err) != nil {
			w.takeBack(ctx, d, cause)
			return
		}
		w.runner.post(func(e *admission.Engine) {
			if err == nil {
				e.Apply(admission.WorkloadObserved{Workload: &current})
			}
			e.Settle(d.ID, cause)
		})
	})
}

func (w *writer) writeAdmission(ctx context.Context, d *admission.Admit) (*kueue.Workload, error) {
	var seen kueue.Workload
	if err := w.config.Client.Get(ctx, d.Stage, &seen); err != nil {
		return nil, fmt.Errorf("read quota Workload %s: %w", d.Stage, err)
	}
	seen.UID = d.UID
	return w.apply(ctx, &seen, conditions.Admitted(&seen, &d.Admission), "")
}

// refuse writes why a stage waits. A conflict means that the Workload has changed meanwhile: then the engine will look at it again.
func (w *writer) refuse(ctx context.Context, d *admission.Refuse) {
	var seen kueue.Workload
	err := w.config.Client.Get(ctx, d.Stage, &seen)
	if apierrors.IsNotFound(err) || err == nil && (seen.UID != d.UID || seen.Status.Admission != nil) {
		return
	}
	if err == nil {
		status := conditions.Pending(&seen, d.Refusal.Reason, d.Refusal.Message)
		_, err = w.apply(ctx, &seen, status, seen.ResourceVersion)
	}
	switch {
	case err == nil:
		w.retries.Forget(d.Stage)
	case apierrors.IsNotFound(err) || ctx.Err() != nil:
	default:
		w.retryRefusal(d)
	}
}

// retryRefusal tries again later, unless there is news about the stage by then.
func (w *writer) retryRefusal(d *admission.Refuse) {
	metrics.WriteFailed("Refuse")
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.pending[d.Stage]
	if t.admit != nil || t.refuse != nil {
		return
	}
	w.pending[d.Stage] = task{refuse: d}
	w.queue.AddWithOpts(priorityqueue.AddOpts{After: w.retries.When(d.Stage), Priority: new(priorityRefuse)}, d.Stage)
}

// apply writes the status of a quota Workload under Kueue's field manager and returns what the API server made of it.
func (w *writer) apply(ctx context.Context, seen *kueue.Workload, status kueue.WorkloadStatus, resourceVersion string) (*kueue.Workload, error) {
	patch, err := conditions.Patch(seen, status, resourceVersion)
	if err != nil {
		return nil, fmt.Errorf("render status of quota Workload %s: %w", client.ObjectKeyFromObject(seen), err)
	}
	err = w.config.Client.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(patch),
		client.FieldOwner(apis.AdmissionFieldManager), client.ForceOwnership)
	if err != nil {
		return nil, fmt.Errorf("write status of quota Workload %s: %w", client.ObjectKeyFromObject(seen), err)
	}
	return asWorkload(patch)
}

func asWorkload(object *unstructured.Unstructured) (*kueue.Workload, error) {
	var workload kueue.Workload
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &workload); err != nil {
		return nil, fmt.Errorf("read answer about quota Workload %s: %w", client.ObjectKeyFromObject(object), err)
	}
	return &workload, nil
}

// announce tells the owners of the quota Workload and of the JobSet.
func (w *writer) announce(workload *kueue.Workload, d *admission.Admit) {
	events.QuotaReserved(string(d.Admission.ClusterQueue)).Emit(w.config.Recorder, workload)
	owner := metav1.GetControllerOf(workload)
	if owner == nil || d.StageName == "" {
		return
	}
	jobSet := &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: owner.APIVersion, Kind: owner.Kind},
		ObjectMeta: metav1.ObjectMeta{Namespace: workload.Namespace, Name: owner.Name, UID: owner.UID},
	}
	events.StageAdmitted(d.StageName, string(d.Admission.ClusterQueue), usage(&d.Admission)).Emit(w.config.Recorder, jobSet)
}

// usage renders what an admission charges, such as "15 nvidia.com/gpu of flavor a100".
func usage(a *kueue.Admission) string {
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
