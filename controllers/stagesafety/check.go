package stagesafety

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
)

// An activator sets the condition Active of AdmissionChecks.
type activator struct{ client client.Client }

// Reconcile sets the condition Active of one AdmissionCheck.
func (a *activator) Reconcile(ctx context.Context, check *kueue.AdmissionCheck) (ctrl.Result, error) {
	if check.Spec.ControllerName != apis.StageSafetyController {
		return ctrl.Result{}, nil
	}
	before := check.DeepCopy()
	changed := apimeta.SetStatusCondition(&check.Status.Conditions, metav1.Condition{
		Type: kueue.AdmissionCheckActive, Status: metav1.ConditionTrue, Reason: "Active", ObservedGeneration: check.Generation,
		Message: "Tranche judges the reservations of stages",
	})
	if !changed {
		return ctrl.Result{}, nil
	}
	err := a.client.Status().Patch(ctx, check, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: afterConflict}, nil
	}
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("activate AdmissionCheck %s: %w", check.Name, err)
	}
	return ctrl.Result{}, nil
}

// afterConflict is how long to wait for the cache after a write that another client was faster than.
const afterConflict = 100 * time.Millisecond

// afterLag is how long to wait until the engine has observed what a reservation depends on.
const afterLag = 500 * time.Millisecond

// A reconciler answers the AdmissionChecks of quota Workloads.
type reconciler struct{ config Config }

// Reconcile answers the pending AdmissionChecks of one quota Workload.
func (r *reconciler) Reconcile(ctx context.Context, workload *kueue.Workload) (ctrl.Result, error) {
	ours, err := r.pendingOurs(ctx, workload)
	if err != nil || len(ours) == 0 {
		return ctrl.Result{}, err
	}
	answer := admission.Answer{IsSafe: true}
	isStage := workload.Labels[apis.StageIndexLabel] != ""
	if isStage {
		var ok bool
		// The engine sees at least this state, and its own watch drops what is older.
		r.config.Runner.Observe(admission.WorkloadObserved{Workload: workload.DeepCopy()})
		err := r.config.Runner.Ask(ctx, func(e *admission.Engine) {
			answer, ok = e.Judge(client.ObjectKeyFromObject(workload), workload.UID, slices.Collect(maps.Keys(ours))...)
		})
		if err != nil {
			return ctrl.Result{}, err
		}
		if !ok {
			// The engine may see the AdmissionCheck, or the ClusterQueue that names it, later than Kueue's manager.
			return ctrl.Result{RequeueAfter: afterLag}, nil
		}
	}
	err = r.write(ctx, workload, ours, answer)
	if err == nil || !isStage || !answer.IsSafe {
		return result(err)
	}
	if err := r.retract(ctx, workload); err != nil {
		return ctrl.Result{}, err
	}
	return result(err)
}

// result waits for the cache after a conflict, which is no error.
func result(err error) (ctrl.Result, error) {
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: afterConflict}, nil
	}
	return ctrl.Result{}, client.IgnoreNotFound(err)
}

// pendingOurs returns the pending checks of this controller.
func (r *reconciler) pendingOurs(ctx context.Context, workload *kueue.Workload) (map[kueue.AdmissionCheckReference]bool, error) {
	ours := map[kueue.AdmissionCheckReference]bool{}
	for _, name := range pendingChecks(workload) {
		var check kueue.AdmissionCheck
		if err := r.config.Client.Get(ctx, client.ObjectKey{Name: name}, &check); client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("read AdmissionCheck %s: %w", name, err)
		}
		if check.Spec.ControllerName == apis.StageSafetyController {
			ours[kueue.AdmissionCheckReference(name)] = true
		}
	}
	return ours, nil
}

// write writes an answer. The API server rejects it if the quota Workload was written since it was read: its reservation may be another one.
func (r *reconciler) write(ctx context.Context, workload *kueue.Workload, ours map[kueue.AdmissionCheckReference]bool, answer admission.Answer) error {
	after := workload.DeepCopy()
	for i := range after.Status.AdmissionChecks {
		check := &after.Status.AdmissionChecks[i]
		if !ours[check.Name] {
			continue
		}
		check.State, check.Message, check.LastTransitionTime = kueue.CheckStateReady, "All JobSets that hold quota can finish", metav1.NewTime(time.Now())
		if !answer.IsSafe {
			check.State, check.Message = kueue.CheckStateRetry, answer.Message
		}
	}
	err := r.config.Client.Status().Patch(ctx, after, client.MergeFromWithOptions(workload, client.MergeFromWithOptimisticLock{}))
	if err != nil {
		return fmt.Errorf("answer AdmissionChecks of quota Workload %s: %w", client.ObjectKeyFromObject(workload), err)
	}
	return nil
}

// retract withdraws the answer that a reservation is safe, unless the API server has it: the answer may be written although the request failed.
// If the API server cannot be asked, the answer counts on: then others wait longer than they have to.
func (r *reconciler) retract(ctx context.Context, workload *kueue.Workload) error {
	key := client.ObjectKeyFromObject(workload)
	var live kueue.Workload
	err := r.config.Live.Get(ctx, key, &live)
	switch {
	case apierrors.IsNotFound(err):
		r.config.Runner.Observe(admission.WorkloadGone{Key: key, UID: workload.UID})
	case err != nil:
		return fmt.Errorf("read quota Workload %s: %w", key, err)
	default:
		r.config.Runner.Observe(admission.WorkloadObserved{Workload: &live})
	}
	return r.config.Runner.Ask(ctx, func(e *admission.Engine) { e.Retract(key, workload.UID) })
}

// isReserved reports whether a quota Workload holds a reservation that may be judged.
func isReserved(workload *kueue.Workload) bool {
	return quotaworkload.HoldsQuota(workload) && !quotaworkload.IsTrue(workload, kueue.WorkloadEvicted) && workload.DeletionTimestamp.IsZero()
}
