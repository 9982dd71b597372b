package quotaworkload

import (
	"fmt"
	"slices"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	"github.com/tranche-dev/tranche/controllers/conditions"
	"github.com/tranche-dev/tranche/controllers/events"
)

// wanted is what a pass should write: at most one of status, deactivate and drop.
type wanted struct {
	// status is the whole part of the status that belongs to admission, or nil.
	status *kueue.WorkloadStatus
	// deactivate asks for spec.active=false.
	deactivate bool
	// drop names the AdmissionChecks whose states have to go.
	drop []kueue.AdmissionCheckReference
	// events are told once it is written.
	events []events.Event
	// again is when to look again although nothing has changed, or zero.
	again time.Duration
}

// desired computes what to write from what is there and from the time. It does no I/O.
func desired(s *seen, podsReady configapi.WaitForPodsReady, now time.Time) *wanted {
	w := s.workload
	isActive, isEvicted := ptr.Deref(w.Spec.Active, true), conditions.IsTrue(w, kueue.WorkloadEvicted)
	isDeactivated := isEvicted && conditions.IsDeactivated(apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadEvicted).Reason)
	switch {
	case conditions.IsTrue(w, kueue.WorkloadFinished) || !w.DeletionTimestamp.IsZero():
		return &wanted{}
	case isActive && conditions.IsTrue(w, kueue.WorkloadDeactivationTarget):
		return &wanted{deactivate: true}
	case !isActive && !isDeactivated:
		return deactivated(w, now)
	case isReserved(w) && isEvicted:
		return givenBack(w, now)
	case isReserved(w):
		return holding(s, podsReady, now)
	case isActive:
		return waiting(s, now)
	}
	return &wanted{}
}

// evict makes a Workload give its quota back.
func evict(w *kueue.Workload, e conditions.Eviction, requeue *kueue.RequeueState, now time.Time) *wanted {
	status := conditions.Evicted(w, e, now)
	status.RequeueState = requeue
	return &wanted{status: &status, events: []events.Event{events.Evicted(e.EventReason(), e.Message)}}
}

// deactivated evicts a Workload whose spec.active is false. It remembers why, if it was not a user who said so.
func deactivated(w *kueue.Workload, now time.Time) *wanted {
	e := conditions.Eviction{Reason: kueue.WorkloadDeactivated, Message: "The quota Workload is deactivated"}
	if target := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadDeactivationTarget); target != nil {
		e.Cause = kueue.EvictionUnderlyingCause(target.Reason)
		e.Message += " due to " + target.Message
	}
	return evict(w, e, nil, now)
}

// target begins a deactivation. It takes two more passes, so that the cause is kept whatever happens.
func target(w *kueue.Workload, cause, message string, event events.Event, now time.Time) *wanted {
	status := conditions.DeactivationTarget(w, cause, message, now)
	return &wanted{status: &status, events: []events.Event{event}}
}

// givenBack ends an eviction where nobody runs anything. A controller that owns the Workload does that itself, once its pods are over.
func givenBack(w *kueue.Workload, now time.Time) *wanted {
	if metav1.GetControllerOf(w) != nil {
		return &wanted{}
	}
	status := conditions.GivenBack(w, now)
	return &wanted{status: &status}
}

// holding follows a Workload that holds quota and may go on doing so.
func holding(s *seen, podsReady configapi.WaitForPodsReady, now time.Time) *wanted {
	w := s.workload
	if rejected := conditions.Checks(w, kueue.CheckStateRejected); len(rejected) > 0 {
		verdict := conditions.Verdict(rejected)
		return target(w, kueue.WorkloadEvictedByAdmissionCheck, verdict, events.AdmissionCheckRejected(verdict), now)
	}
	if retry := conditions.Checks(w, kueue.CheckStateRetry); len(retry) > 0 {
		e := conditions.Eviction{Reason: kueue.WorkloadEvictedByAdmissionCheck, Message: "Evicted due to " + conditions.Verdict(retry)}
		return evict(w, e, conditions.LaterTry(w, now), now)
	}
	if conditions.IsTrue(w, kueue.WorkloadAdmitted) {
		return running(w, podsReady, now)
	}
	if s.reservedIn == nil {
		return &wanted{}
	}
	return checking(s, now)
}

