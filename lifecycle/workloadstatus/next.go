package workloadstatus

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
)

// Snapshot is the snapshot that the next step of a quota Workload depends on, besides the time. It must not be changed.
type Snapshot struct {
	Workload *kueue.Workload
	// ReservedIn is the ClusterQueue that holds the Workload's quota while it waits for AdmissionChecks. It is nil if there is none.
	ReservedIn *kueue.ClusterQueue
	// LocalQueue and ClusterQueue are the stopped queues that the Workload waits for: see IsStopped. LocalQueue is also that of a Workload that waits for
	// AdmissionChecks. They are nil if they do not exist.
	LocalQueue   *kueue.LocalQueue
	ClusterQueue *kueue.ClusterQueue
	// Gates are the feature gates of Kueue that are on.
	Gates configapi.FeatureGates
	// Lacking is why the pods of an overdue Workload are not ready: see IsOverdue. It may be empty.
	Lacking string
}

// RecheckAfter is when an object that needs a fix is reconciled again, in case no watch reports that a user has fixed it.
const RecheckAfter = time.Minute

// Sooner returns the shorter one of two times until the next reconcile. Zero means that none is needed.
func Sooner(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// Later returns the later one of two times.
func Later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// A Step is the next write: at most one of Status, Deactivate and RemoveChecks. The change that it causes leads to the next step.
type Step struct {
	// Status is the whole part of the status that belongs to admission, or nil. It may equal the current status: see Differs.
	Status *kueue.WorkloadStatus
	// Deactivate asks for spec.active=false.
	Deactivate bool
	// RemoveChecks names the AdmissionChecks whose states have to be removed.
	RemoveChecks []kueue.AdmissionCheckReference
	// Transition is reported to the owner once the step is written. It may be nil.
	Transition Transition
	// RequeueAfter is when to reconcile again without a change, or zero.
	RequeueAfter time.Duration
}

// Next computes the next step from the snapshot and the time. Once a step changes nothing, there is nothing to do until something changes or
// RequeueAfter has passed.
func Next(s *Snapshot, podsReady *configapi.WaitForPodsReady, now time.Time) *Step {
	step := next(s, podsReady, now)
	if step.Status != nil && s.Gates.Observability() {
		step.Status = new(Observable(*step.Status))
	}
	return step
}

func next(s *Snapshot, podsReady *configapi.WaitForPodsReady, now time.Time) *Step {
	w := s.Workload
	isActive, isEvicted := ptr.Deref(w.Spec.Active, true), quotaworkload.IsTrue(w, kueue.WorkloadEvicted)
	isDeactivated := isEvicted && IsDeactivated(apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadEvicted).Reason)
	switch {
	case quotaworkload.IsTrue(w, kueue.WorkloadFinished) || !w.DeletionTimestamp.IsZero():
		return &Step{}
	case isActive && quotaworkload.IsTrue(w, kueue.WorkloadDeactivationTarget):
		return &Step{Deactivate: true}
	case !isActive && !isDeactivated:
		return deactivated(w, now)
	case quotaworkload.HoldsQuota(w) && isEvicted:
		// The controller that runs the pods releases the quota when they have terminated, whether or not it owns the Workload.
		return &Step{}
	case quotaworkload.HoldsQuota(w):
		return holding(s, podsReady, now)
	case isActive:
		return waiting(s, now)
	}
	return &Step{}
}

// evict returns the step that evicts a Workload.
func evict(w *kueue.Workload, e Eviction, requeue *kueue.RequeueState, now time.Time) *Step {
	status := Evicted(w, e, now)
	status.RequeueState = requeue
	return &Step{Status: &status, Transition: EvictedTransition{e}}
}

// deactivated evicts a Workload whose spec.active is false. It records the cause, if it was not a user.
func deactivated(w *kueue.Workload, now time.Time) *Step {
	e := Eviction{Reason: kueue.WorkloadDeactivated, Message: "The quota Workload is deactivated"}
	if target := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadDeactivationTarget); target != nil {
		e.Cause = kueue.EvictionUnderlyingCause(target.Reason)
		e.Message += " due to " + target.Message
	}
	e.Message += "; set its spec.active to true to queue again"
	return evict(w, e, nil, now)
}

// target starts a deactivation. It takes two more steps, so that the cause is kept whatever happens.
func target(w *kueue.Workload, cause, message string, transition Transition, now time.Time) *Step {
	s := newHoldingStatusBuilder(w, now)
	s.set(kueue.WorkloadDeactivationTarget, metav1.ConditionTrue, cause, message)
	return &Step{Status: &s.status, Transition: transition}
}

