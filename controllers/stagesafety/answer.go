package stagesafety

import (
	"context"
	"maps"
	"slices"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
)

// A runner passes observations and questions to the goroutine that owns the engine.
type runner interface {
	Observe(event admission.Event)
	Ask(ctx context.Context, f func(*admission.Engine)) error
	OnWoken(f func(admission.Owner))
	OnRevoked(f func(admission.StageKey))
}

// A judge asks the engine about reservations.
type judge struct{ runner runner }

// answer returns what the engine answers to the pending checks of a reservation. It is not ok if the engine has not observed what the answer depends
// on. A quota Workload that is no stage of a JobSet is safe.
func (j judge) answer(ctx context.Context, workload *kueue.Workload, ours map[kueue.AdmissionCheckReference]bool) (answer admission.Answer, ok bool, err error) {
	if !isStage(workload) {
		return admission.Answer{IsSafe: true}, true, nil
	}
	// The engine sees at least this state, and its own watch drops what is older.
	j.runner.Observe(admission.WorkloadObserved{Workload: workload.DeepCopy()})
	err = j.runner.Ask(ctx, func(e *admission.Engine) {
		answer, ok = e.Judge(client.ObjectKeyFromObject(workload), workload.UID, slices.Sorted(maps.Keys(ours))...)
	})
	return answer, ok, err
}

// revocation returns why a reservation has to be released that was found to be safe before, or "".
func (j judge) revocation(ctx context.Context, workload *kueue.Workload) (why string, err error) {
	j.runner.Observe(admission.WorkloadObserved{Workload: workload.DeepCopy()})
	err = j.runner.Ask(ctx, func(e *admission.Engine) { why = e.Revocation(client.ObjectKeyFromObject(workload), workload.UID) })
	return why, err
}

// retract withdraws the answer that a reservation is safe, unless its current state in the API server, which is nil if it is deleted, has the answer.
func (j judge) retract(ctx context.Context, workload, live *kueue.Workload) error {
	key := client.ObjectKeyFromObject(workload)
	if live == nil {
		j.runner.Observe(admission.WorkloadGone{Key: key, UID: workload.UID})
	} else {
		j.runner.Observe(admission.WorkloadObserved{Workload: live})
	}
	return j.runner.Ask(ctx, func(e *admission.Engine) { e.Retract(key, workload.UID) })
}

// answered returns a quota Workload with the answer in its AdmissionChecks of this controller.
func answered(workload *kueue.Workload, ours map[kueue.AdmissionCheckReference]bool, answer admission.Answer, now time.Time) *kueue.Workload {
	after := workload.DeepCopy()
	for i := range after.Status.AdmissionChecks {
		check := &after.Status.AdmissionChecks[i]
		if !ours[check.Name] {
			continue
		}
		check.State, check.Message, check.LastTransitionTime = kueue.CheckStateReady, "All JobSets that hold quota can finish", metav1.NewTime(now)
		if !answer.IsSafe {
			check.State, check.Message = kueue.CheckStateRetry, answer.Message
		}
	}
	return after
}

// activated returns an AdmissionCheck of this controller with the condition Active, and whether that changes it.
func activated(check *kueue.AdmissionCheck) (after *kueue.AdmissionCheck, changed bool) {
	if check.Spec.ControllerName != apis.StageSafetyController {
		return check, false
	}
	after = check.DeepCopy()
	changed = apimeta.SetStatusCondition(&after.Status.Conditions, metav1.Condition{
		Type: kueue.AdmissionCheckActive, Status: metav1.ConditionTrue, Reason: "Active", ObservedGeneration: check.Generation,
		Message: "Tranche judges the reservations of stages",
	})
	return after, changed
}

func isStage(workload *kueue.Workload) bool { return workload.Labels[apis.StageIndexLabel] != "" }

// isReserved reports whether a quota Workload holds a reservation that may be judged.
func isReserved(workload *kueue.Workload) bool {
	return quotaworkload.HoldsQuota(workload) && !quotaworkload.IsTrue(workload, kueue.WorkloadEvicted) && workload.DeletionTimestamp.IsZero()
}

// pendingChecks returns the AdmissionChecks that a quota Workload with a reservation waits for.
func pendingChecks(object client.Object) []string {
	if workload, ok := object.(*kueue.Workload); ok && isReserved(workload) {
		return checksIn(workload, kueue.CheckStatePending)
	}
	return nil
}

func checksIn(workload *kueue.Workload, state kueue.CheckState) []string {
	var names []string
	for i := range workload.Status.AdmissionChecks {
		if check := &workload.Status.AdmissionChecks[i]; check.State == state {
			names = append(names, string(check.Name))
		}
	}
	return names
}
