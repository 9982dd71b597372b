// Package apply writes the parts of Steps that JobSets and gangs of pods have in common, classifies the errors of their writes, and reads
// what their quota Workloads are admitted to.
package apply

import (
	"context"
	"errors"
	"fmt"
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
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/controllers/engine"
	"github.com/tranche-dev/tranche/controllers/events"
	"github.com/tranche-dev/tranche/controllers/internal/patch"
	"github.com/tranche-dev/tranche/lifecycle/quotastep"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// reclaimFieldManager owns status.reclaimablePods of quota Workloads. It is Kueue's name.
const reclaimFieldManager client.FieldOwner = "kueue-reclaimable-pods"

// A Writer writes quota Workloads. A write does nothing if the quota Workload has disappeared.
type Writer struct {
	Client   client.Client
	Runner   *engine.Runner
	Recorder k8sevents.EventRecorder
	// Parallel is how many objects Each writes at the same time.
	Parallel int
}

// An Outcome is what the owner of quota Workloads does about their writes. Each function may be nil.
type Outcome struct {
	// Done is called after each write that has changed its quota Workload, with the answer of the API server or, if it has none, the quota Workload as it was
	// read.
	Done func(write *quotastep.Write, written *kueue.Workload)
	// Failed returns what the error of a write means to the owner. Without an error, the next write follows.
	Failed func(write *quotastep.Write, err error) error
}

// Write carries out writes in their order, and stops at the first error.
func (w *Writer) Write(ctx context.Context, writes []quotastep.Write, on Outcome) error {
	for i := range writes {
		write := &writes[i]
		written, err := w.write(ctx, write)
		switch {
		case err != nil && on.Failed != nil:
			err = on.Failed(write, err)
		case err == nil && written != nil && on.Done != nil:
			on.Done(write, written)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// write carries out one write, and returns nil if the quota Workload has disappeared.
func (w *Writer) write(ctx context.Context, write *quotastep.Write) (written *kueue.Workload, err error) {
	workload := write.Workload
	switch write.Kind {
	case quotastep.Create, quotastep.Grow:
		if err := w.Client.Create(ctx, workload); err != nil {
			return nil, fmt.Errorf("create quota Workload %s: %w", client.ObjectKeyFromObject(workload), err)
		}
		return workload, nil
	case quotastep.Change:
		return w.change(ctx, write)
	case quotastep.Reopen:
		return workload, w.delete(ctx, workload)
	case quotastep.Delete:
		if workload.DeletionTimestamp.IsZero() {
			if err := w.delete(ctx, workload); err != nil {
				return nil, err
			}
		}
		return workload, patch.RemoveFinalizer(ctx, w.Client, workload)
	case quotastep.RemoveFinalizer:
		return workload, patch.RemoveFinalizer(ctx, w.Client, workload)
	case quotastep.Admit, quotastep.Evict, quotastep.Progress, quotastep.Reclaim, quotastep.Release:
	}
	return w.status(ctx, write)
}

// change patches the metadata and the spec of a quota Workload.
//
// A bar (quotaworkload.Bar) is a part of the status. A new bar is written first and a bar is removed last, so that a quota Workload that is cut
// short in between is not admitted too early.
func (w *Writer) change(ctx context.Context, write *quotastep.Write) (*kueue.Workload, error) {
	before, after := write.Workload, write.After
	if quotaworkload.HasSameBar(before, after) {
		return w.changeSpec(ctx, write)
	}
	if quotaworkload.IsBarred(after) {
		return w.bar(ctx, before, after)
	}
	written, err := w.changeSpec(ctx, write)
	if err != nil || written == nil {
		return nil, err
	}
	return w.bar(ctx, written, after)
}

// bar writes the condition Requeued that names the gates of a quota Workload. The next reconcile writes the other changes.
func (w *Writer) bar(ctx context.Context, before, after *kueue.Workload) (*kueue.Workload, error) {
	bar := apimeta.FindStatusCondition(after.Status.Conditions, kueue.WorkloadRequeued)
	return w.observedStatus(ctx, before, patch.Status{
		Part: workloadstatus.Barred(before, *bar, time.Now()), Owner: apis.AdmissionFieldManager, ResourceVersion: before.ResourceVersion,
	})
}

// changeSpec writes the changes of metadata and spec, and returns the written quota Workload.
func (w *Writer) changeSpec(ctx context.Context, write *quotastep.Write) (*kueue.Workload, error) {
	before, after := write.Workload, write.After
	if equality.Semantic.DeepEqual(before.Spec, after.Spec) && equality.Semantic.DeepEqual(before.ObjectMeta, after.ObjectMeta) {
		return before, nil
	}
	change := patch.IfSameUID(before)
	if write.IsLocked() {
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

// status writes a part of the status. The engine observes it at once: the parts of the admission, and the reclaimable pods, so that no Job gets these pods
// back while the cache lacks the write.
func (w *Writer) status(ctx context.Context, write *quotastep.Write) (*kueue.Workload, error) {
	status := patch.Status{Part: write.Status(time.Now()), Owner: apis.AdmissionFieldManager}
	if write.IsLocked() {
		status.ResourceVersion = write.Workload.ResourceVersion
	}
	if write.Kind == quotastep.Progress {
		status.Owner = apis.FieldManager
		return w.applyStatus(ctx, write.Workload, status)
	}
	if write.Kind == quotastep.Reclaim {
		status.Owner = reclaimFieldManager
	}
	written, err := w.observedStatus(ctx, write.Workload, status)
	if written != nil && write.Kind == quotastep.Evict {
		events.Evicted(write.Eviction.EventReason(), write.Eviction.Message).Emit(w.Recorder, written)
	}
	return written, err
}

func (w *Writer) observedStatus(ctx context.Context, workload *kueue.Workload, status patch.Status) (*kueue.Workload, error) {
	written, err := w.applyStatus(ctx, workload, status)
	if written != nil {
		w.Runner.Observe(admission.WorkloadObserved{Workload: written})
	}
	return written, err
}

func (w *Writer) applyStatus(ctx context.Context, workload *kueue.Workload, status patch.Status) (*kueue.Workload, error) {
	status.Part = w.Runner.Shown(status.Part)
	written, err := patch.ApplyWorkloadStatus(ctx, w.Client, workload, status)
	return written, client.IgnoreNotFound(err)
}

// delete deletes a quota Workload as it was read. If it was admitted in the meantime, the API server rejects that.
func (w *Writer) delete(ctx context.Context, workload *kueue.Workload) error {
	err := w.Client.Delete(ctx, workload, client.Preconditions{UID: &workload.UID, ResourceVersion: &workload.ResourceVersion})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete quota Workload %s: %w", client.ObjectKeyFromObject(workload), err)
	}
	return nil
}

// Change carries out a change that is in no Step.
func (w *Writer) Change(ctx context.Context, before, after *kueue.Workload) error {
	_, err := w.write(ctx, &quotastep.Write{Kind: quotastep.Change, Workload: before, After: after})
	return err
}

// Delete carries out a deletion that is in no Step.
func (w *Writer) Delete(ctx context.Context, workload *kueue.Workload) error {
	_, err := w.write(ctx, &quotastep.Write{Kind: quotastep.Delete, Workload: workload})
	return err
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
		if quotaworkload.IsCharged(workload) && !charged[workload.UID] {
			runner.Observe(admission.WorkloadObserved{Workload: workload})
			isComplete = false
		}
	}
	if isComplete {
		return charged, nil
	}
	return charged, runner.View(ctx, ask)
}

// IsStillDeactivated reports whether a quota Workload is deactivated for the same cause and since the same time according to the API server, so that its owner
// can be deleted.
func IsStillDeactivated(ctx context.Context, live client.Reader, read *kueue.Workload) (bool, error) {
	var now kueue.Workload
	if err := live.Get(ctx, client.ObjectKeyFromObject(read), &now); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	at := workloadstatus.DeactivatedAt(&now)
	return now.UID == read.UID && at != nil && at.Equal(*workloadstatus.DeactivatedAt(read)), nil
}

// Result returns the result of a reconcile that has written a Step.
func Result(step *quotastep.Step, err error) (ctrl.Result, error) {
	switch {
	case err != nil:
		return Failed(err)
	case step.AwaitsEngine:
		return ctrl.Result{Requeue: true}, nil //nolint:staticcheck // no watch reports when the engine has observed it
	}
	return ctrl.Result{RequeueAfter: step.RequeueAfter}, nil
}

// IgnoreNotFound adds to an error what was attempted. An object that does not exist is no error.
func IgnoreNotFound(err error, format string, args ...any) error {
	if client.IgnoreNotFound(err) == nil {
		return nil
	}
	return fmt.Errorf(format+": %w", append(args, err)...)
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
