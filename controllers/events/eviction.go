package events

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Preempted tells the owner of a quota Workload that it is preempted, and for which other one.
func Preempted(message string) Event {
	return Event{corev1.EventTypeNormal, "Preempted", "Evict", message}
}

// PreemptedWorkload tells the owner of a quota Workload that another one is preempted for it.
func PreemptedWorkload(victim, uid, queue string) Event {
	return Event{corev1.EventTypeNormal, "PreemptedWorkload", "PreemptedWorkload", fmt.Sprintf("Preempted %s (UID: %s) in ClusterQueue %s", victim, uid, queue)}
}

// StageEvicted tells the owner of a JobSet that a stage has to give back what it holds.
func StageEvicted(stage, usage, reason, message string) Event {
	return Event{corev1.EventTypeWarning, "StageEvicted", "Evict", fmt.Sprintf("Evicted stage %q, which held %s, due to %s: %s", stage, usage, reason, message)}
}

// StageRequeued tells the owner of a JobSet that an evicted stage has released its quota, and what of it has to run again: all, but for so many
// Jobs that have succeeded.
func StageRequeued(stage string, succeeded int, message string) Event {
	again := "starts from its beginning"
	if succeeded > 0 {
		again = fmt.Sprintf("keeps %s that succeeded, and starts all others from their beginning,", count(succeeded, "Job"))
	}
	return Event{
		corev1.EventTypeNormal, "StageRequeued", "Requeue",
		fmt.Sprintf("Stage %q released its quota and %s when it is admitted again: %s", stage, again, message),
	}
}

// GrowthRequeued tells the owner of a JobSet that the pods by which a stage had grown are over, and that it goes on without them.
func GrowthRequeued(stage, message string) Event {
	return Event{corev1.EventTypeNormal, "GrowthRequeued", "Requeue", fmt.Sprintf("Stage %q gave back the quota of its growth, and goes on with the pods that it has: %s", stage, message)}
}

// StageReserved tells the owner of a JobSet that a stage holds quota and waits for AdmissionChecks.
func StageReserved(stage, queue, usage string, checks []string) Event {
	return Event{
		corev1.EventTypeNormal, "StageReserved", "Admit",
		fmt.Sprintf("Reserved quota for stage %q in ClusterQueue %q: %s; it waits for AdmissionChecks %s", stage, queue, usage, strings.Join(checks, ", ")),
	}
}
