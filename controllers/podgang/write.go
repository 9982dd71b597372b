package podgang

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/controllers/events"
	"github.com/tranche-dev/tranche/controllers/internal/patch"
	"github.com/tranche-dev/tranche/lifecycle/podgang"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

const (
	// reasonDisrupted is the reason of the condition DisruptionTarget.
	reasonDisrupted = "EvictedByTranche"
	// lookAgain is when a gang with a problem is reconciled again, in case a user has fixed something that no watch reports.
	lookAgain = time.Minute
	// reclaimFieldManager owns status.reclaimablePods of quota Workloads. It is Kueue's name.
	reclaimFieldManager client.FieldOwner = "kueue-reclaimable-pods"
)

// write executes the actions of the step, in their order. It stops at the first error: later actions may rely on earlier ones, and the next
// reconcile continues from the state reached. Actions that release quota come first, so that a tenant whose pods cannot be ungated does not
// keep quota that must be released.
func (r *Reconciler) write(ctx context.Context, s *snapshot, step *podgang.Step) (ctrl.Result, error) {
	r.tellPlan(s, step)
	steps := []func(context.Context, *snapshot, *podgang.Step) error{
		r.noteTimeout, r.evict, r.deletePods, r.progress, r.reclaim, r.giveBack, r.unpin, r.drop, r.create, r.change, r.release, r.report,
		r.keepStatus,
	}
	for _, do := range steps {
		if err := do(ctx, s, step); err != nil {
			if apierrors.IsConflict(err) {
				return ctrl.Result{Requeue: true}, nil //nolint:staticcheck // a conflict is retried with the back-off of the queue
			}
			if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
				// Nothing new can be created there, and the namespace controller deletes the pods.
				return ctrl.Result{}, nil
			}
			return ctrl.Result{}, err
		}
	}
	r.requeuePeers(ctx, s)
	switch {
	case s.awaitsEngine:
		return ctrl.Result{Requeue: true}, nil //nolint:staticcheck // no watch reports when the engine has observed it
	case step.Message.IsWarning && (step.RequeueAfter == 0 || step.RequeueAfter > lookAgain):
		return ctrl.Result{RequeueAfter: lookAgain}, nil
	}
	return ctrl.Result{RequeueAfter: step.RequeueAfter}, nil
}

// create creates quota Workloads. A quota Workload that is rejected, or whose name another object has, is a problem of the gang.
func (r *Reconciler) create(ctx context.Context, s *snapshot, step *podgang.Step) error {
	for _, workload := range step.Create {
		err := r.client.Create(ctx, workload.DeepCopy())
		switch {
		case isRefusal(err):
			step.Message = podgang.Message{Reason: "Misconfigured", Topic: "Create", Text: fmt.Sprintf("the gang gets no quota Workload, mend its pods: %s", err), IsWarning: true}
			return nil
		case apierrors.IsAlreadyExists(err):
			if taken, err := r.isTaken(ctx, s, workload); err != nil || !taken {
				return err
			}
			step.Message = podgang.Message{
				Reason: "Misconfigured", Topic: "Create", IsWarning: true,
				Text: fmt.Sprintf("the gang gets no quota Workload: there is one named %q already, which is not its own; give the gang another name", workload.Name),
			}
			return nil
		case err != nil:
			return fmt.Errorf("create quota Workload %s: %w", client.ObjectKeyFromObject(workload), err)
		}
	}
	return nil
}

// isTaken reports whether the quota Workload of a name belongs to another gang.
func (r *Reconciler) isTaken(ctx context.Context, s *snapshot, workload *kueue.Workload) (bool, error) {
	var there kueue.Workload
	if err := r.live.Get(ctx, client.ObjectKeyFromObject(workload), &there); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	ref, ok := refOfWorkload(&there)
	return !ok || ref != s.Gang.Ref, nil
}

func (r *Reconciler) evict(ctx context.Context, _ *snapshot, step *podgang.Step) error {
	for _, e := range step.Evict {
		status := workloadstatus.Evicted(e.Workload, e.Why, time.Now())
		if e.Requeue != nil {
			status.RequeueState = e.Requeue
		}
		written, err := r.apply(ctx, e.Workload, status, apis.AdmissionFieldManager, e.Workload.ResourceVersion)
		if err != nil {
			return err
		}
		if written != nil {
			r.config.Runner.Observe(admission.WorkloadObserved{Workload: written})
			events.Evicted(e.Why.EventReason(), e.Why.Message).Emit(r.config.Recorder, written)
		}
	}
	return nil
}

