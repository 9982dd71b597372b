// Package events declares every Event that Tranche emits, so that their texts can be read, and changed, in one place. An Event reports on
// an object what has happened, after it was written.
package events

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	k8sevents "k8s.io/client-go/tools/events"
)

// maxNote is how many bytes the API server accepts. It rejects an Event with a longer note.
const maxNote = 1023

// An Event is a message on one object.
type Event struct {
	// Type is Normal or Warning.
	Type string
	// Reason is a short CamelCase word.
	Reason string
	// Action is what Tranche did.
	Action string
	// Message is a sentence with names and amounts.
	Message string
}

// Emit records the event on an object.
func (e Event) Emit(recorder k8sevents.EventRecorder, object runtime.Object) {
	e.EmitAbout(recorder, object, nil)
}

// EmitAbout records the event on an object, with another object that it is about. Otherwise Events on one object that differ only in their
// message would be counted as one.
func (e Event) EmitAbout(recorder k8sevents.EventRecorder, object, related runtime.Object) {
	note := strings.ToValidUTF8(e.Message[:min(len(e.Message), maxNote)], "")
	recorder.Eventf(object, related, e.Type, e.Reason, e.Action, "%s", note)
}

// EmitOnOwner records the event on the controller of an object, and relates it to the object. It does nothing if no controller owns the
// object.
func (e Event) EmitOnOwner(recorder k8sevents.EventRecorder, object Owned) {
	owner := metav1.GetControllerOf(object)
	if owner == nil {
		return
	}
	e.EmitAbout(recorder, &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: owner.APIVersion, Kind: owner.Kind},
		ObjectMeta: metav1.ObjectMeta{Namespace: object.GetNamespace(), Name: owner.Name, UID: owner.UID},
	}, object)
}

// An Owned object may have a controller.
type Owned interface {
	metav1.Object
	runtime.Object
}

// QuotaReserved reports that a quota Workload holds quota now, and for how long it has been queued.
func QuotaReserved(queue string, waited time.Duration) Event {
	return Event{
		corev1.EventTypeNormal, "QuotaReserved", "QuotaReserved",
		fmt.Sprintf("Quota reserved in ClusterQueue %s, wait time since queued was %.0fs", queue, waited.Seconds()),
	}
}

// Pending reports why a quota Workload gets no quota. The reason is that of its condition QuotaReserved.
func Pending(reason, message string) Event {
	return Event{corev1.EventTypeWarning, reason, reason, message}
}

// Admitted reports that a quota Workload is admitted, and how long after its quota was reserved.
func Admitted(queue string, waited time.Duration) Event {
	return Event{
		corev1.EventTypeNormal, "Admitted", "Admit",
		fmt.Sprintf("Admitted by ClusterQueue %s, wait time since reservation was %.0fs", queue, waited.Seconds()),
	}
}

// Evicted reports that a quota Workload must release its quota. The reason is that of workloadstatus.Eviction.
func Evicted(reason, message string) Event {
	return Event{corev1.EventTypeNormal, reason, "Evict", message}
}

// AdmissionCheckRejected reports that a quota Workload is deactivated because of its AdmissionChecks.
func AdmissionCheckRejected(message string) Event {
	return Event{corev1.EventTypeWarning, "AdmissionCheckRejected", "Deactivate", "Deactivated due to " + message}
}

// RequeuingLimitExceeded reports that a quota Workload is deactivated because its pods were too often not ready in time.
func RequeuingLimitExceeded(limit int32) Event {
	return Event{
		corev1.EventTypeWarning, "RequeuingLimitExceeded", "Deactivate",
		fmt.Sprintf("Deactivated: the pods were not ready in time after %d retries", limit),
	}
}

// MaximumExecutionTimeExceeded reports that a quota Workload is deactivated because it was admitted for too long.
func MaximumExecutionTimeExceeded(seconds int32) Event {
	return Event{
		corev1.EventTypeWarning, "MaximumExecutionTimeExceeded", "Deactivate", fmt.Sprintf("The maximum execution time (%ds) exceeded", seconds),
	}
}

// Requeued reports that a quota Workload is in the queue again, and why.
func Requeued(message string) Event {
	return Event{corev1.EventTypeNormal, "Requeued", "Requeue", message}
}