// holding returns the next step of a Workload that holds quota and is not evicted.
func holding(s *Snapshot, podsReady *configapi.WaitForPodsReady, now time.Time) *Step {
	w := s.Workload
	if rejected := Checks(w, kueue.CheckStateRejected); len(rejected) > 0 {
		verdict := Verdict(rejected)
		return target(w, kueue.WorkloadEvictedByAdmissionCheck, verdict, RejectedTransition{verdict}, now)
	}
	if retry := Checks(w, kueue.CheckStateRetry); len(retry) > 0 {
		e := Eviction{Reason: kueue.WorkloadEvictedByAdmissionCheck, Message: "Evicted due to " + Verdict(retry)}
		return evict(w, e, LaterTry(w, now), now)
	}
	if quotaworkload.IsTrue(w, kueue.WorkloadAdmitted) {
		return running(s, podsReady, now)
	}
	if isGone(s.ReservedIn) || isGone(s.LocalQueue) {
		return &Step{} // nothing is admitted there: the engine takes the reservation back
	}
	return checking(s, now)
}

// isGone reports whether a queue does not exist, or is being deleted.
func isGone[Q interface {
	comparable
	GetDeletionTimestamp() *metav1.Time
}](queue Q) bool {
	var none Q
	return queue == none || queue.GetDeletionTimestamp() != nil
}

// checking returns the next step of a Workload between its reservation and its admission.
func checking(s *Snapshot, now time.Time) *Step {
	w, required := s.Workload, requiredChecks(s)
	if drop := superfluous(w, required); len(drop) > 0 {
		return &Step{RemoveChecks: drop}
	}
	builder := newHoldingStatusBuilder(w, now)
	builder.require(required)
	if slices.ContainsFunc(builder.status.AdmissionChecks, func(c kueue.AdmissionCheckState) bool { return c.State != kueue.CheckStateReady }) {
		return &Step{Status: &builder.status}
	}
	if _, err := PodSetUpdates(w); err != nil {
		return target(w, kueue.WorkloadEvictedByAdmissionCheck, err.Error(), RejectedTransition{err.Error()}, now)
	}
	builder.set(kueue.WorkloadAdmitted, metav1.ConditionTrue, reasonAdmitted, messageAdmitted)
	reserved := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadQuotaReserved)
	return &Step{
		Status:     &builder.status,
		Transition: AdmittedTransition{w.Status.Admission.ClusterQueue, now.Sub(reserved.LastTransitionTime.Time)},
	}
}

// requiredChecks returns the checks of the ClusterQueue for all Workloads, and for a flavor of this one.
func requiredChecks(s *Snapshot) []kueue.AdmissionCheckReference {
	if s.ReservedIn.Spec.AdmissionChecksStrategy == nil {
		return nil
	}
	var names []kueue.AdmissionCheckReference
	for _, rule := range s.ReservedIn.Spec.AdmissionChecksStrategy.AdmissionChecks {
		if len(rule.OnFlavors) == 0 || slices.ContainsFunc(rule.OnFlavors, func(f kueue.ResourceFlavorReference) bool { return uses(s.Workload, f) }) {
			names = append(names, rule.Name)
		}
	}
	slices.Sort(names)
	return names
}

func uses(w *kueue.Workload, flavor kueue.ResourceFlavorReference) bool {
	return slices.ContainsFunc(w.Status.Admission.PodSetAssignments, func(a kueue.PodSetAssignment) bool {
		return slices.Contains(slices.Collect(maps.Values(a.Flavors)), flavor)
	})
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

// running checks the time limits of an admitted Workload.
func running(s *Snapshot, podsReady *configapi.WaitForPodsReady, now time.Time) *Step {
	w := s.Workload
	admitted := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadAdmitted).LastTransitionTime.Time
	again := time.Duration(0)
	if limit := w.Spec.MaximumExecutionTimeSeconds; limit != nil {
		past := ptr.Deref(w.Status.AccumulatedPastExecutionTimeSeconds, 0)
		left := admitted.Add(time.Duration(*limit-past) * time.Second).Sub(now)
		if left <= 0 {
			return target(w, kueue.WorkloadMaximumExecutionTimeExceeded, "exceeding the maximum execution time", OutOfTimeTransition{*limit}, now)
		}
		again = left
	}
	limit := readyBy(w, podsReady, admitted)
	if limit == nil {
		return &Step{RequeueAfter: again}
	}
	left := limit.deadline().Sub(now)
	if left <= 0 {
		return notReady(s, &podsReady.RequeuingStrategy, limit, now)
	}
	return &Step{RequeueAfter: Sooner(again, left)}
}