// change updates quota Workloads. A rejected update is a problem of the gang, and then none of its pods is ungated: they may rely on the
// update.
func (r *Reconciler) change(ctx context.Context, _ *snapshot, step *podgang.Step) error {
	for _, c := range step.Change {
		change := patch.IfSameUID(c.Before)
		if !equality.Semantic.DeepEqual(c.Before.Spec.PodSets, c.After.Spec.PodSets) || !slices.Equal(ownersOf(c.Before), ownersOf(c.After)) {
			// It may have been admitted in the meantime, for the pods that it asked for before; and a patch replaces all owners.
			change = patch.Locked(c.Before, c.Before.ResourceVersion)
		}
		err := r.client.Patch(ctx, c.After.DeepCopy(), change)
		if isRefusal(err) {
			step.Ungate = nil
			step.Message = podgang.Message{
				Reason: "Misconfigured", Topic: "Change", IsWarning: true,
				Text: fmt.Sprintf("the quota Workload %q cannot be changed to what the gang asks for, mend the gang: %s", c.Before.Name, err),
			}
			return nil
		}
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("change quota Workload %s: %w", client.ObjectKeyFromObject(c.Before), err)
		}
	}
	return nil
}

func ownersOf(workload *kueue.Workload) []string {
	var uids []string
	for i := range workload.OwnerReferences {
		uids = append(uids, string(workload.OwnerReferences[i].UID))
	}
	return uids
}

// release ungates pods, many at a time. If one pod cannot be ungated the others still are, and the next reconcile tries again. If the API
// server rejects the change of a pod, that is a problem of the gang.
func (r *Reconciler) release(ctx context.Context, _ *snapshot, step *podgang.Step) error {
	refused := make([]error, len(step.Ungate))
	err := r.each(ctx, len(step.Ungate), func(i int) error {
		rel := &step.Ungate[i]
		err := r.client.Patch(ctx, rel.After.DeepCopy(), patch.Locked(rel.Before, rel.Before.GetResourceVersion()))
		if isRefusal(err) {
			refused[i] = err
			return nil
		}
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("let pod %s go: %w", client.ObjectKeyFromObject(rel.Before), err)
		}
		return nil
	})
	if i := slices.IndexFunc(refused, func(err error) bool { return err != nil }); i >= 0 {
		step.Message = podgang.Message{
			Reason: "Misconfigured", Topic: "Release", IsWarning: true,
			Text: fmt.Sprintf("pod %q stays gated, because the API server refuses to let it go; mend it, or make it anew: %s", step.Ungate[i].Before.Name, refused[i]),
		}
	}
	return err
}

// isRefusal reports whether the content of a write was rejected, as opposed to its time or frequency.
func isRefusal(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsRequestEntityTooLargeError(err)
}

func (r *Reconciler) deletePods(ctx context.Context, _ *snapshot, step *podgang.Step) error {
	return r.each(ctx, len(step.Delete), func(i int) error {
		d := &step.Delete[i]
		if err := r.markDisrupted(ctx, d); err != nil {
			return err
		}
		err := r.client.Delete(ctx, d.Pod.DeepCopy(), client.Preconditions{UID: &d.Pod.UID})
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete pod %s of an evicted gang: %w", client.ObjectKeyFromObject(d.Pod), err)
		}
		if err == nil && i < toldPods {
			told := events.PodEvicted(d.Why)
			if metav1.GetControllerOf(d.Pod) == nil {
				told = events.BarePodEvicted(d.Why)
			}
			told.Emit(r.config.Recorder, d.Pod)
		}
		return nil
	})
}

