package jobsetstatus

import (
	"fmt"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// JobSetEvicted returns the conditions of a JobSet that returns to the boundary of its last succeeded stage, because the quota Workload of
// one of its stages was evicted.
func JobSetEvicted(js *jobsetapi.JobSet, stages int, cause StageState) []metav1.Condition {
	e := workloadstatus.EvictionOf(cause.Workload)
	summary := Summary{Stages: stages, Current: []StageState{cause}}
	return timed(js, append(preemptionPending(js, summary), metav1.Condition{
		Type: StageAdmitted, Status: metav1.ConditionFalse, Reason: e.EventReason(),
		Message: fmt.Sprintf("Evicted from %s, waiting for its pods to end: %s", title(summary, cause), e.Message),
	}, inProgress(summary))...)
}

// preemptionPending returns the condition PreemptionPending of a JobSet that has or had notice of its preemption. It is that of the quota Workload of its
// first stage with notice; without one it has the reason why the last notice ended, also of a notice that was too short to be written to the JobSet.
func preemptionPending(js *jobsetapi.JobSet, summary Summary) []metav1.Condition {
	before := apimeta.FindStatusCondition(js.Status.Conditions, apis.PreemptionPendingCondition)
	ended := metav1.Condition{Type: apis.PreemptionPendingCondition, Status: metav1.ConditionFalse, Reason: "Ended", Message: "The stages that had notice no longer run"}
	if before != nil && before.Status == metav1.ConditionFalse {
		ended.Reason, ended.Message, ended.LastTransitionTime = before.Reason, before.Message, before.LastTransitionTime
	}
	for i := range summary.Current {
		st := &summary.Current[i]
		if st.Workload == nil {
			continue
		}
		c := apimeta.FindStatusCondition(st.Workload.Status.Conditions, apis.PreemptionPendingCondition)
		switch {
		case c == nil:
		case c.Status == metav1.ConditionTrue && quotaworkload.HoldsQuota(st.Workload):
			return []metav1.Condition{{Type: c.Type, Status: c.Status, Reason: c.Reason, Message: c.Message}}
		case c.Status == metav1.ConditionFalse && c.LastTransitionTime.After(ended.LastTransitionTime.Time):
			ended.Reason, ended.Message, ended.LastTransitionTime = c.Reason, c.Message, c.LastTransitionTime
		}
	}
	if before == nil {
		return nil
	}
	return []metav1.Condition{ended}
}
