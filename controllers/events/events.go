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
	"sigs.k8s.io/controller-runtime/pkg/client"
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
func (e Event) EmitOnOwner(recorder k8sevents.EventRecorder, object client.Object) {
	owner := metav1.GetControllerOf(object)
	if owner == nil {
		return
	}
	e.EmitAbout(recorder, &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: owner.APIVersion, Kind: owner.Kind},
		ObjectMeta: metav1.ObjectMeta{Namespace: object.GetNamespace(), Name: owner.Name, UID: owner.UID},
	}, object)
}

func normal(reason, action, format string, args ...any) Event {
	return Event{corev1.EventTypeNormal, reason, action, fmt.Sprintf(format, args...)}
}

func warning(reason, action, format string, args ...any) Event {
	return Event{corev1.EventTypeWarning, reason, action, fmt.Sprintf(format, args...)}
}

// AdmittedWhole reports that all stages of a JobSet are admitted together, because nothing protects it from a deadlock.
func AdmittedWhole(why string) Event {
	return warning("StagesNotProtected", "Plan", "All stages are admitted together, because the JobSet would hold quota while it waits for more, and could deadlock: %s", why)
}

// QuotaReserved reports that a quota Workload holds quota now, and for how long it has been queued.
func QuotaReserved(queue string, waited time.Duration) Event {
	return normal("QuotaReserved", "QuotaReserved", "Quota reserved in ClusterQueue %s, wait time since queued was %.0fs", queue, waited.Seconds())
}

// Pending reports why a quota Workload gets no quota. The reason is that of its condition QuotaReserved.
func Pending(reason, message string) Event { return warning(reason, reason, "%s", message) }

// Admitted reports that a quota Workload is admitted, and how long after its quota was reserved.
func Admitted(queue string, waited time.Duration) Event {
	return normal("Admitted", "Admit", "Admitted by ClusterQueue %s, wait time since reservation was %.0fs", queue, waited.Seconds())
}

// Evicted reports that a quota Workload must release its quota. The reason is that of workloadstatus.Eviction.
func Evicted(reason, message string) Event { return normal(reason, "Evict", "%s", message) }

// Preempted reports that a quota Workload is preempted, and for which other one.
func Preempted(message string) Event { return normal("Preempted", "Evict", "%s", message) }

// PreemptionPending reports when a stage will be preempted, which runs until then. The message is that of the condition PreemptionPending.
func PreemptionPending(message string) Event {
	return warning("PreemptionPending", "GiveNotice", "%s", message)
}

// PreemptionWithdrawn reports that a stage with notice of its preemption goes on running.
func PreemptionWithdrawn(message string) Event {
	return normal("PreemptionWithdrawn", "WithdrawNotice", "%s", message)
}

// PreemptedWorkload reports on a quota Workload that another one is preempted for it.
func PreemptedWorkload(victim, uid, queue string) Event {
	return normal("PreemptedWorkload", "PreemptedWorkload", "Preempted %s (UID: %s) in ClusterQueue %s", victim, uid, queue)
}

// AdmissionCheckRejected reports that a quota Workload is deactivated because of its AdmissionChecks.
func AdmissionCheckRejected(message string) Event {
	return warning("AdmissionCheckRejected", "Deactivate", "Deactivated due to %s", message)
}

// RequeuingLimitExceeded reports that a quota Workload is deactivated because its pods were too often not ready in time.
func RequeuingLimitExceeded(limit int32) Event {
	return warning("RequeuingLimitExceeded", "Deactivate", "Deactivated: the pods were not ready in time after %d retries", limit)
}

// MaximumExecutionTimeExceeded reports that a quota Workload is deactivated because it was admitted for too long.
func MaximumExecutionTimeExceeded(seconds int32) Event {
	return warning("MaximumExecutionTimeExceeded", "Deactivate", "The maximum execution time (%ds) exceeded", seconds)
}

// Requeued reports that a quota Workload is in the queue again, and why.
func Requeued(message string) Event { return normal("Requeued", "Requeue", "%s", message) }

// AdmissionGated reports which gates keep a quota Workload from asking for quota.
func AdmissionGated(gates string) Event {
	return normal("AdmissionGated", "AdmissionGated", "Workload admission is gated by: %s", gates)
}

