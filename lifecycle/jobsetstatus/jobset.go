// Package jobsetstatus computes what Tranche writes on a JobSet: its conditions, and the timeline of the quota that its stages have held.
package jobsetstatus

import (
	"fmt"
	"slices"
	"strings"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// Conditions of Tranche on JobSets.
const (
	// StageAdmitted is true if all open stages hold their quota; if not, its message says why.
	StageAdmitted = "StageAdmitted"
	// StageInProgress names the stages that are open and not finished, in a few words, for lists of JobSets.
	StageInProgress = "StageInProgress"
	// GangScheduling is true if the gangs of a JobSet are placed as a whole. It exists only if the JobSet asks for gangs.
	GangScheduling = "GangScheduling"
	// GroupScheduling is true if all pods of the group have started whose main containers start together. It exists only if the JobSet asks
	// for that, and a controller of its own writes it.
	GroupScheduling = "GroupScheduling"
	// StartExpected is true if the start of the first waiting stage is expected at a known time, and unknown if that stage waits for an unknown time.
	// It exists only while a stage waits. ExpectedStartOf reads it.
	StartExpected = "StartExpected"
	// SpecPruned is true if fields of the JobSet were lost, or may have been, because the API server served another CRD of JobSets than Tranche's. It
	// exists only then.
	SpecPruned = "SpecPruned"
)

// Reasons of the conditions on JobSets. Those of waiting stages are Kueue's.
const (
	reasonStageAdmitted = "Admitted"
	reasonFinished      = "Finished"
	reasonFailed        = "Failed"
	reasonQueueStopped  = "QueueStopped"
	reasonPreparing     = "Preparing"
	reasonSuspended     = "JobSetSuspended"
	maxMessage          = 1024
)

// A Summary is the progress of a JobSet through its plan.
type Summary struct {
	// Stages is the number of stages of the plan.
	Stages int
	// Current has the stages that are open and not finished, in the order of the plan.
	Current []StageState
	// Suspended is true if the user has suspended the JobSet.
	Suspended bool
	// Over is true if every stage has finished.
	Over bool
	// Failure is nil if the JobSet has not failed.
	Failure *Failure
}

// A Failure describes how a JobSet has failed.
type Failure struct {
	// Stages has the stages with failed Jobs, in the order of the plan. It may be empty, because a Job was deleted since.
	Stages []StageState
	// Message is the message of the JobSet controller.
	Message string
}

// A StageState is the state of one stage.
type StageState struct {
	// Index is the index of the stage in the plan, from 0.
	Index int
	Name  string
	// Workload is the quota Workload of the stage.
	Workload *kueue.Workload
	// Growths are the quota Workloads for the pods by which the stage has grown.
	Growths []*kueue.Workload
	// Unsafe is why the stage does not ask another engine for quota yet, or empty.
	Unsafe string
	// AwaitPods is how many Jobs of the stage are held until pods of an earlier run have terminated.
	AwaitPods int
}

// JobSetRefused returns the conditions of a JobSet that cannot be queued (StageAdmitted), or has no queue and whose Jobs stay held
// (StageInProgress).
func JobSetRefused(js *jobsetapi.JobSet, conditionType, why string) []metav1.Condition {
	return timed(js, metav1.Condition{
		Type: conditionType, Status: metav1.ConditionFalse, Reason: kueue.WorkloadQuotaReservedReasonMisconfigured, Message: why,
	})
}

// UnqueuedProgress returns the conditions of a JobSet without a queue that Tranche manages.
func UnqueuedProgress(js *jobsetapi.JobSet, summary Summary) []metav1.Condition {
	return timed(js, inProgress(summary))
}

// JobSetProgress returns the conditions of a JobSet that is queued.
func JobSetProgress(js *jobsetapi.JobSet, summary Summary) []metav1.Condition {
	return timed(js, append(preemptionPending(js, summary), stageAdmitted(summary), inProgress(summary))...)
}

// stageAdmitted returns the condition StageAdmitted.
func stageAdmitted(summary Summary) metav1.Condition {
	c := metav1.Condition{Type: StageAdmitted, Status: metav1.ConditionFalse}
	switch {
	case summary.Failure != nil:
		c.Reason, c.Message = reasonFailed, summary.failure()
	case summary.Over:
		c.Reason, c.Message = reasonFinished, "Every stage has finished"
	case summary.Suspended:
		c.Reason, c.Message = reasonSuspended, "spec.suspend is true: quota is released when all pods have terminated; set spec.suspend to false to requeue"
	case len(summary.Current) == 0:
		c.Reason, c.Message = reasonPreparing, "The quota Workloads are being made"
	default:
		if waiting := summary.firstWaiting(); waiting != nil {
			c.Reason, c.Message = waitingStage(summary, *waiting)
			return c
		}
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, reasonStageAdmitted, admittedStages(summary)
	}
	return c
}

// failure returns a message with the stages in which a JobSet has failed.
func (s *Summary) failure() string {
	var where []string
	for _, st := range s.Failure.Stages {
		where = append(where, title(*s, st))
	}
	if len(where) == 0 {
		return "The JobSet has failed: " + s.Failure.Message
	}
	return fmt.Sprintf("The JobSet has failed in %s: %s", strings.Join(where, ", "), s.Failure.Message)
}

// firstWaiting returns the first stage that is open and not admitted, or nil if there is none.
func (s *Summary) firstWaiting() *StageState {
	i := slices.IndexFunc(s.Current, func(st StageState) bool { return isWaiting(st.Workload) })
	if i < 0 {
		return nil
	}
	return &s.Current[i]
}

func admittedStages(summary Summary) string {
	var parts []string
	for _, st := range summary.Current {
		queue := ""
		if st.Workload.Status.Admission != nil {
			queue = string(st.Workload.Status.Admission.ClusterQueue)
		}
		parts = append(parts, fmt.Sprintf("%s by ClusterQueue %q%s%s", title(summary, st), queue, st.awaitedPods(), st.waitingGrowth()))
	}
	return "Admitted " + strings.Join(parts, ", ")
}

// awaitedPods says why Jobs of an admitted stage are held, or is empty.
func (st *StageState) awaitedPods() string {
	if st.AwaitPods == 0 {
		return ""
	}
	return fmt.Sprintf(" (held Jobs: %d, until the pods of their previous run have terminated, which use the quota of the stage)", st.AwaitPods)
}

// waitingGrowth says why a stage does not have all pods yet that its JobSet asks for, or is empty.
func (st *StageState) waitingGrowth() string {
	i := slices.IndexFunc(st.Growths, isWaiting)
	if i < 0 {
		return ""
	}
	pods := int32(0)
	for _, podSet := range st.Growths[i].Spec.PodSets {
		pods += podSet.Count
	}
	_, message := whyItWaits(st.Growths[i])
	return fmt.Sprintf(" (waiting to grow by %d pods: %s)", pods, message)
}

func isWaiting(workload *kueue.Workload) bool {
	return !quotaworkload.IsTrue(workload, kueue.WorkloadAdmitted) || quotaworkload.IsTrue(workload, kueue.WorkloadEvicted)
}

func waitingStage(summary Summary, st StageState) (reason, message string) {
	reason, message = whyItWaits(st.Workload)
	if st.Unsafe != "" {
		reason, message = kueue.WorkloadQuotaReservedReasonWaitingForQuota, st.Unsafe
	}
	if reason == kueue.WorkloadQuotaReservedReasonSuspended {
		// In lists of JobSets it is shown next to the column Suspended, which is about spec.suspend.
		reason = reasonQueueStopped
	}
	return reason, fmt.Sprintf("Waiting to admit %s: %s", title(summary, st), message)
}

// whyItWaits returns what keeps a quota Workload from being admitted: its eviction, a gate that keeps it out of the queue, its
// AdmissionChecks, or a refusal by the engine.
func whyItWaits(workload *kueue.Workload) (reason, message string) {
	reserved := quotaworkload.IsTrue(workload, kueue.WorkloadQuotaReserved)
	if evicted := quotaworkload.FindTrue(workload, kueue.WorkloadEvicted); evicted != nil && reserved {
		return evicted.Reason, "evicted, its pods are ending: " + evicted.Message
	}
	if reserved {
		var names []string
		for i := range workload.Status.AdmissionChecks {
			if check := &workload.Status.AdmissionChecks[i]; check.State != kueue.CheckStateReady {
				names = append(names, fmt.Sprintf("%s is %s", check.Name, check.State))
			}
		}
		slices.Sort(names)
		return kueue.WorkloadAdmittedReasonUnsatisfiedAdmissionChecks, "holds its quota, its AdmissionChecks are not all Ready: " + strings.Join(names, ", ")
	}
	if out := workloadstatus.KeptOut(workload); out != nil {
		return out.Reason, keptOut(workload, out)
	}
	if wait := workloadstatus.WaitOf(workload); wait != nil {
		return wait.Reason, wait.Message
	}
	return kueue.WorkloadQuotaReservedReasonPendingEvaluation, "not checked yet; if that does not change, check that the manager which admits in its ClusterQueue runs: Kueue's in the mode Beside"
}

// keptOut says until when an evicted quota Workload does not queue again.
func keptOut(workload *kueue.Workload, why *metav1.Condition) string {
	switch {
	case workloadstatus.IsDeactivated(why.Reason):
		return fmt.Sprintf("%s (quota Workload %q)", why.Message, workload.Name)
	case workload.Status.RequeueState != nil && workload.Status.RequeueState.RequeueAt != nil:
		return "backing off until status.requeueState.requeueAt of its quota Workload: " + why.Message
	}
	return "kept out of the queue for now: " + why.Message
}

func title(summary Summary, st StageState) string {
	return fmt.Sprintf("stage %d/%d %q", st.Index+1, summary.Stages, st.Name)
}

// timed sets the times, and truncates long messages.
func timed(js *jobsetapi.JobSet, all ...metav1.Condition) []metav1.Condition {
	for i := range all {
		c := &all[i]
		c.ObservedGeneration = js.Generation
		c.Message = cut(c.Message)
		c.LastTransitionTime = metav1.Now()
		if old := apimeta.FindStatusCondition(js.Status.Conditions, c.Type); old != nil && old.Status == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
		}
	}
	return all
}