// AdmissionGated reports which gates keep a quota Workload from asking for quota.
func AdmissionGated(gates string) Event {
	return Event{corev1.EventTypeNormal, "AdmissionGated", "AdmissionGated", "Workload admission is gated by: " + gates}
}

// AdmissionGateCleared reports that no gate keeps a quota Workload from asking for quota.
func AdmissionGateCleared() Event {
	return Event{corev1.EventTypeNormal, "AdmissionGateCleared", "AdmissionGateCleared", "Admission gate cleared, workload is now admissible"}
}

// StageAdmitted reports that a stage of a JobSet holds quota now.
func StageAdmitted(stage, queue, usage string) Event {
	return Event{corev1.EventTypeNormal, "StageAdmitted", "Admit", fmt.Sprintf("Admitted stage %q by ClusterQueue %q: %s", stage, queue, usage)}
}

// StageWaiting reports why a stage of a JobSet gets no quota. The reason is Kueue's; it is also the action, so that another reason is a new
// Event and not counted as the same one.
func StageWaiting(reason, message string) Event {
	return Event{corev1.EventTypeNormal, "StageWaiting", reason, message}
}

// StageTooLarge reports that a stage of a JobSet gets no quota, and would get none if no other quota were held. It is StageWaiting as a
// warning: only the user, or the administrator who sets the quotas, can help.
func StageTooLarge(reason, message string) Event {
	return Event{corev1.EventTypeWarning, "StageWaiting", reason, message}
}

// StageOpened reports that a stage of a JobSet may be admitted now, because its start conditions are met.
func StageOpened(stage string) Event {
	return Event{corev1.EventTypeNormal, "StageOpened", "Open", fmt.Sprintf("Opened stage %q: its start conditions are met", stage)}
}

// StageReleased reports that the Jobs of a stage may start.
func StageReleased(stage, queue string, jobs int) Event {
	return Event{corev1.EventTypeNormal, "StageReleased", "Release", fmt.Sprintf("Released stage %q: %s on ClusterQueue %q", stage, count(jobs, "Job"), queue)}
}

// StageReleasedUnqueued reports that the Jobs of a stage run now, in a JobSet without a queue.
func StageReleasedUnqueued(stage string, jobs int) Event {
	return Event{corev1.EventTypeNormal, "StageReleased", "Release", fmt.Sprintf("Released stage %q: %s without quota, since the JobSet has no queue", stage, count(jobs, "Job"))}
}

// StageGrows reports that a stage that holds quota queues for more pods.
func StageGrows(stage string, pods int32) Event {
	return Event{corev1.EventTypeNormal, "StageGrows", "Queue", fmt.Sprintf("Stage %q queues for %s, and its current pods keep running", stage, count(int(pods), "more pod"))}
}

// StageResized reports that running Jobs now have as many pods as there is admitted quota for.
func StageResized(stage string, jobs int, pods int32) Event {
	return Event{corev1.EventTypeNormal, "StageResized", "Resize", fmt.Sprintf("Resized stage %q: %s with %s each", stage, count(jobs, "Job"), count(int(pods), "pod"))}
}

// JobSkipped reports that a Job which was recreated after it had succeeded ends without running.
func JobSkipped(job string) Event {
	return Event{
		corev1.EventTypeNormal, "JobSkipped", "Skip",
		fmt.Sprintf("Marked Job %q as succeeded without running it: a Job of this name has succeeded in this attempt, and was deleted", job),
	}
}

// JobSetPaused reports that a JobSet was suspended briefly, because only then the JobSet controller creates the Jobs of later ReplicatedJobs
// of a stage.
func JobSetPaused(stage string) Event {
	return Event{
		corev1.EventTypeNormal, "JobSetPaused", "Suspend",
		fmt.Sprintf("Suspended the JobSet briefly, so that the JobSet controller creates all Jobs of stage %q, which start together", stage),
	}
}

// JobSetDeleted reports that a JobSet was deleted because one of its quota Workloads was deactivated for too long.
func JobSetDeleted(workload string, after time.Duration) Event {
	return Event{
		corev1.EventTypeWarning, "Deleted", "Delete",
		fmt.Sprintf("Deleted the JobSet %s after its quota Workload %q was deactivated (objectRetentionPolicies.workloads.afterDeactivatedByKueue)", after, workload),
	}
}

