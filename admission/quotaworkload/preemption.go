package quotaworkload

import (
	"strings"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// PreemptedFor begins the message of the condition Preempted. The UID of the preemptor and a comma follow.
const PreemptedFor = "Preempted to accommodate a workload (UID: "

// LastPreemption returns for which quota Workload this one was preempted last, and how often it was preempted for any. The UID is empty if it never
// was.
func LastPreemption(workload *kueue.Workload) (preemptor types.UID, times int) {
	c := apimeta.FindStatusCondition(workload.Status.Conditions, kueue.WorkloadPreempted)
	if c == nil || workload.Status.SchedulingStats == nil {
		return "", 0
	}
	_, rest, _ := strings.Cut(c.Message, PreemptedFor)
	uid, _, isComplete := strings.Cut(rest, ",")
	if !isComplete {
		return "", 0
	}
	for _, e := range workload.Status.SchedulingStats.Evictions {
		if e.Reason == kueue.WorkloadEvictedByPreemption {
			times += int(e.Count)
		}
	}
	return types.UID(uid), times
}
