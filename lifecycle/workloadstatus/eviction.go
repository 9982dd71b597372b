package workloadstatus

import (
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
)

// An Eviction is why a quota Workload has to release its quota.
type Eviction struct {
	// Reason is the reason of the condition Evicted, such as Preempted or PodsReadyTimeout.
	Reason string
	// Cause is the cause behind the reason, or empty. It becomes a part of the reason Deactivated.
	Cause kueue.EvictionUnderlyingCause
	// Message is a sentence for the owner.
	Message string
	// Preempted is the reason of the condition Preempted, for victims of a preemption.
	Preempted string
}

// EventReason returns the reason of the Event about the eviction, such as EvictedDueToPreempted.
func (e *Eviction) EventReason() string {
	return kueue.WorkloadEvicted + "DueTo" + e.FullReason()
}

// FullReason returns the reason of the condition Evicted, such as Preempted or DeactivatedDueToAdmissionCheck.
func (e *Eviction) FullReason() string {
	if e.Reason == kueue.WorkloadDeactivated && e.Cause != "" {
		return e.Reason + "DueTo" + string(e.Cause)
	}
	return e.Reason
}

// Evicted returns the status of a quota Workload that has to release its quota. It holds the quota until its pods have terminated: see GivenBack.
// Its AdmissionChecks are reset.
func Evicted(workload *kueue.Workload, e Eviction, now time.Time) kueue.WorkloadStatus {
	d := newHoldingDraft(workload, now)
	d.set(kueue.WorkloadEvicted, metav1.ConditionTrue, e.FullReason(), e.Message)
	if e.Preempted != "" {
		d.set(kueue.WorkloadPreempted, metav1.ConditionTrue, e.Preempted, e.Message)
	}
	d.resetChecks()
	if e.Reason == kueue.WorkloadDeactivated {
		d.deactivate(e.FullReason(), e.Message)
	}
	d.count(e)
	return d.status
}

// deactivate clears all past retries. A Workload that holds no quota has none to release, so it leaves the queue at once.
func (d *draft) deactivate(reason, message string) {
	d.status.Conditions = slices.DeleteFunc(d.status.Conditions, func(c metav1.Condition) bool { return c.Type == kueue.WorkloadDeactivationTarget })
	d.status.RequeueState = nil
	for i := range d.status.AdmissionChecks {
		d.status.AdmissionChecks[i].RequeueAfterSeconds, d.status.AdmissionChecks[i].RetryCount = nil, nil
	}
	if d.status.Admission == nil {
		d.wait(quotaworkload.Wait{Reason: kueue.WorkloadDeactivated, Message: message})
		d.set(kueue.WorkloadRequeued, metav1.ConditionFalse, reason, message)
	}
}

// count updates the eviction statistics.
func (d *draft) count(e Eviction) {
	if d.status.SchedulingStats == nil {
		d.status.SchedulingStats = &kueue.SchedulingStats{}
	}
	stats := d.status.SchedulingStats
	i := slices.IndexFunc(stats.Evictions, func(known kueue.WorkloadSchedulingStatsEviction) bool {
		return known.Reason == e.Reason && known.UnderlyingCause == e.Cause
	})
	if i < 0 {
		stats.Evictions = append(stats.Evictions, kueue.WorkloadSchedulingStatsEviction{Reason: e.Reason, UnderlyingCause: e.Cause})
		i = len(stats.Evictions) - 1
	}
	stats.Evictions[i].Count++
}

// GivenBack returns the status of an evicted quota Workload whose pods have terminated. Only after a preemption does it queue again at once:
// every other reason has to end first. It is for Workloads with condition Evicted=True.
func GivenBack(workload *kueue.Workload, now time.Time) kueue.WorkloadStatus {
	d := newDraft(workload, now)
	evicted := d.isTrue(kueue.WorkloadEvicted)
	if evicted == nil {
		evicted = &metav1.Condition{}
	}
	wait := pendingEvaluation(evicted.Message)
	if IsDeactivated(evicted.Reason) {
		wait.Reason = kueue.WorkloadDeactivated
	} else {
		d.status.RequeueState = LaterTry(workload, now)
	}
	d.resetChecks()
	d.release(wait)
	requeued, reason := metav1.ConditionFalse, evicted.Reason
	if evicted.Reason == kueue.WorkloadEvictedByPreemption || evicted.Reason == kueue.WorkloadEvictedDueToNodeFailures {
		requeued = metav1.ConditionTrue
		if d.isPutOff() {
			requeued, reason = metav1.ConditionFalse, kueue.WorkloadEvictedByAdmissionCheck
		}
	}
	d.set(kueue.WorkloadRequeued, requeued, reason, evicted.Message)
	if strings.HasSuffix(evicted.Reason, "DueTo"+kueue.WorkloadMaximumExecutionTimeExceeded) {
		// A user who activates it again resets its execution time.
		d.status.AccumulatedPastExecutionTimeSeconds = nil
	}
	return d.status
}

