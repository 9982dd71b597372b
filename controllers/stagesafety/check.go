package stagesafety

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/apis"
)

// An activator sets the condition Active of AdmissionChecks.
type activator struct{ client client.Client }

// Reconcile sets the condition Active of one AdmissionCheck.
func (a *activator) Reconcile(ctx context.Context, check *kueue.AdmissionCheck) (ctrl.Result, error) {
	after, changed := activated(check)
	if !changed {
		return ctrl.Result{}, nil
	}
	err := a.client.Status().Patch(ctx, after, client.MergeFromWithOptions(check, client.MergeFromWithOptimisticLock{}))
	if err != nil {
		err = fmt.Errorf("activate AdmissionCheck %s: %w", check.Name, err)
	}
	return result(err)
}

// afterConflict is how long to wait for the cache after a write that another client was faster than.
const afterConflict = 100 * time.Millisecond

// afterLag is how long to wait until the engine has observed what a reservation depends on.
const afterLag = 500 * time.Millisecond

// A reconciler answers the AdmissionChecks of quota Workloads.
type reconciler struct {
	config Config
	judge  judge
}

// Reconcile answers the pending AdmissionChecks of one quota Workload, or withdraws the answers of one that has to release its quota.
func (r *reconciler) Reconcile(ctx context.Context, workload *kueue.Workload) (ctrl.Result, error) {
	ours, err := r.ours(ctx, pendingChecks(workload))
	if err != nil {
		return ctrl.Result{}, err
	}
	if len(ours) == 0 {
		return r.revoke(ctx, workload)
	}
	answer, ok, err := r.judge.answer(ctx, workload, ours)
	if err != nil {
		return ctrl.Result{}, err
	}
	if !ok {
		// The engine may see the AdmissionCheck, or the ClusterQueue that names it, later than Kueue's manager.
		return ctrl.Result{RequeueAfter: afterLag}, nil
	}
	err = r.write(ctx, workload, answered(workload, ours, answer, time.Now()))
	if err == nil || !isStage(workload) || !answer.IsSafe {
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

// revoke changes the answers for a reservation from Ready to Retry if the engine asks for that: Kueue's manager evicts the stage.
func (r *reconciler) revoke(ctx context.Context, workload *kueue.Workload) (ctrl.Result, error) {
	if !isStage(workload) || !isReserved(workload) {
		return ctrl.Result{}, nil
	}
	ours, err := r.ours(ctx, checksIn(workload, kueue.CheckStateReady))
	if err != nil || len(ours) == 0 {
		return ctrl.Result{}, err
	}
	why, err := r.judge.revocation(ctx, workload)
	if err != nil || why == "" {
		return ctrl.Result{}, err
	}
	return result(r.write(ctx, workload, answered(workload, ours, admission.Answer{Message: why}, time.Now())))
}

// ours returns the checks of this controller among some.
func (r *reconciler) ours(ctx context.Context, names []string) (map[kueue.AdmissionCheckReference]bool, error) {
	ours := map[kueue.AdmissionCheckReference]bool{}
	for _, name := range names {
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
func (r *reconciler) write(ctx context.Context, before, after *kueue.Workload) error {
	err := r.config.Client.Status().Patch(ctx, after, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if err != nil {
		return fmt.Errorf("answer AdmissionChecks of quota Workload %s: %w", client.ObjectKeyFromObject(before), err)
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
		return r.judge.retract(ctx, workload, nil)
	case err != nil:
		return fmt.Errorf("read quota Workload %s: %w", key, err)
	}
	return r.judge.retract(ctx, workload, &live)
}
