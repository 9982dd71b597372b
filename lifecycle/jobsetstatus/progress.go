package jobsetstatus

import (
	"fmt"
	"strings"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// maxNamed is how many stages a list of JobSets names for each JobSet.
const maxNamed = 3

// inProgress returns the condition StageInProgress, which is short enough for a column of a list. StageAdmitted has the details.
func inProgress(summary Summary) metav1.Condition {
	c := metav1.Condition{Type: StageInProgress, Status: metav1.ConditionTrue, Reason: StageInProgress}
	if summary.Failure != nil || summary.Over || len(summary.Current) == 0 {
		c.Status, c.Reason = metav1.ConditionFalse, stageAdmitted(summary).Reason
		return c
	}
	var names []string
	for _, st := range summary.Current[:min(len(summary.Current), maxNamed)] {
		names = append(names, fmt.Sprintf("%d/%d %s", st.Index+1, summary.Stages, st.Name))
	}
	c.Message = strings.Join(names, ", ")
	if more := len(summary.Current) - maxNamed; more > 0 {
		c.Message += fmt.Sprintf(" and %d more", more)
	}
	return c
}

// A Wait describes why a stage of a JobSet was refused quota.
type Wait struct {
	// Workload is the quota Workload of the stage.
	Workload *kueue.Workload
	// Reason is the reason of Kueue, such as WaitingForQuota.
	Reason string
	// Message names the stage and the missing quota.
	Message string
}

// IsTooLarge reports whether the stage would be refused even if no quota were held.
func (w *Wait) IsTooLarge() bool { return w.Reason == kueue.WorkloadQuotaReservedReasonExceedsMaxQuota }

// NewWaitReason returns why a stage waits, if it was refused quota and the JobSet has not reported that before, or reported another stage or
// reason. Changed amounts are not news: the condition shows them.
func NewWaitReason(js *jobsetapi.JobSet, summary Summary) *Wait {
	waiting := summary.firstWaiting()
	if waiting == nil || summary.Over || summary.Suspended || !isRefused(waiting.Workload) {
		return nil
	}
	reason, message := waitingStage(summary, *waiting)
	before := apimeta.FindStatusCondition(js.Status.Conditions, StageAdmitted)
	if before != nil && before.Status == metav1.ConditionFalse && before.Reason == reason && strings.Contains(withoutAmounts(before.Message), withoutAmounts(message)) {
		return nil
	}
	return &Wait{Workload: waiting.Workload, Reason: reason, Message: message}
}

// isRefused reports whether the engine has refused quota to a quota Workload that asks for it.
func isRefused(workload *kueue.Workload) bool {
	wait := workloadstatus.WaitOf(workload)
	return wait != nil && wait.Reason != kueue.WorkloadQuotaReservedReasonPendingEvaluation && workloadstatus.KeptOut(workload) == nil
}

// withoutAmounts removes the amounts from a message that is truncated like that of a condition.
func withoutAmounts(message string) string { return workloadstatus.WithoutAmounts(cut(message)) }
