package explain

import (
	"fmt"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	visibilityapi "github.com/tranche-dev/tranche/apis/visibility"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// conditionLine returns what the status of a pending quota Workload reports.
func conditionLine(w *kueue.Workload) string {
	wait := workloadstatus.WaitOf(w)
	if wait == nil {
		return "waiting for the first scheduling cycle"
	}
	return fmt.Sprintf("%s: %s", wait.Reason, wait.Message)
}

// stateOf returns the state of a quota Workload that does not wait for quota, or "".
func stateOf(w *kueue.Workload) string {
	is := func(conditionType string) bool {
		return apimeta.IsStatusConditionTrue(w.Status.Conditions, conditionType)
	}
	message := func(conditionType string) string {
		return apimeta.FindStatusCondition(w.Status.Conditions, conditionType).Message
	}
	queue := ""
	if w.Status.Admission != nil {
		queue = fmt.Sprintf(" in ClusterQueue %q", w.Status.Admission.ClusterQueue)
	}
	switch {
	case is(kueue.WorkloadFinished):
		finished := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadFinished)
		return fmt.Sprintf("has finished: %s: %s", finished.Reason, finished.Message)
	case is(kueue.WorkloadEvicted) && is(kueue.WorkloadQuotaReserved):
		return "is evicted, and holds its quota" + queue + " until its pods have terminated: " + message(kueue.WorkloadEvicted)
	case is(kueue.WorkloadAdmitted) && is(kueue.WorkloadPodsReady):
		return "is admitted" + queue + ", and all pods are ready or have succeeded"
	case is(kueue.WorkloadAdmitted):
		return "is admitted" + queue + ", but not all pods are ready yet"
	case is(kueue.WorkloadQuotaReserved):
		return "has reserved its quota" + queue + ", and waits for AdmissionChecks"
	}
	return ""
}

// noticeOf returns when the pods of a quota Workload will be preempted, and for which other one, or "" if it has no notice.
func noticeOf(w *kueue.Workload) string {
	if quotaworkload.NoticeOf(w) == nil {
		return ""
	}
	return apis.PreemptionPendingCondition + ": " + apimeta.FindStatusCondition(w.Status.Conditions, apis.PreemptionPendingCondition).Message
}

// whyIneligible returns why a quota Workload is not in the queue, or "".
func whyIneligible(w *kueue.Workload) string {
	closed := quotaworkload.ClosedBy(w)
	if closed == nil {
		return ""
	}
	why := "is not in the queue: " + closed.Text()
	backsOff := w.DeletionTimestamp.IsZero() && ptr.Deref(w.Spec.Active, true) && quotaworkload.GateOf(w) == nil
	if state := w.Status.RequeueState; backsOff && state != nil && state.RequeueAt != nil {
		why += "; requeues at " + state.RequeueAt.UTC().Format(time.RFC3339)
	}
	return why
}

// explanationLines renders an explanation as text.
func explanationLines(x *visibilityapi.Explanation) []string {
	if x.Check == "" {
		return []string{"  all checks pass; waiting for the next scheduling cycle"}
	}
	lines := []string{fmt.Sprintf("  %s: %s", x.Reason, x.Message)}
	if x.Behind != nil {
		why := "which is ahead in the queue"
		if x.Check == admission.DelaysNone {
			why = "for which quota is reserved"
		}
		lines = append(lines, fmt.Sprintf("  blocked by Workload %s, %s", x.Behind, why))
	}
	for i, a := range x.Alternatives {
		if len(x.Alternatives) > 1 {
			lines = append(lines, fmt.Sprintf("  flavor alternative %d:", i+1))
		}
		for k := range a.Shortages {
			lines = append(lines, shortageLines(&a.Shortages[k])...)
		}
	}
	return lines
}

func shortageLines(s *visibilityapi.Shortage) []string {
	c := s.Constraint
	lines := []string{
		fmt.Sprintf("  %s of flavor %s: needs %s, %s free, %s missing", s.Resource, s.Flavor, s.Needed.String(), s.Free.String(), s.Missing.String()),
		fmt.Sprintf("    limit: %s of %s %s is %s", c.Limit, c.Kind, c.Name, c.Amount.String()),
	}
	for _, h := range s.Holders {
		lines = append(lines, "    held by "+holderText(&h))
	}
	if s.MoreHolders > 0 {
		lines = append(lines, fmt.Sprintf("    and by %d more", s.MoreHolders))
	}
	if s.Unreleasable != nil {
		lines = append(lines, fmt.Sprintf("    %s would be missing even if all of them released their quota", s.Unreleasable.String()))
	}
	return lines
}

func holderText(h *visibilityapi.Holder) string {
	name := h.String()
	if name == "" {
		name = "of another namespace"
	}
	text := fmt.Sprintf("%s %s: %s in ClusterQueue %s", h.Kind, name, h.Amount.String(), h.ClusterQueue)
	if h.Kept {
		text += ", partly reserved and not used yet"
	}
	switch {
	case h.Leaving:
		text += ", evicted, pods terminating"
	case h.RunsUntil != nil:
		text += ", will be preempted, runs until " + h.RunsUntil.UTC().Format("2006-01-02 15:04:05Z")
	}
	return text
}