// IsOverdue reports whether the pods of a Workload that holds quota should have been ready before now.
func IsOverdue(w *kueue.Workload, podsReady *configapi.WaitForPodsReady, now time.Time) bool {
	admitted := quotaworkload.FindTrue(w, kueue.WorkloadAdmitted)
	if !quotaworkload.HoldsQuota(w) || quotaworkload.IsTrue(w, kueue.WorkloadEvicted) || quotaworkload.IsTrue(w, kueue.WorkloadFinished) || admitted == nil {
		return false
	}
	limit := readyBy(w, podsReady, admitted.LastTransitionTime.Time)
	return limit != nil && !now.Before(limit.deadline())
}

// A readyLimit is how long pods may take to be ready.
type readyLimit struct {
	since   time.Time
	timeout time.Duration
	// cause is what the pods wait for.
	cause kueue.EvictionUnderlyingCause
}

func (l *readyLimit) deadline() time.Time { return l.since.Add(l.timeout) }

// setting returns the name of the configuration field that has the timeout.
func (l *readyLimit) setting() string {
	if l.cause == kueue.WorkloadWaitForRecovery {
		return "waitForPodsReady.recoveryTimeout"
	}
	return "waitForPodsReady.timeout"
}

// readyBy returns by when the pods of an admitted Workload must be ready, or nil if they need not. PodsReady from before this admission does not
// count: the stage starts again. Time in which a stage is gated again and keeps its quota, because its JobSet was restarted, does not count
// either, nor does time in which a gang of pods gathers quota.
func readyBy(w *kueue.Workload, podsReady *configapi.WaitForPodsReady, admitted time.Time) *readyLimit {
	if !*podsReady.Enable || keepsPodsBack(w) || quotaworkload.HasNoPodsYet(w) {
		return nil
	}
	started := startedAt(w, admitted)
	ready := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadPodsReady)
	switch {
	case ready != nil && ready.Status == metav1.ConditionTrue:
		return nil
	case ready == nil || ready.LastTransitionTime.Time.Before(started):
		return &readyLimit{started, podsReady.Timeout.Duration, kueue.WorkloadWaitForStart}
	case ready.Reason != kueue.WorkloadWaitForRecovery:
		return &readyLimit{ready.LastTransitionTime.Time, podsReady.Timeout.Duration, kueue.WorkloadWaitForStart}
	case podsReady.RecoveryTimeout.Duration == 0:
		return nil
	}
	return &readyLimit{ready.LastTransitionTime.Time, podsReady.RecoveryTimeout.Duration, kueue.WorkloadWaitForRecovery}
}

// keepsPodsBack reports whether the pods of a Workload must not run now, although it may hold quota.
func keepsPodsBack(w *kueue.Workload) bool {
	return quotaworkload.HasGate(w, apis.StageGate, apis.SuspendedGate)
}

// notReady requeues a Workload with a growing back-off, until it has reached the retry limit.
func notReady(s *Snapshot, strategy *configapi.RequeuingStrategy, exceeded *readyLimit, now time.Time) *Step {
	w := s.Workload
	state := NextTry(w)
	if limit := strategy.BackoffLimitCount; limit != nil && *state.Count > *limit {
		return target(w, kueue.WorkloadRequeuingLimitExceeded, "exceeding the maximum number of re-queuing retries", OutOfTriesTransition{*limit}, now)
	}
	state = Until(state, now.Add(Backoff(strategy, *state.Count)))
	e := Eviction{
		Reason: kueue.WorkloadEvictedByPodsReadyTimeout, Cause: exceeded.cause,
		Message: fmt.Sprintf("Exceeded the PodsReady timeout of %s (%s): %s", exceeded.timeout, exceeded.setting(), cmp.Or(s.Lacking, "not all pods were ready")),
	}
	return evict(w, e, state, now)
}