// AdmissionGateCleared reports that no gate keeps a quota Workload from asking for quota.
func AdmissionGateCleared() Event {
	return normal("AdmissionGateCleared", "AdmissionGateCleared", "Admission gate cleared, workload is now admissible")
}

// StageReserved reports that a stage holds quota and waits for AdmissionChecks.
func StageReserved(stage, queue, usage string, checks []string) Event {
	return normal("StageReserved", "Admit", "Reserved quota for stage %q in ClusterQueue %q: %s; the stage waits for AdmissionChecks %s", stage, queue, usage, strings.Join(checks, ", "))
}

// StageWaiting reports why a stage of a JobSet gets no quota. The reason is Kueue's; it is also the action, so that another reason is a new
// Event and not counted as the same one.
func StageWaiting(reason, message string) Event { return normal("StageWaiting", reason, "%s", message) }

// StageTooLarge reports that a stage of a JobSet gets no quota, and would get none if no other quota were held. It is StageWaiting as a
// warning: only the user, or the administrator who sets the quotas, can help.
func StageTooLarge(reason, message string) Event {
	return warning("StageWaiting", reason, "%s", message)
}

// StageReleased reports that a stage is admitted, with its usage, and that its Jobs may start.
func StageReleased(stage, queue, usage string, jobs int) Event {
	return normal("StageReleased", "Release", "Released stage %q, admitted by ClusterQueue %q: %s with %s", stage, queue, count(jobs, "Job"), usage)
}

// StageReleasedUnqueued reports that the Jobs of a stage run now, in a JobSet without a queue.
func StageReleasedUnqueued(stage string, jobs int) Event {
	return normal("StageReleased", "Release", "Released stage %q: %s without quota, since the JobSet has no queue", stage, count(jobs, "Job"))
}

// StageGrows reports that a stage that holds quota queues for more pods.
func StageGrows(stage string, pods int32) Event {
	return normal("StageGrows", "Queue", "Stage %q queues for %s, and its current pods keep running", stage, count(int(pods), "more pod"))
}

// StageResized reports that running Jobs now have as many pods as there is admitted quota for.
func StageResized(stage string, jobs int, pods int32) Event {
	return normal("StageResized", "Resize", "Resized stage %q: %s with %s each", stage, count(jobs, "Job"), count(int(pods), "pod"))
}

// JobSkipped reports that a Job which was recreated after it had succeeded ends without running.
func JobSkipped(job string) Event {
	return normal("JobSkipped", "Skip", "Marked Job %q as succeeded without running it: a Job of this name has succeeded in this attempt, and was deleted", job)
}

// JobSetPaused reports that a JobSet was suspended briefly, because only then the JobSet controller creates the Jobs of later ReplicatedJobs
// of a stage.
func JobSetPaused(stage string) Event {
	return normal("JobSetPaused", "Suspend", "Suspended the JobSet briefly, so that the JobSet controller creates all Jobs of stage %q, which start together", stage)
}

// JobSetDeleted reports that a JobSet was deleted because one of its quota Workloads was deactivated for too long.
func JobSetDeleted(workload string, after time.Duration) Event {
	return warning("Deleted", "Delete", "Deleted the JobSet %s after its quota Workload %q was deactivated (objectRetentionPolicies.workloads.afterDeactivatedByKueue)", after, workload)
}

// StageReady reports that all Jobs of a stage are ready for which another stage waits.
func StageReady(stage string) Event {
	return normal("StageReady", "Observe", "All Jobs of stage %q are ready or have succeeded", stage)
}

// StageFinished reports that a stage has finished and released its quota.
func StageFinished(stage, outcome string) Event {
	return normal("StageFinished", "Finish", "Finished stage %q: %s", stage, outcome)
}

// StageEvicted reports that a stage of a JobSet must release its quota.
func StageEvicted(stage, usage, reason, message string) Event {
	return warning("StageEvicted", "Evict", "Evicted stage %q, which held %s, due to %s: %s", stage, usage, reason, message)
}

// StageRequeued reports that an evicted stage has released its quota, and which of its Jobs run again: all but the given number of
// succeeded Jobs.
func StageRequeued(stage string, succeeded int, message string) Event {
	again := "restarts all its Jobs"
	if succeeded > 0 {
		again = fmt.Sprintf("keeps %s that succeeded, and restarts all other Jobs,", count(succeeded, "Job"))
	}
	return normal("StageRequeued", "Requeue", "Stage %q released its quota and %s when it is admitted again: %s", stage, again, message)
}