// checking follows a Workload from its reservation to its admission.
func checking(s *seen, now time.Time) *wanted {
	w, required := s.workload, requiredChecks(s)
	if drop := superfluous(w, required); len(drop) > 0 {
		return &wanted{drop: drop}
	}
	status := conditions.Required(w, required, now)
	if slices.ContainsFunc(status.AdmissionChecks, func(c kueue.AdmissionCheckState) bool { return c.State != kueue.CheckStateReady }) {
		return &wanted{status: &status}
	}
	if _, err := conditions.PodSetUpdates(w); err != nil {
		return target(w, kueue.WorkloadEvictedByAdmissionCheck, err.Error(), events.AdmissionCheckRejected(err.Error()), now)
	}
	status = conditions.AllReady(w, now)
	reserved := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadQuotaReserved)
	return &wanted{
		status: &status,
		events: []events.Event{events.Admitted(string(w.Status.Admission.ClusterQueue), now.Sub(reserved.LastTransitionTime.Time))},
	}
}

// requiredChecks are those of the ClusterQueue that concern all Workloads or a flavor that this one has got.
func requiredChecks(s *seen) []kueue.AdmissionCheckReference {
	if s.reservedIn.Spec.AdmissionChecksStrategy == nil {
		return nil
	}
	var names []kueue.AdmissionCheckReference
	for _, rule := range s.reservedIn.Spec.AdmissionChecksStrategy.AdmissionChecks {
		if len(rule.OnFlavors) == 0 || slices.ContainsFunc(rule.OnFlavors, func(f kueue.ResourceFlavorReference) bool { return uses(s.workload, f) }) {
			names = append(names, rule.Name)
		}
	}
	slices.Sort(names)
	return names
}

func uses(w *kueue.Workload, flavor kueue.ResourceFlavorReference) bool {
	for i := range w.Status.Admission.PodSetAssignments {
		for _, assigned := range w.Status.Admission.PodSetAssignments[i].Flavors {
			if assigned == flavor {
				return true
			}
		}
	}
	return false
}

func superfluous(w *kueue.Workload, required []kueue.AdmissionCheckReference) []kueue.AdmissionCheckReference {
	var names []kueue.AdmissionCheckReference
	for i := range w.Status.AdmissionChecks {
		if name := w.Status.AdmissionChecks[i].Name; !slices.Contains(required, name) {
			names = append(names, name)
		}
	}
	return names
}

// running watches the times of an admitted Workload.
func running(w *kueue.Workload, podsReady configapi.WaitForPodsReady, now time.Time) *wanted {
	admitted := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadAdmitted).LastTransitionTime.Time
	again := time.Duration(0)
	if limit := w.Spec.MaximumExecutionTimeSeconds; limit != nil {
		past := ptr.Deref(w.Status.AccumulatedPastExecutionTimeSeconds, 0)
		left := admitted.Add(time.Duration(*limit-past) * time.Second).Sub(now)
		if left <= 0 {
			return target(w, kueue.WorkloadMaximumExecutionTimeExceeded, "exceeding the maximum execution time", events.MaximumExecutionTimeExceeded(*limit), now)
		}
		again = left
	}
	deadline, cause := readyBy(w, podsReady, admitted)
	if deadline.IsZero() {
		return &wanted{again: again}
	}
	left := deadline.Sub(now)
	if left <= 0 {
		return notReady(w, podsReady.RequeuingStrategy, cause, now)
	}
	if again == 0 || left < again {
		again = left
	}
	return &wanted{again: again}
}

// readyBy returns when the pods of an admitted Workload must be ready, and what they wait for. It is zero if they need not. What
// PodsReady said before this admission does not count: the stage begins anew.
func readyBy(w *kueue.Workload, podsReady configapi.WaitForPodsReady, admitted time.Time) (time.Time, kueue.EvictionUnderlyingCause) {
	if !*podsReady.Enable {
		return time.Time{}, ""
	}
	ready := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadPodsReady)
	switch {
	case ready != nil && ready.Status == metav1.ConditionTrue:
		return time.Time{}, ""
	case ready == nil || ready.Reason != kueue.WorkloadWaitForRecovery || ready.LastTransitionTime.Time.Before(admitted):
		return admitted.Add(podsReady.Timeout.Duration), kueue.WorkloadWaitForStart
	case podsReady.RecoveryTimeout.Duration == 0:
		return time.Time{}, ""
	}
	return ready.LastTransitionTime.Add(podsReady.RecoveryTimeout.Duration), kueue.WorkloadWaitForRecovery
}

