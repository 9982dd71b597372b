package workloadstatus

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
)

// Reasons of the conditions on quota Workloads for which Kueue has no exported constant.
const (
	reasonQuotaReserved = "QuotaReserved"
	reasonAdmitted      = "Admitted"
	// These are the reasons of Admitted=False with default feature gates while AdmissionChecks are not Ready: with a reservation, and without.
	reasonUnsatisfied = "UnsatisfiedChecks"
	reasonNeither     = "NoReservationUnsatisfiedChecks"
)

const (
	messageAdmitted      = "The workload is admitted"
	messageNoReservation = "The workload has no reservation"
	messageUnsatisfied   = "The workload has not all checks ready"
	messageNeither       = "The workload has no reservation and not all checks ready"
)

// Admitted returns the status of a quota Workload that has just been admitted with the given admission.
func Admitted(workload *kueue.Workload, admission *kueue.Admission, now time.Time) kueue.WorkloadStatus {
	s := newStatusBuilder(workload, now)
	s.reserve(admission)
	s.set(kueue.WorkloadAdmitted, metav1.ConditionTrue, reasonAdmitted, messageAdmitted)
	return s.status
}

// Pending returns the status of a quota Workload that holds no quota, with the reason why it waits. If it did hold quota, this releases it, and
// resets its AdmissionChecks.
func Pending(workload *kueue.Workload, wait quotaworkload.Wait, now time.Time) kueue.WorkloadStatus {
	s := newStatusBuilder(workload, now)
	if workload.Status.Admission != nil {
		s.resetChecks()
	}
	s.release(wait)
	return s.status
}

// Progress returns the part of the status of a quota Workload that is about its pods: the condition PodsReady, unless it has no type, and
// Finished if outcome is not nil.
func Progress(workload *kueue.Workload, ready metav1.Condition, outcome *metav1.Condition, now time.Time) kueue.WorkloadStatus {
	var status kueue.WorkloadStatus
	for _, c := range []*metav1.Condition{&ready, outcome} {
		if c != nil && c.Type != "" {
			stamped := *c
			stamped.LastTransitionTime = metav1.NewTime(now.Truncate(time.Second))
			set(&status, workload, stamped)
		}
	}
	return status
}

// admissionTypes returns the conditions that belong to the admission.
func admissionTypes() []string {
	return []string{
		kueue.WorkloadQuotaReserved, kueue.WorkloadAdmitted, kueue.WorkloadEvicted, kueue.WorkloadPreempted, kueue.WorkloadRequeued,
		kueue.WorkloadDeactivationTarget, kueue.WorkloadBlockedOnPreemptionGates, apis.WaitingCondition, apis.PreemptionPendingCondition,
	}
}

// admissionPart copies the fields that a server-side apply of the admission must repeat, or it would remove them. These are all fields of the
// field manager of admissions except status.admission itself, whose absence means that nothing is held.
func admissionPart(workload *kueue.Workload) kueue.WorkloadStatus {
	var status kueue.WorkloadStatus
	for _, condition := range workload.Status.Conditions {
		if slices.Contains(admissionTypes(), condition.Type) {
			status.Conditions = append(status.Conditions, condition)
		}
	}
	seen := workload.Status.DeepCopy()
	status.RequeueState = seen.RequeueState
	status.AdmissionChecks = seen.AdmissionChecks
	status.AccumulatedPastExecutionTimeSeconds = seen.AccumulatedPastExecutionTimeSeconds
	status.SchedulingStats = seen.SchedulingStats
	if seen.Admission == nil {
		status.ResourceRequests = seen.ResourceRequests
	}
	// Only Kueue writes these.
	status.UnhealthyNodes, status.PreemptionGates = seen.UnhealthyNodes, seen.PreemptionGates
	status.ClusterName, status.NominatedClusterNames = seen.ClusterName, seen.NominatedClusterNames
	return status
}

