// Package apply writes the parts of Steps that JobSets and gangs of pods have in common, classifies the errors of their writes, and reads
// what their quota Workloads are admitted to.
package apply

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	k8sevents "k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
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
func (w *Writer) Change(ctx context.Context, before, after *kueue.Workload) error {
	change := patch.IfSameUID(before)
	isSameOwner := func(a, b metav1.OwnerReference) bool { return a.UID == b.UID }
	if !equality.Semantic.DeepEqual(before.Spec.PodSets, after.Spec.PodSets) || !slices.EqualFunc(before.OwnerReferences, after.OwnerReferences, isSameOwner) {
		change = patch.Locked(before, before.ResourceVersion)
	}
	if err := w.Client.Patch(ctx, after.DeepCopy(), change); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("change quota Workload %s: %w", client.ObjectKeyFromObject(before), err)
	}
	return nil
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
	written, err := w.status(ctx, workload, patch.Status{Part: status, Owner: apis.AdmissionFieldManager, ResourceVersion: workload.ResourceVersion})
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
// must not have changed.
func (w *Writer) Reclaim(ctx context.Context, workload *kueue.Workload, pods []kueue.ReclaimablePod) error {
	_, err := w.status(ctx, workload, patch.Status{
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

// Charged asks the engine which quota Workloads it charges. The cache may still show an admission that the engine has rolled back, or whose
// quota was released.
func Charged(ctx context.Context, runner *engine.Runner, workloads []*kueue.Workload) (map[types.UID]bool, error) {
	charged := map[types.UID]bool{}
	err := runner.View(ctx, func(e *admission.Engine) {
		for _, workload := range workloads {
			charged[workload.UID] = e.Charged(client.ObjectKeyFromObject(workload), workload.UID)
		}
	})
	return charged, err
}
