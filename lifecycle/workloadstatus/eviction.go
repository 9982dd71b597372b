package workloadstatus

import (
	"cmp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
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
	// Preemptor has the kind and the name of what the preemptor belongs to, if the owner may know it. Kueue's condition Preempted does not have it.
	Preemptor string
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

// Evicted returns the status of a quota Workload that has to release its quota. It holds the quota until its pods have terminated: see QuotaReleased.
// Its AdmissionChecks are reset.
func Evicted(workload *kueue.Workload, e Eviction, now time.Time) kueue.WorkloadStatus {
	s := newHoldingStatusBuilder(workload, now)
	message := e.Message + namedPreemptor(e.Preemptor)
	s.set(kueue.WorkloadEvicted, metav1.ConditionTrue, e.FullReason(), message)
	if e.Preempted != "" {
		s.set(kueue.WorkloadPreempted, metav1.ConditionTrue, e.Preempted, quotaworkload.WithEarlierPreemptors(e.Message, workload))
	}
	s.endNotice(e.FullReason(), "The stage is evicted: "+message)
	s.resetChecks()
	if e.Reason == kueue.WorkloadDeactivated {
		s.deactivate(e.FullReason(), e.Message)
	}
	s.count(e)
	return s.status
}

// deactivate clears all past retries. A Workload that holds no quota has none to release, so it leaves the queue at once.
func (s *statusBuilder) deactivate(reason, message string) {
	s.status.Conditions = slices.DeleteFunc(s.status.Conditions, func(c metav1.Condition) bool { return c.Type == kueue.WorkloadDeactivationTarget })
	s.status.RequeueState = nil
	for i := range s.status.AdmissionChecks {
		s.status.AdmissionChecks[i].RequeueAfterSeconds, s.status.AdmissionChecks[i].RetryCount = nil, nil
	}
	if s.status.Admission == nil {
		s.wait(quotaworkload.Wait{Reason: kueue.WorkloadDeactivated, Message: message})
		s.set(kueue.WorkloadRequeued, metav1.ConditionFalse, reason, message)
	}
}

// count updates the eviction statistics.
func (s *statusBuilder) count(e Eviction) {
	if s.status.SchedulingStats == nil {
		s.status.SchedulingStats = &kueue.SchedulingStats{}
	}
	stats := s.status.SchedulingStats
	i := slices.IndexFunc(stats.Evictions, func(known kueue.WorkloadSchedulingStatsEviction) bool {
		return known.Reason == e.Reason && known.UnderlyingCause == e.Cause
	})
	if i < 0 {
		stats.Evictions = append(stats.Evictions, kueue.WorkloadSchedulingStatsEviction{Reason: e.Reason, UnderlyingCause: e.Cause})
		i = len(stats.Evictions) - 1
	}
	stats.Evictions[i].Count++
}

// QuotaReleased returns the status of an evicted quota Workload whose pods have terminated. Only after a preemption does it queue again at once:
// every other reason has to end first. It is for Workloads with condition Evicted=True.
func QuotaReleased(workload *kueue.Workload, now time.Time) kueue.WorkloadStatus {
	s := newStatusBuilder(workload, now)
	evicted := cmp.Or(quotaworkload.FindTrue(workload, kueue.WorkloadEvicted), &metav1.Condition{})
	wait := pendingEvaluation(evicted.Message)
	if IsDeactivated(evicted.Reason) {
		wait.Reason = kueue.WorkloadDeactivated
	} else {
		s.status.RequeueState = LaterTry(workload, now)
	}
	s.resetChecks()
	s.release(wait)
	requeued, reason := metav1.ConditionFalse, evicted.Reason
	if evicted.Reason == kueue.WorkloadEvictedByPreemption || evicted.Reason == kueue.WorkloadEvictedDueToNodeFailures {
		requeued = metav1.ConditionTrue
		if BacksOff(s.status.RequeueState, s.now) {
			requeued, reason = metav1.ConditionFalse, kueue.WorkloadEvictedByAdmissionCheck
		}
	}
	s.set(kueue.WorkloadRequeued, requeued, reason, evicted.Message)
	if strings.HasSuffix(evicted.Reason, "DueTo"+kueue.WorkloadMaximumExecutionTimeExceeded) {
		// A user who activates it again resets its execution time.
		s.status.AccumulatedPastExecutionTimeSeconds = nil
	}
	return s.status
}

// IsDeactivated reports whether this is the reason of a condition about a deactivation, whatever its cause.
func IsDeactivated(reason string) bool {
	return reason == kueue.WorkloadDeactivated || strings.HasPrefix(reason, kueue.WorkloadDeactivated+"DueTo")
}

// waitNoMore clears the requeue time of the Workload, and keeps its count.
func (s *statusBuilder) waitNoMore() { s.status.RequeueState = countOf(s.status.RequeueState) }

// countOf returns a requeueState with the count of another one, or nil if that has none.
func countOf(state *kueue.RequeueState) *kueue.RequeueState {
	if state == nil || state.Count == nil {
		return nil
	}
	return &kueue.RequeueState{Count: state.Count}
}

// unexpired returns a requeueState without its time if that has passed.
func unexpired(state *kueue.RequeueState, now time.Time) *kueue.RequeueState {
	if BacksOff(state, now) {
		return state
	}
	return countOf(state)
}

// BacksOff reports whether the requeue time of a requeueState is in the future.
func BacksOff(state *kueue.RequeueState, now time.Time) bool {
	return state != nil && state.RequeueAt != nil && state.RequeueAt.After(now)
}

// LaterTry returns the requeueState of a quota Workload that backs off for as long as the AdmissionChecks in state Retry ask for.
func LaterTry(workload *kueue.Workload, now time.Time) *kueue.RequeueState {
	state := unexpired(workload.Status.RequeueState.DeepCopy(), now)
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

// NextTry returns the requeueState of a quota Workload that backs off once more than before, without the time.
func NextTry(workload *kueue.Workload) *kueue.RequeueState {
	state := cmp.Or(workload.Status.RequeueState.DeepCopy(), &kueue.RequeueState{})
	state.Count = new(ptr.Deref(state.Count, 0) + 1)
	return state
}

// Until sets the requeue time of a requeueState, unless it is later already.
func Until(state *kueue.RequeueState, at time.Time) *kueue.RequeueState {
	state = cmp.Or(state, &kueue.RequeueState{})
	if state.RequeueAt == nil || state.RequeueAt.Time.Before(at) {
		state.RequeueAt = new(metav1.NewTime(at.Truncate(time.Second)))
	}
	return state
}

// BackingOffWith returns the requeueState of a quota Workload that backs off with another one of its JobSet, or nil if that one does not back off.
func BackingOffWith(workload, cause *kueue.Workload) *kueue.RequeueState {
	if state := cause.Status.RequeueState; state != nil && state.RequeueAt != nil {
		return Until(workload.Status.RequeueState.DeepCopy(), state.RequeueAt.Time)
	}
	return nil
}

// Backoff returns how long the pods of a quota Workload that was evicted count times in a row because they were not ready stay out of the
// queue: base*2^(count-1) seconds, at most the maximum. Kueue adds a random ten-thousandth, which is less than the resolution of
// requeueAt, one second; here the same history gives the same time.
func Backoff(strategy *configapi.RequeuingStrategy, count int32) time.Duration {
	base, most := int64(*strategy.BackoffBaseSeconds), int64(*strategy.BackoffMaxSeconds)
	doublings := min(max(count-1, 0), 31) // the maximum has 31 bits
	return time.Duration(min(base<<doublings, most)) * time.Second
}
