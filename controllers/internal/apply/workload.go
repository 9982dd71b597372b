// Package apply writes the parts of Steps that JobSets and gangs of pods have in common, classifies the errors of their writes, and reads
// what their quota Workloads are admitted to.
package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	k8sevents "k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/controllers/engine"
	"github.com/tranche-dev/tranche/controllers/events"
	"github.com/tranche-dev/tranche/controllers/internal/patch"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// reclaimFieldManager owns status.reclaimablePods of quota Workloads. It is Kueue's name.
const reclaimFieldManager client.FieldOwner = "kueue-reclaimable-pods"

// A Writer writes quota Workloads. A write does nothing if the quota Workload has disappeared; methods that return the written quota
// Workload return nil then.
type Writer struct {
	Client   client.Client
	Runner   *engine.Runner
	Recorder k8sevents.EventRecorder
	// Parallel is how many objects Each writes at the same time.
	Parallel int
}

// Create creates a quota Workload, and fills it with the answer. The caller decides what to do if it exists or is rejected.
func (w *Writer) Create(ctx context.Context, workload *kueue.Workload) error {
	if err := w.Client.Create(ctx, workload); err != nil {
		return fmt.Errorf("create quota Workload %s: %w", client.ObjectKeyFromObject(workload), err)
	}
	return nil
}

// Change patches the metadata and the spec of a quota Workload. If its pod sets or owners change, the API server rejects the patch if the
// quota Workload was written since it was read: it may have been admitted for its previous pods, and a patch replaces all owners.
//
// A bar (quotaworkload.Bar) is a part of the status. A new bar is written first and a bar is removed last, so that a quota Workload that is cut
// short in between is not admitted too early.
func (w *Writer) Change(ctx context.Context, before, after *kueue.Workload) error {
	if quotaworkload.HasSameBar(before, after) {
		_, err := w.changeSpec(ctx, before, after)
		return err
	}
	if quotaworkload.IsBarred(after) {
		return w.bar(ctx, before, after)
	}
	written, err := w.changeSpec(ctx, before, after)
	if err != nil || written == nil {
		return err
	}
	return w.bar(ctx, written, after)
}

// bar writes the condition Requeued that names the gates of a quota Workload. The next reconcile writes the other changes.
func (w *Writer) bar(ctx context.Context, before, after *kueue.Workload) error {
	bar := apimeta.FindStatusCondition(after.Status.Conditions, kueue.WorkloadRequeued)
	_, err := w.Admission(ctx, before, workloadstatus.Barred(before, *bar, time.Now()))
	return err
}

// changeSpec writes the changes of metadata and spec, and returns the written quota Workload.
func (w *Writer) changeSpec(ctx context.Context, before, after *kueue.Workload) (*kueue.Workload, error) {
	if equality.Semantic.DeepEqual(before.Spec, after.Spec) && equality.Semantic.DeepEqual(before.ObjectMeta, after.ObjectMeta) {
		return before, nil
	}
	change := patch.IfSameUID(before)
	isSameOwner := func(a, b metav1.OwnerReference) bool { return a.UID == b.UID }
	if !equality.Semantic.DeepEqual(before.Spec.PodSets, after.Spec.PodSets) || !slices.EqualFunc(before.OwnerReferences, after.OwnerReferences, isSameOwner) {
		change = patch.Locked(before, before.ResourceVersion)
	}
	data, err := change.Data(after)
	if err != nil {
		return nil, fmt.Errorf("render the change of quota Workload %s: %w", client.ObjectKeyFromObject(before), err)
	}
	// The response is decoded into an empty object: one with the fields of the cache would keep those that others have removed.
	written := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: before.Namespace, Name: before.Name}}
	err = w.Client.Patch(ctx, written, client.RawPatch(change.Type(), data))
	switch {
	case err == nil:
		w.Runner.Observe(admission.WorkloadObserved{Workload: written})
		return written, nil
	case client.IgnoreNotFound(err) == nil:
		return nil, nil //nolint:nilnil // it has disappeared
	}
	return nil, fmt.Errorf("change quota Workload %s: %w", client.ObjectKeyFromObject(before), err)
}