// StageReady reports that all Jobs of a stage are ready.
func StageReady(stage string) Event {
	return Event{corev1.EventTypeNormal, "StageReady", "Observe", fmt.Sprintf("All Jobs of stage %q are ready or have succeeded", stage)}
}

// StageFinished reports that a stage has finished and released its quota.
func StageFinished(stage, outcome string) Event {
	return Event{corev1.EventTypeNormal, "StageFinished", "Finish", fmt.Sprintf("Finished stage %q: %s", stage, outcome)}
}

// StageSuspended reports that a stage has released its quota because the JobSet is suspended.
func StageSuspended(stage string) Event {
	return Event{corev1.EventTypeNormal, "StageSuspended", "Hold", fmt.Sprintf("Stage %q released its quota: the JobSet is suspended", stage)}
}

// StageReopened reports that a finished stage has to run again.
func StageReopened(stage string) Event {
	return Event{corev1.EventTypeNormal, "StageReopened", "Requeue", fmt.Sprintf("Requeued stage %q, which must run again", stage)}
}

// JobSetStopped reports that Jobs of a JobSet that is being deleted were suspended.
func JobSetStopped(jobs int) Event {
	return Event{
		corev1.EventTypeNormal, "Stopped", "Hold",
		fmt.Sprintf("Suspended %s of the JobSet, which is being deleted but has finalizers: its quota is released when the pods have terminated", count(jobs, "Job")),
	}
}

// PodEnded reports that a pod was deleted that used quota of its JobSet and that no Job would have deleted.
func PodEnded(pod, why string) Event {
	return Event{corev1.EventTypeWarning, "PodEnded", "Delete", fmt.Sprintf("Deleted pod %q: %s", pod, why)}
}

// JobSetStarted reports that a JobSet was resumed for the first time.
func JobSetStarted() Event {
	return Event{corev1.EventTypeNormal, "Started", "Start", "Resumed the JobSet: its first stage is admitted"}
}

// Misconfigured reports why a JobSet cannot be queued.
func Misconfigured(message string) Event {
	return Event{corev1.EventTypeWarning, "Misconfigured", "Queue", message}
}

// JobRefused reports why a Job of a JobSet is not released.
func JobRefused(message string) Event {
	return Event{corev1.EventTypeWarning, "JobRefused", "Release", message}
}

// GroupReleased reports that the main containers of a group may start.
func GroupReleased(pods int) Event {
	return Event{corev1.EventTypeNormal, "GroupReleased", "Release", fmt.Sprintf("All %d pods of the group have started: their main containers may run", pods)}
}

// GroupTimedOut reports that a pod of a group has stopped waiting for the other pods of the group.
func GroupTimedOut(started, pods int) Event {
	return Event{
		corev1.EventTypeWarning, "GroupTimedOut", "Observe",
		fmt.Sprintf("A pod timed out waiting for the other pods of its group: %d of %d pods have started", started, pods),
	}
}

// GroupNotKept reports why a group cannot start together.
func GroupNotKept(message string) Event {
	return Event{corev1.EventTypeWarning, "GroupNotKept", "Queue", message}
}

// FlavorInUse reports what keeps a ResourceFlavor that is being deleted.
func FlavorInUse(clusterQueues []string) Event {
	return Event{
		corev1.EventTypeWarning, "InUse", "Delete",
		fmt.Sprintf("Not deleted yet: ClusterQueues %s use the flavor in spec.resourceGroups, and quota Workloads are admitted to it; remove the flavor from these ClusterQueues",
			strings.Join(clusterQueues, ", ")),
	}
}

// GangBlocked reports why a gang that holds its quota is not placed, and what helps.
func GangBlocked(message string) Event {
	return Event{corev1.EventTypeWarning, "GangBlocked", "Gang", message}
}

// PriorityKept reports that the priority class which a JobSet names now does not exist.
func PriorityKept(message string) Event {
	return Event{corev1.EventTypeWarning, "PriorityKept", "Queue", message}
}

// count returns a number and its noun, such as "1 Job" or "3 Jobs".
func count(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

// LedgerMismatch reports on a ClusterQueue that the engine charged another amount than its quota Workloads hold.
func LedgerMismatch(charged, held, remedy string) Event {
	return Event{
		corev1.EventTypeWarning, "LedgerMismatch", "Audit",
		fmt.Sprintf("The engine charged %s, but %s: %s; please report this bug", charged, held, remedy),
	}
}