// waiting returns a Workload that holds nothing to the queue.
func waiting(s *Snapshot, now time.Time) *Step {
	w := s.Workload
	if step := gatedByOthers(w, now); step != nil {
		return step
	}
	if step := gatedAgain(w, now); step != nil {
		return step
	}
	if s.Gates.ExplicitStatus() && apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadQuotaReserved) == nil {
		return &Step{Status: new(Pending(w, pendingEvaluation("Workload is pending evaluation in the scheduling queue"), now))}
	}
	if retry := Checks(w, kueue.CheckStateRetry); len(retry) > 0 {
		return postponed(w, Verdict(retry), now)
	}
	if state := w.Status.RequeueState; BacksOff(state, now) {
		return &Step{RequeueAfter: state.RequeueAt.Sub(now)}
	}
	c := KeptOut(w)
	switch {
	case c == nil:
		builder := newStatusBuilder(w, now)
		builder.waitNoMore()
		return &Step{Status: &builder.status}
	case IsDeactivated(c.Reason):
		return requeued(w, kueue.WorkloadReactivated, "The quota Workload was activated again", now)
	case c.Reason == kueue.WorkloadEvictedByPodsReadyTimeout || c.Reason == kueue.WorkloadEvictedByAdmissionCheck:
		return requeued(w, kueue.WorkloadBackoffFinished, "The back-off has expired", now)
	case isGone(s.LocalQueue) || ptr.Deref(s.LocalQueue.Spec.StopPolicy, kueue.None) != kueue.None:
	case c.Reason == kueue.WorkloadEvictedByLocalQueueStopped:
		return requeued(w, kueue.WorkloadLocalQueueRestarted, "The LocalQueue was restarted after being stopped", now)
	case isGone(s.ClusterQueue) || ptr.Deref(s.ClusterQueue.Spec.StopPolicy, kueue.None) != kueue.None:
	case c.Reason == kueue.WorkloadEvictedByClusterQueueStopped:
		return requeued(w, kueue.WorkloadClusterQueueRestarted, "The ClusterQueue was restarted after being stopped", now)
	}
	return &Step{}
}

// gatedByOthers reports in the status that a quota Workload has a gate which does not belong to Tranche, or no longer has one. It returns nil if
// the status is up to date.
func gatedByOthers(w *kueue.Workload, now time.Time) *Step {
	const begin = "Admission is gated by: "
	said := WaitOf(w)
	isSaid := said != nil && said.Reason == kueue.WorkloadAdmissionGated && strings.HasPrefix(said.Message, begin)
	switch hasGates := len(quotaworkload.GatesOfOthers(w)) > 0; {
	case hasGates && !isSaid:
		by := w.Annotations[apis.AdmissionGatedByAnnotation]
		return &Step{Status: new(Pending(w, bothReasons(kueue.WorkloadAdmissionGated, begin+by), now)), Transition: GatedTransition{by}}
	case !hasGates && isSaid:
		wait := pendingEvaluation("AdmissionGatedBy cleared, waiting for quota reservation")
		return &Step{Status: new(Pending(w, wait, now)), Transition: UngatedTransition{}}
	}
	return nil
}

// gatedAgain corrects the status of a stage's Workload that was refused quota before a gate removed it from the queue, or that names another gate: the old
// reason for waiting no longer holds. It returns nil if there is nothing to correct. The status of a Workload that has been gated from the start has no reason.
func gatedAgain(w *kueue.Workload, now time.Time) *Step {
	said := WaitOf(w)
	if !keepsPodsBack(w) || said == nil || len(quotaworkload.GatesOfOthers(w)) > 0 {
		return nil
	}
	wait := outOfQueue(w)
	isOfOtherGate := said.Message != wait.Message && strings.HasPrefix(said.Message, notInQueue)
	if said.Reason == wait.Reason && !isOfOtherGate || said.Reason == kueue.WorkloadQuotaReservedReasonPendingEvaluation {
		return nil
	}
	return &Step{Status: new(Pending(w, wait, now))}
}

// requeued returns a Workload to the queue. The reason is one of Reactivated, BackoffFinished, ClusterQueueRestarted and LocalQueueRestarted.
func requeued(w *kueue.Workload, reason, message string, now time.Time) *Step {
	s := newStatusBuilder(w, now)
	s.set(kueue.WorkloadRequeued, metav1.ConditionTrue, reason, message)
	s.waitNoMore()
	return &Step{Status: &s.status, Transition: RequeuedTransition{message}}
}

// postponed resets AdmissionChecks that have asked for a retry after their Workload had been evicted. If the retry is in the future the
// Workload waits until then.
func postponed(w *kueue.Workload, message string, now time.Time) *Step {
	s := newStatusBuilder(w, now)
	s.resetChecks()
	s.status.RequeueState = LaterTry(w, now)
	if BacksOff(s.status.RequeueState, s.now) {
		s.set(kueue.WorkloadRequeued, metav1.ConditionFalse, kueue.WorkloadEvictedByAdmissionCheck, message)
	}
	return &Step{Status: &s.status}
}