// markDisrupted records on a pod that is about to be deleted that the pod did not fail by itself, as Kubernetes does: the podFailurePolicy
// of a Job can then ignore the failure.
func (r *Reconciler) markDisrupted(ctx context.Context, d *podgang.Delete) error {
	const longest = 1024
	condition := corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: reasonDisrupted, Message: "The gang is evicted: " + d.Why, LastTransitionTime: metav1.Now(),
	}
	condition.Message = strings.ToValidUTF8(condition.Message[:min(len(condition.Message), longest)], "")
	data, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": d.Pod.UID}, "status": map[string]any{"conditions": []corev1.PodCondition{condition}},
	})
	if err != nil {
		return fmt.Errorf("render condition of pod %s: %w", client.ObjectKeyFromObject(d.Pod), err)
	}
	err = r.client.Status().Patch(ctx, d.Pod.DeepCopy(), client.RawPatch(types.StrategicMergePatchType, data))
	// Another pod of its name has another UID, which is a conflict. A pod that cannot be marked is deleted nevertheless.
	if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) && !isRefusal(err) {
		return fmt.Errorf("mark pod %s of an evicted gang: %w", client.ObjectKeyFromObject(d.Pod), err)
	}
	return nil
}

// each runs f for 0 to n-1, a bounded number at a time, and joins the errors. If all of them are conflicts the result is one.
func (r *Reconciler) each(ctx context.Context, n int, f func(int) error) error {
	var mu sync.Mutex
	var all []error
	var conflict error
	workqueue.ParallelizeUntil(ctx, r.config.Releases, n, func(i int) {
		err := f(i)
		if err == nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if apierrors.IsConflict(err) {
			conflict = err
			return
		}
		all = append(all, err)
	})
	if len(all) == 0 {
		return conflict
	}
	return errors.Join(all...)
}

func (r *Reconciler) progress(ctx context.Context, s *snapshot, step *podgang.Step) error {
	for _, p := range step.Progress {
		version := ""
		if p.Finished != nil {
			version = p.Workload.ResourceVersion
		}
		written, err := r.apply(ctx, p.Workload, workloadstatus.Progress(p.Workload, p.Ready, p.Finished, time.Now()), apis.FieldManager, version)
		if err != nil {
			return err
		}
		if written != nil && p.Finished != nil {
			r.config.Runner.Observe(admission.WorkloadObserved{Workload: written})
			if s.object == nil {
				events.GangFinished(p.Finished.Message).Emit(r.config.Recorder, r.subject(s, written))
			}
		}
	}
	return nil
}

func (r *Reconciler) reclaim(ctx context.Context, _ *snapshot, step *podgang.Step) error {
	for _, c := range step.Reclaim {
		if _, err := r.apply(ctx, c.Workload, kueue.WorkloadStatus{ReclaimablePods: c.Pods}, reclaimFieldManager, c.Workload.ResourceVersion); err != nil {
			return err
		}
	}
	return nil
}

func (r *Reconciler) giveBack(ctx context.Context, _ *snapshot, step *podgang.Step) error {
	for _, workload := range step.ReleaseQuota {
		written, err := r.apply(ctx, workload, workloadstatus.QuotaReleased(workload, time.Now()), apis.AdmissionFieldManager, workload.ResourceVersion)
		if err != nil {
			return err
		}
		if written != nil {
			r.config.Runner.Observe(admission.WorkloadObserved{Workload: written})
		}
	}
	return nil
}

func (r *Reconciler) unpin(ctx context.Context, _ *snapshot, step *podgang.Step) error {
	for _, workload := range step.RemoveFinalizer {
		if err := patch.RemoveFinalizer(ctx, r.client, workload); err != nil {
			return err
		}
	}
	return nil
}

func (r *Reconciler) drop(ctx context.Context, _ *snapshot, step *podgang.Step) error {
	for _, workload := range step.DeleteWorkloads {
		// If it was admitted, and a pod ungated, since it was read, it is not dropped.
		err := r.client.Delete(ctx, workload.DeepCopy(), client.Preconditions{UID: &workload.UID, ResourceVersion: &workload.ResourceVersion})
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete quota Workload %s: %w", client.ObjectKeyFromObject(workload), err)
		}
		if err := patch.RemoveFinalizer(ctx, r.client, workload); err != nil {
			return err
		}
	}
	return nil
}

// apply writes a part of the status of a quota Workload if the Workload is unchanged since resourceVersion, unless that is empty. It does
// nothing if the Workload has disappeared.
func (r *Reconciler) apply(ctx context.Context, workload *kueue.Workload, status kueue.WorkloadStatus, owner client.FieldOwner, resourceVersion string) (*kueue.Workload, error) {
	written, err := patch.ApplyWorkloadStatus(ctx, r.client, workload, patch.Status{Part: r.config.Runner.Shown(status), Owner: owner, ResourceVersion: resourceVersion})
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // nothing was written, and that is all right
	}
	return written, err
}