// GrowthRequeued reports that the pods by which a stage had grown have terminated, and that the stage continues without them.
func GrowthRequeued(stage, message string) Event {
	return normal("GrowthRequeued", "Requeue", "Stage %q released the quota of its growth, and its other pods keep running: %s", stage, message)
}

// StageSuspended reports that a stage has released its quota because the JobSet is suspended.
func StageSuspended(stage string) Event {
	return normal("StageSuspended", "Hold", "Stage %q released its quota: the JobSet is suspended", stage)
}

// StageUnpaid reports that the Jobs of a stage are held again because no quota pays for them.
func StageUnpaid(stage string) Event {
	return warning("Stopped", "Hold", "Suspended the Jobs of stage %q, which ran without quota: another client has removed its admission; they start when it is admitted again", stage)
}

// StageClosed reports that a stage has released quota that another engine had reserved for it, because the stages before it have to run again.
func StageClosed(stage string) Event {
	return normal("StageClosed", "Hold", "Stage %q released its quota: stages that start before it have to run again", stage)
}

// StageReopened reports that a finished stage has to run again.
func StageReopened(stage string) Event {
	return normal("StageReopened", "Requeue", "Requeued stage %q, which must run again", stage)
}

// JobSetStopped reports that Jobs of a JobSet that is being deleted were suspended.
func JobSetStopped(jobs int) Event {
	return normal("Stopped", "Hold", "Suspended %s of the JobSet, which is being deleted but has finalizers: its quota is released when the pods have terminated", count(jobs, "Job"))
}

// PodEnded reports that a pod was deleted that used quota of its JobSet and that no Job would have deleted.
func PodEnded(pod, why string) Event {
	return warning("PodEnded", "Delete", "Deleted pod %q: %s", pod, why)
}

// Misconfigured reports why a JobSet cannot be queued.
func Misconfigured(message string) Event { return warning("Misconfigured", "Queue", "%s", message) }

// CheckpointIgnored reports that a checkpoint of a JobSet does not count, and why.
func CheckpointIgnored(message string) Event {
	return warning("CheckpointIgnored", "Preempt", "%s", message)
}

// JobRefused reports why a Job of a JobSet is not released.
func JobRefused(message string) Event { return warning("JobRefused", "Release", "%s", message) }

// GroupReleased reports that the main containers of a group may start.
func GroupReleased(pods int) Event {
	return normal("GroupReleased", "Release", "All %d pods of the group have started: their main containers may run", pods)
}

// GroupTimedOut reports that a pod of a group has stopped waiting for the other pods of the group.
func GroupTimedOut(started, pods int) Event {
	return warning("GroupTimedOut", "Observe", "A pod timed out waiting for the other pods of its group: %d of %d pods have started", started, pods)
}

// GroupNotKept reports why a group cannot start together.
func GroupNotKept(message string) Event { return warning("GroupNotKept", "Queue", "%s", message) }

// TakenOverInactive reports why one ClusterQueue of a cohort tree in which Tranche admits takes no new reservations.
func TakenOverInactive(why string) Event {
	return warning("TakenOverInactive", "TakeOver", "Tranche admits nothing new in this ClusterQueue, and goes on in the others of its cohort tree: %s", why)
}

// TakeoverBlocked reports what keeps Tranche from admitting in a ClusterQueue that asks for it beside Kueue.
func TakeoverBlocked(problem string) Event {
	return warning("TakeoverBlocked", "TakeOver", "Tranche does not admit in this cohort tree. %s", problem)
}

// TakenOver reports that Tranche admits in a ClusterQueue instead of Kueue.
func TakenOver(queues int) Event {
	return normal("TakenOver", "TakeOver", "Tranche admits in this cohort tree of %d ClusterQueues, and Kueue does not", queues)
}

// TakenOverUnchecked reports that Tranche admits in a ClusterQueue instead of Kueue, whose version is not known.
func TakenOverUnchecked(queues int, supported string) Event {
	return warning("TakenOver", "TakeOver", "Tranche admits in this cohort tree of %d ClusterQueues, and Kueue does not. The version of Kueue's manager is not known: it must be %s", queues, supported)
}