// WithPriorityKept adds to the condition of a waiting stage that the JobSet names a priority class which does not exist. It also returns
// the message as news if the JobSet did not report it before.
func WithPriorityKept(js *jobsetapi.JobSet, all []metav1.Condition, message string) (with []metav1.Condition, news string) {
	if message == "" {
		return all, ""
	}
	all = slices.Clone(all)
	c := apimeta.FindStatusCondition(all, StageAdmitted)
	if c == nil {
		return all, ""
	}
	c.Message = cut(message + "; " + c.Message)
	before := apimeta.FindStatusCondition(js.Status.Conditions, StageAdmitted)
	if before != nil && strings.HasPrefix(before.Message, message) {
		return all, ""
	}
	return all, message
}

func cut(message string) string {
	return strings.ToValidUTF8(message[:min(len(message), maxMessage)], "")
}

// Has reports whether the conditions contain one with the same type and content.
func Has(all []metav1.Condition, one metav1.Condition) bool {
	old := apimeta.FindStatusCondition(all, one.Type)
	return old != nil && old.Status == one.Status && old.Reason == one.Reason && old.Message == one.Message
}

// IsOwned reports whether the stage controller owns conditions of this type on JobSets.
func IsOwned(conditionType string) bool {
	return slices.Contains([]string{StageAdmitted, StageInProgress, GangScheduling, StartExpected, SpecPruned, apis.PreemptionPendingCondition}, conditionType)
}
