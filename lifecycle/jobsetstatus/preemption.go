package jobsetstatus

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// JobSetEvicted returns the conditions of a JobSet that returns to the boundary of its last succeeded stage, because the quota Workload of
// one of its stages was evicted.
func JobSetEvicted(js *jobsetapi.JobSet, stages int, cause StageState) []metav1.Condition {
	e := workloadstatus.EvictionOf(cause.Workload)
	summary := Summary{Stages: stages, Current: []StageState{cause}}
	return timed(js, metav1.Condition{
		Type: StageAdmitted, Status: metav1.ConditionFalse, Reason: e.EventReason(),
		Message: fmt.Sprintf("Evicted from %s, waiting for its pods to end: %s", title(summary, cause), e.Message),
	}, inProgress(summary))
}
