package events

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Preempted reports that a quota Workload is preempted, and for which other one.
func Preempted(message string) Event {
	return Event{corev1.EventTypeNormal, "Preempted", "Evict", message}
}

// PreemptedWorkload reports on a quota Workload that another one is preempted for it.
func PreemptedWorkload(victim, uid, queue string) Event {
	return Event{corev1.EventTypeNormal, "PreemptedWorkload", "PreemptedWorkload", fmt.Sprintf("Preempted %s (UID: %s) in ClusterQueue %s", victim, uid, queue)}
}

// StageEvicted reports that a stage of a JobSet must release its quota.
func StageEvicted(stage, usage, reason, message string) Event {
	return Event{corev1.EventTypeWarning, "StageEvicted", "Evict", fmt.Sprintf("Evicted stage %q, which held %s, due to %s: %s", stage, usage, reason, message)}
}

// StageRequeued reports that an evicted stage has released its quota, and which of its Jobs run again: all but the given number of
// succeeded Jobs.
func StageRequeued(stage string, succeeded int, message string) Event {
	again := "restarts all its Jobs"
	if succeeded > 0 {
		again = fmt.Sprintf("keeps %s that succeeded, and restarts all other Jobs,", count(succeeded, "Job"))
	}
	return Event{
		corev1.EventTypeNormal, "StageRequeued", "Requeue",
		fmt.Sprintf("Stage %q released its quota and %s when it is admitted again: %s", stage, again, message),
	}
}

// GrowthRequeued reports that the pods by which a stage had grown have terminated, and that the stage continues without them.
func GrowthRequeued(stage, message string) Event {
	return Event{corev1.EventTypeNormal, "GrowthRequeued", "Requeue", fmt.Sprintf("Stage %q released the quota of its growth, and its other pods keep running: %s", stage, message)}
}

// StageReserved reports that a stage holds quota and waits for AdmissionChecks.
func StageReserved(stage, queue, usage string, checks []string) Event {
	return Event{
		corev1.EventTypeNormal, "StageReserved", "Admit",
		fmt.Sprintf("Reserved quota for stage %q in ClusterQueue %q: %s; the stage waits for AdmissionChecks %s", stage, queue, usage, strings.Join(checks, ", ")),
	}
}