// Differs reports whether applying status, which must be complete, changes the part of the quota Workload that belongs to admission.
func Differs(workload *kueue.Workload, status *kueue.WorkloadStatus) bool {
	now := admissionPart(workload)
	now.Admission = workload.Status.Admission
	return !equality.Semantic.DeepEqual(&now, status)
}

// set sets a condition, and keeps its transition time if the workload already has the same status.
func set(status *kueue.WorkloadStatus, workload *kueue.Workload, condition metav1.Condition) {
	condition.ObservedGeneration = workload.Generation
	if old := apimeta.FindStatusCondition(workload.Status.Conditions, condition.Type); old != nil && old.Status == condition.Status {
		condition.LastTransitionTime = old.LastTransitionTime
	}
	apimeta.SetStatusCondition(&status.Conditions, condition)
}

// QueuedSince returns when a quota Workload was created or last requeued.
func QueuedSince(workload *kueue.Workload) time.Time {
	if c := apimeta.FindStatusCondition(workload.Status.Conditions, kueue.WorkloadRequeued); c != nil {
		return c.LastTransitionTime.Time
	}
	return workload.CreationTimestamp.Time
}

// IsShutOut reports whether a quota Workload was evicted because it is not active.
func IsShutOut(workload *kueue.Workload) bool {
	return !ptr.Deref(workload.Spec.Active, true) && quotaworkload.IsTrue(workload, kueue.WorkloadEvicted) && !quotaworkload.IsTrue(workload, kueue.WorkloadFinished)
}

// DeactivatedAt returns when a quota Workload was deactivated for one of the causes for which the manager does that, or nil. A deactivation by a
// user has no such cause, also after the manager has deactivated the Workload once and it was activated again.
func DeactivatedAt(workload *kueue.Workload) *time.Time {
	evicted := apimeta.FindStatusCondition(workload.Status.Conditions, kueue.WorkloadEvicted)
	if !IsShutOut(workload) || quotaworkload.IsTrue(workload, kueue.WorkloadRequeued) || !strings.HasPrefix(evicted.Reason, kueue.WorkloadDeactivated+"DueTo") {
		return nil
	}
	return &evicted.LastTransitionTime.Time
}

// IsStopped reports whether a quota Workload was evicted from a stopped queue and waits until that is resumed.
func IsStopped(workload *kueue.Workload) bool {
	c := KeptOut(workload)
	return c != nil && (c.Reason == kueue.WorkloadEvictedByClusterQueueStopped || c.Reason == kueue.WorkloadEvictedByLocalQueueStopped)
}

// KeptOut returns the condition that keeps a quota Workload out of the queue, or nil.
func KeptOut(workload *kueue.Workload) *metav1.Condition {
	c := apimeta.FindStatusCondition(workload.Status.Conditions, kueue.WorkloadRequeued)
	if c == nil || c.Status != metav1.ConditionFalse {
		return nil
	}
	return c
}

// Merge returns a quota Workload as it is once status, which must be complete, has been applied to the part of it that belongs to
// admission. Other parts stay: the result shares them with the original, so that neither may be changed.
func Merge(workload *kueue.Workload, status *kueue.WorkloadStatus) *kueue.Workload {
	merged, applied := *workload, status.DeepCopy()
	after := &merged
	for _, c := range workload.Status.Conditions {
		if !slices.Contains(admissionTypes(), c.Type) {
			applied.Conditions = append(applied.Conditions, c)
		}
	}
	after.Status.Conditions = applied.Conditions
	after.Status.Admission = applied.Admission
	after.Status.RequeueState = applied.RequeueState
	after.Status.AdmissionChecks = applied.AdmissionChecks
	after.Status.AccumulatedPastExecutionTimeSeconds = applied.AccumulatedPastExecutionTimeSeconds
	after.Status.SchedulingStats = applied.SchedulingStats
	after.Status.ResourceRequests = applied.ResourceRequests
	after.Status.UnhealthyNodes, after.Status.PreemptionGates = applied.UnhealthyNodes, applied.PreemptionGates
	after.Status.ClusterName, after.Status.NominatedClusterNames = applied.ClusterName, applied.NominatedClusterNames
	return after
}
