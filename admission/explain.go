package admission

import (
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// Explain says why a stage is not admitted, as it is now. It is empty for a stage that is charged or finished, that does not exist,
// or that has nothing in its way but the next call of Decide.
func (e *Engine) Explain(key StageKey) []Refusal {
	e.settleGroups()
	s := e.stages[key]
	switch {
	case s == nil || s.entry.phase != waiting && s.entry.phase != closed:
		return nil
	case s.entry.phase == closed && s.closed == "":
		return []Refusal{{
			Check: "BackoffIsOver", Reason: kueue.WorkloadQuotaReservedReasonPendingEvaluation,
			Message: "may be admitted again from " + s.requeueAt.UTC().Format(time.RFC3339) + " on (status.requeueState.requeueAt)",
		}}
	case s.entry.phase == closed:
		return []Refusal{{Check: "IsOpen", Reason: kueue.WorkloadAdmissionGated, Message: s.closed}}
	case s.line == nil:
		return []Refusal{{
			Check: "PlanIsKnown", Reason: kueue.WorkloadQuotaReservedReasonPendingEvaluation,
			Message: "the stage plan of its JobSet has not been seen yet",
		}}
	}
	if refusal := e.check(e.look(s)); refusal != nil {
		return []Refusal{*refusal}
	}
	return nil
}