// Evict marks a quota Workload as evicted. It increments the counters of the quota Workload and repeats what else the admission has
// written, so the quota Workload must not have changed. The engine observes the eviction at once.
func (w *Writer) Evict(ctx context.Context, workload *kueue.Workload, why workloadstatus.Eviction, requeue *kueue.RequeueState) (*kueue.Workload, error) {
	status := workloadstatus.Evicted(workload, why, time.Now())
	if requeue != nil {
		status.RequeueState = requeue
	}
	written, err := w.Admission(ctx, workload, status)
	if written != nil {
		events.Evicted(why.EventReason(), why.Message).Emit(w.Recorder, written)
	}
	return written, err
}

// Admission writes the part of the status of a quota Workload that belongs to its admission, for example to release its quota. The quota
// Workload must not have changed. The engine observes it at once.
func (w *Writer) Admission(ctx context.Context, workload *kueue.Workload, status kueue.WorkloadStatus) (*kueue.Workload, error) {
	return w.observedStatus(ctx, workload, patch.Status{Part: status, Owner: apis.AdmissionFieldManager, ResourceVersion: workload.ResourceVersion})
}

// observedStatus writes a part of the status. The engine observes it at once.
func (w *Writer) observedStatus(ctx context.Context, workload *kueue.Workload, status patch.Status) (*kueue.Workload, error) {
	written, err := w.status(ctx, workload, status)
	if written != nil {
		w.Runner.Observe(admission.WorkloadObserved{Workload: written})
	}
	return written, err
}

// Progress writes the condition PodsReady of a quota Workload, unless it has no type, and Finished, unless it is nil. A quota Workload
// finishes once: if the cache does not show yet that it has, the API server rejects the write, and no Event is emitted twice.
func (w *Writer) Progress(ctx context.Context, workload *kueue.Workload, ready metav1.Condition, finished *metav1.Condition) (*kueue.Workload, error) {
	status := patch.Status{Part: workloadstatus.Progress(workload, ready, finished, time.Now()), Owner: apis.FieldManager}
	if finished != nil {
		status.ResourceVersion = workload.ResourceVersion
	}
	return w.status(ctx, workload, status)
}

// Reclaim writes the reclaimable pods of a quota Workload. They count only for the admission with which they were read, so the quota Workload
// must not have changed. The engine observes them at once, so that no Job gets these pods back while the cache lacks the write.
func (w *Writer) Reclaim(ctx context.Context, workload *kueue.Workload, pods []kueue.ReclaimablePod) error {
	_, err := w.observedStatus(ctx, workload, patch.Status{
		Part: kueue.WorkloadStatus{ReclaimablePods: pods}, Owner: reclaimFieldManager, ResourceVersion: workload.ResourceVersion,
	})
	return err
}

func (w *Writer) status(ctx context.Context, workload *kueue.Workload, status patch.Status) (*kueue.Workload, error) {
	status.Part = w.Runner.Shown(status.Part)
	written, err := patch.ApplyWorkloadStatus(ctx, w.Client, workload, status)
	return written, client.IgnoreNotFound(err)
}

// Delete deletes a quota Workload as it was read. If it was admitted in the meantime, the API server rejects that.
func (w *Writer) Delete(ctx context.Context, workload *kueue.Workload) error {
	err := w.Client.Delete(ctx, workload, client.Preconditions{UID: &workload.UID, ResourceVersion: &workload.ResourceVersion})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete quota Workload %s: %w", client.ObjectKeyFromObject(workload), err)
	}
	return nil
}

// DeleteAll deletes quota Workloads that are not being deleted yet, and removes their finalizers.
func (w *Writer) DeleteAll(ctx context.Context, workloads []*kueue.Workload) error {
	for _, workload := range workloads {
		if workload.DeletionTimestamp.IsZero() {
			if err := w.Delete(ctx, workload); err != nil {
				return err
			}
		}
		if err := patch.RemoveFinalizer(ctx, w.Client, workload); err != nil {
			return err
		}
	}
	return nil
}

// RemoveFinalizers removes the finalizers of quota Workloads.
func (w *Writer) RemoveFinalizers(ctx context.Context, workloads []*kueue.Workload) error {
	for _, workload := range workloads {
		if err := patch.RemoveFinalizer(ctx, w.Client, workload); err != nil {
			return err
		}
	}
	return nil
}