// notReady sends a Workload back to the queue, for longer each time, until it has had its tries.
func notReady(w *kueue.Workload, strategy configapi.RequeuingStrategy, cause kueue.EvictionUnderlyingCause, now time.Time) *wanted {
	state := w.Status.RequeueState.DeepCopy()
	if state == nil {
		state = &kueue.RequeueState{}
	}
	count := ptr.Deref(state.Count, 0) + 1
	if limit := strategy.BackoffLimitCount; limit != nil && count > *limit {
		return target(w, kueue.WorkloadRequeuingLimitExceeded, "exceeding the maximum number of re-queuing retries", events.RequeuingLimitExceeded(*limit), now)
	}
	state.Count = &count
	state = conditions.Until(state, now.Add(backoff(strategy, count)))
	e := conditions.Eviction{
		Reason: kueue.WorkloadEvictedByPodsReadyTimeout, Cause: cause,
		Message: fmt.Sprintf("Exceeded the PodsReady timeout %s", client.ObjectKeyFromObject(w)),
	}
	return evict(w, e, state, now)
}

// backoff is base*2^(count-1), at most the maximum. Kueue adds a random ten-thousandth, which is less than the second that requeueAt
// is written in; here the same history gives the same time.
func backoff(strategy configapi.RequeuingStrategy, count int32) time.Duration {
	seconds, most := int64(*strategy.BackoffBaseSeconds), int64(*strategy.BackoffMaxSeconds)
	for range count - 1 {
		if seconds == 0 || seconds >= most {
			break
		}
		seconds *= 2
	}
	return time.Duration(min(seconds, most)) * time.Second
}

// waiting leads a Workload that holds nothing back into the queue.
func waiting(s *seen, now time.Time) *wanted {
	w := s.workload
	if retry := conditions.Checks(w, kueue.CheckStateRetry); len(retry) > 0 {
		status := conditions.PutOff(w, conditions.Verdict(retry), now)
		return &wanted{status: &status}
	}
	if state := w.Status.RequeueState; state != nil && state.RequeueAt != nil {
		if left := state.RequeueAt.Sub(now); left > 0 {
			return &wanted{again: left}
		}
	}
	c := keptOut(w)
	switch {
	case c == nil:
		status := conditions.BackedOff(w, now)
		return &wanted{status: &status}
	case conditions.IsDeactivated(c.Reason):
		return requeued(w, kueue.WorkloadReactivated, "The quota Workload was activated again", now)
	case c.Reason == kueue.WorkloadEvictedByPodsReadyTimeout || c.Reason == kueue.WorkloadEvictedByAdmissionCheck:
		return requeued(w, kueue.WorkloadBackoffFinished, "The back-off is over", now)
	case s.localQueue == nil || ptr.Deref(s.localQueue.Spec.StopPolicy, kueue.None) != kueue.None:
	case c.Reason == kueue.WorkloadEvictedByLocalQueueStopped:
		return requeued(w, kueue.WorkloadLocalQueueRestarted, "The LocalQueue was restarted after being stopped", now)
	case s.clusterQueue == nil || ptr.Deref(s.clusterQueue.Spec.StopPolicy, kueue.None) != kueue.None:
	case c.Reason == kueue.WorkloadEvictedByClusterQueueStopped:
		return requeued(w, kueue.WorkloadClusterQueueRestarted, "The ClusterQueue was restarted after being stopped", now)
	}
	return &wanted{}
}

func requeued(w *kueue.Workload, reason, message string, now time.Time) *wanted {
	status := conditions.Requeued(w, reason, message, now)
	return &wanted{status: &status, events: []events.Event{events.Requeued(message)}}
}