// HandedBack reports that Tranche no longer admits in a ClusterQueue.
func HandedBack() Event {
	return normal("HandedBack", "HandBack", "Tranche no longer admits here. Kueue does as soon as spec.stopPolicy is None")
}

// KueueMissing reports that Kueue's manager was uninstalled while Tranche runs beside it.
func KueueMissing() Event {
	return warning("KueueMissing", "Watch", "No ValidatingWebhookConfiguration is that of Kueue's manager: what runs goes on, but nothing new is admitted, except for JobSets in cohort trees that were "+
		"taken over, and Tranche's manager does not start again. Install Kueue 0.19 again; or, to replace Kueue, hand back what was taken over, and install config/default with mode Instead")
}

// JobSetFieldsMissing reports that another CRD of JobSets was applied over Tranche's.
func JobSetFieldsMissing(fields []string) Event {
	return warning("JobSetFieldsMissing", "Watch", "The CRD of JobSets lacks %s: another one was applied over Tranche's. JobSets keep the order and the gangs that they were created with, but new ones "+
		"lose these fields, and those with startupPolicyOrder InOrder are refused. Apply Tranche's CRD again (config/crd, or config/beside/crd beside Kueue)", strings.Join(fields, ", "))
}

// KueueUntested reports that Kueue's manager has a version beside which Tranche is not tested.
func KueueUntested(version, tested string) Event {
	return warning("KueueUntested", "Watch", "Kueue's manager has version %s, and Tranche is tested beside %s: it goes on, but takes no cohort tree over. Install %s, or try staged JobSets on a test cluster first",
		version, tested, tested)
}

// FlavorInUse reports what keeps a ResourceFlavor that is being deleted.
func FlavorInUse(clusterQueues []string) Event {
	return warning("InUse", "Delete", "Not deleted yet: ClusterQueues %s use the flavor in spec.resourceGroups, and quota Workloads are admitted to it; remove the flavor from these ClusterQueues", strings.Join(clusterQueues, ", "))
}

// GangBlocked reports why a gang that holds its quota is not placed, and what helps.
func GangBlocked(message string) Event { return warning("GangBlocked", "Gang", "%s", message) }

// SpecPruned reports that fields of a JobSet were lost and are recorded.
func SpecPruned(message string) Event { return warning("SpecPruned", "Queue", "%s", message) }

// PriorityKept reports that the priority class which a JobSet names now does not exist.
func PriorityKept(message string) Event { return warning("PriorityKept", "Queue", "%s", message) }

// LedgerMismatch reports on a ClusterQueue that the engine charged another amount than its quota Workloads hold.
func LedgerMismatch(charged, held, remedy string) Event {
	return warning("LedgerMismatch", "Audit", "The engine charged %s, but %s: %s; please report this bug", charged, held, remedy)
}

// AcceleratorsUncharged reports on a JobSet, a Job or a pod of a gang that live pods ask for more accelerators than is charged for them.
func AcceleratorsUncharged(asked, charged string) Event {
	return warning("AcceleratorsUncharged", "Audit", "Live pods ask for %s, and quota is charged for %s: delete the pods that must not run; please report this bug", asked, charged)
}

// GangStatus reports the state of a gang on its PodGroup and pods. The topic is the action, so that another cause is a new Event and not
// counted as the same one.
func GangStatus(reason, topic, message string) Event { return normal(reason, topic, "%s", message) }

// GangWarning reports on a PodGroup and its pods what has to be changed before their gang can be admitted.
func GangWarning(reason, topic, message string) Event { return warning(reason, topic, "%s", message) }

// GangFinished reports on a PodGroup, or on pods, that their gang has finished and released its quota.
func GangFinished(message string) Event { return normal("GangFinished", "Finish", "%s", message) }

// PodEvicted reports that a pod is deleted because its gang must release its quota. Its controller, if it has one, recreates it.
func PodEvicted(message string) Event {
	return warning("Evicted", "Evict", "Deleted because its gang was evicted: %s", message)
}

// BarePodEvicted reports that a pod which no controller recreates is deleted because its gang must release its quota.
func BarePodEvicted(message string) Event {
	return warning("Evicted", "Evict", "Deleted because its gang was evicted; no controller will recreate it: %s", message)
}

// count returns a number and its noun, such as "1 Job" or "3 Jobs".
func count(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}