// IsDeactivated reports whether this is the reason of a condition about a deactivation, whatever its cause.
func IsDeactivated(reason string) bool {
	return reason == kueue.WorkloadDeactivated || strings.HasPrefix(reason, kueue.WorkloadDeactivated+"DueTo")
}

// DeactivationTarget returns the status of a quota Workload whose spec.active has to become false, and why.
func DeactivationTarget(workload *kueue.Workload, cause, message string, now time.Time) kueue.WorkloadStatus {
	d := newHoldingDraft(workload, now)
	d.set(kueue.WorkloadDeactivationTarget, metav1.ConditionTrue, cause, message)
	return d.status
}

// Requeued returns the status of a quota Workload that holds nothing and may queue again. The reason is one of Reactivated, BackoffFinished,
// ClusterQueueRestarted and LocalQueueRestarted.
func Requeued(workload *kueue.Workload, reason, message string, now time.Time) kueue.WorkloadStatus {
	d := newDraft(workload, now)
	d.set(kueue.WorkloadRequeued, metav1.ConditionTrue, reason, message)
	d.waitNoMore()
	return d.status
}

// BackedOff returns the status of a quota Workload that holds nothing and whose back-off has expired.
func BackedOff(workload *kueue.Workload, now time.Time) kueue.WorkloadStatus {
	d := newDraft(workload, now)
	d.waitNoMore()
	return d.status
}

// waitNoMore clears the requeue time of the Workload, and keeps its count.
func (d *draft) waitNoMore() {
	if d.status.RequeueState == nil {
		return
	}
	d.status.RequeueState.RequeueAt = nil
	if d.status.RequeueState.Count == nil {
		d.status.RequeueState = nil
	}
}

// PutOff returns the status of a quota Workload that holds nothing, and for which AdmissionChecks have asked for a retry after it had been
// evicted. If the retry is in the future the Workload waits until then.
func PutOff(workload *kueue.Workload, message string, now time.Time) kueue.WorkloadStatus {
	d := newDraft(workload, now)
	d.resetChecks()
	d.status.RequeueState = LaterTry(workload, now)
	if d.isPutOff() {
		d.set(kueue.WorkloadRequeued, metav1.ConditionFalse, kueue.WorkloadEvictedByAdmissionCheck, message)
	}
	return d.status
}

func (d *draft) isPutOff() bool {
	state := d.status.RequeueState
	return state != nil && state.RequeueAt != nil && state.RequeueAt.After(d.now)
}

// LaterTry returns the requeueState of a quota Workload that backs off for as long as the AdmissionChecks in state Retry ask for.
func LaterTry(workload *kueue.Workload, now time.Time) *kueue.RequeueState {
	state := workload.Status.RequeueState.DeepCopy()
	for _, check := range Checks(workload, kueue.CheckStateRetry) {
		if check.RequeueAfterSeconds == nil {
			continue
		}
		at := check.LastTransitionTime.Add(time.Duration(*check.RequeueAfterSeconds) * time.Second)
		if at.After(now) {
			state = Until(state, at)
		}
	}
	return state
}

// Until sets the requeue time of a requeueState, unless it is later already.
func Until(state *kueue.RequeueState, at time.Time) *kueue.RequeueState {
	if state == nil {
		state = &kueue.RequeueState{}
	}
	if state.RequeueAt == nil || state.RequeueAt.Time.Before(at) {
		state.RequeueAt = new(metav1.NewTime(at.Truncate(time.Second)))
	}
	return state
}