// Flavors reads the ResourceFlavors in which quota Workloads are admitted, as far as they exist.
func Flavors(ctx context.Context, c client.Reader, workloads []*kueue.Workload) (map[kueue.ResourceFlavorReference]*kueue.ResourceFlavor, error) {
	all := map[kueue.ResourceFlavorReference]*kueue.ResourceFlavor{}
	for _, workload := range workloads {
		if workload.Status.Admission == nil {
			continue
		}
		for _, assignment := range workload.Status.Admission.PodSetAssignments {
			for _, name := range assignment.Flavors {
				if all[name] != nil {
					continue
				}
				var flavor kueue.ResourceFlavor
				err := c.Get(ctx, types.NamespacedName{Name: string(name)}, &flavor)
				if client.IgnoreNotFound(err) != nil {
					return nil, fmt.Errorf("read ResourceFlavor %q of quota Workload %s: %w", name, client.ObjectKeyFromObject(workload), err)
				}
				if err == nil {
					all[name] = &flavor
				}
			}
		}
	}
	return all, nil
}

// Charged asks the engine which quota Workloads it charges for all their pods. The cache may still show an admission that the engine has rolled
// back, or quota that was released. The cache may also show an admission before the engine has observed it: then the engine observes it now, which is ignored
// if it has observed something newer.
func Charged(ctx context.Context, runner *engine.Runner, workloads []*kueue.Workload) (map[types.UID]bool, error) {
	charged := map[types.UID]bool{}
	ask := func(e *admission.Engine) {
		for _, workload := range workloads {
			charged[workload.UID] = e.ChargedAs(workload)
		}
	}
	if err := runner.View(ctx, ask); err != nil {
		return nil, err
	}
	isComplete := true
	for _, workload := range workloads {
		if quotaworkload.HoldsQuota(workload) && !quotaworkload.IsTrue(workload, kueue.WorkloadFinished) && !charged[workload.UID] {
			runner.Observe(admission.WorkloadObserved{Workload: workload})
			isComplete = false
		}
	}
	if isComplete {
		return charged, nil
	}
	return charged, runner.View(ctx, ask)
}

// A failed write is retried after firstRetry, then after twice that, and so on. While the webhooks of the JobSet controller are down no
// JobSet can be resumed, and no watch reports that they are up again.
const (
	firstRetry   = 5 * time.Millisecond
	longestRetry = 15 * time.Second
)

// RateLimiter returns the back-off of a controller that writes Steps.
func RateLimiter() workqueue.TypedRateLimiter[reconcile.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, longestRetry)
}

// Failed returns the result of a reconcile whose write has failed. A conflict is retried without a log entry. In a namespace that is being
// deleted nothing can be created, and the namespace controller deletes the other objects.
func Failed(err error) (ctrl.Result, error) {
	switch {
	case isNamespaceTerminating(err):
		return ctrl.Result{}, nil
	case apierrors.IsConflict(err):
		return ctrl.Result{Requeue: true}, nil //nolint:staticcheck // a conflict is retried with the back-off of the queue
	}
	return ctrl.Result{}, err
}

func isNamespaceTerminating(err error) bool {
	return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// IsRefusal reports whether the content of a write was rejected, by a schema, an admission webhook or policy, a limit of its size, or a
// ResourceQuota. The write fails until a user or administrator changes something.
func IsRefusal(err error) bool {
	isRejected := apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err)
	return isRejected && !isNamespaceTerminating(err)
}

// IsUnserved reports whether objects could not be created because the API server does not serve their API, which it did when the manager
// started: the CRD was deleted, or the API server has another release. The manager restarts when it notices this (controllers/apiwatch).
func IsUnserved(err error) bool { return apierrors.IsNotFound(err) || apimeta.IsNoMatchError(err) }

// IsTransient reports whether the same write can succeed later without any change of the object.
func IsTransient(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true // no answer
	}
	return apierrors.IsConflict(err) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err)
}

// Each runs f for 0 to n-1, a bounded number at a time, and joins the errors. The result is a conflict only if all errors are conflicts.
func (w *Writer) Each(ctx context.Context, n int, f func(int) error) error {
	var mu sync.Mutex
	var conflict error
	var others []error
	workqueue.ParallelizeUntil(ctx, w.Parallel, n, func(i int) {
		err := f(i)
		mu.Lock()
		defer mu.Unlock()
		switch {
		case apierrors.IsConflict(err):
			conflict = err
		case err != nil:
			others = append(others, err)
		}
	})
	if len(others) == 0 {
		return conflict
	}
	return errors.Join(others...)
}
