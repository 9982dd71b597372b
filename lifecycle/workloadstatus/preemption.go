package workloadstatus

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
)

// EvictionOf returns the eviction of a quota Workload with the condition Evicted.
func EvictionOf(workload *kueue.Workload) Eviction {
	var e Eviction
	if c := apimeta.FindStatusCondition(workload.Status.Conditions, kueue.WorkloadEvicted); c != nil {
		reason, cause, _ := strings.Cut(c.Reason, "DueTo")
		e.Reason, e.Cause, e.Message = reason, kueue.EvictionUnderlyingCause(cause), c.Message
	}
	if c := quotaworkload.FindTrue(workload, kueue.WorkloadPreempted); c != nil {
		e.Preempted = c.Reason
	}
	return e
}

// A Preemptor is the quota Workload that another one is preempted for.
type Preemptor struct {
	UID types.UID
	// JobUID is the UID of the object that the quota Workload was created for, or empty if it is not known.
	JobUID string
	// Reason is the reason of the condition Preempted: the rule by which the preemptor takes the quota.
	Reason string
	// Name has the kind and the name of what the preemptor belongs to. It is empty for readers of another namespace.
	Name string
	// Path names the Cohorts of the preemptor from the root down, and its ClusterQueue. VictimPath is that of the victim.
	Path, VictimPath string
}

// PreemptionMessage returns the message of Kueue for a preemption, as the condition Preempted has it. It names neither the preemptor nor its namespace:
// a user who may read its objects can look up the UIDs.
func PreemptionMessage(p Preemptor) string {
	return quotaworkload.PreemptedFor + p.uid() + "," + p.why()
}

func (p *Preemptor) uid() string { return cmp.Or(string(p.UID), unknown) }

func (p *Preemptor) why() string {
	return fmt.Sprintf(" JobUID: %s) due to %s; preemptor path: %s; preemptee path: %s",
		cmp.Or(p.JobUID, unknown), right(p.Reason), cmp.Or(p.Path, unknown), cmp.Or(p.VictimPath, unknown))
}

// namedPreemptor returns what follows the message of Kueue for readers who may know the name of the preemptor.
func namedPreemptor(name string) string {
	if name == "" {
		return ""
	}
	return "; preemptor: " + name
}

// unknown replaces what is not known in the message of a preemption.
const unknown = "UNKNOWN"

// Noticed returns the status of a quota Workload that goes on running until its preemption at a time.
func Noticed(workload *kueue.Workload, ends time.Time, p Preemptor, now time.Time) kueue.WorkloadStatus {
	s := newHoldingStatusBuilder(workload, now)
	s.set(apis.PreemptionPendingCondition, metav1.ConditionTrue, p.Reason, quotaworkload.NoticeMessage(ends, p.uid())+p.why()+namedPreemptor(p.Name))
	return s.status
}

// NoticeWithdrawn returns the status of a quota Workload whose preemptor no longer waits.
func NoticeWithdrawn(workload *kueue.Workload, now time.Time) kueue.WorkloadStatus {
	s := newHoldingStatusBuilder(workload, now)
	s.endNotice("Withdrawn", "The preemptor no longer waits for the quota")
	return s.status
}

// endNotice ends the notice of a preemption, if the Workload has one.
func (s *statusBuilder) endNotice(reason, message string) {
	if quotaworkload.IsTrue(s.workload, apis.PreemptionPendingCondition) {
		s.set(apis.PreemptionPendingCondition, metav1.ConditionFalse, reason, message)
	}
}

// NameOf returns the name of a quota Workload for readers of a namespace. It does not disclose names of other namespaces.
func NameOf(reader string, workload types.NamespacedName) string {
	if workload.Namespace != reader {
		return "a Workload of another namespace"
	}
	return fmt.Sprintf("Workload %q", workload.Name)
}

// OwnerNameOf returns the kind and the name of what a quota Workload was created for. It is empty for readers of another namespace.
func OwnerNameOf(reader string, workload *kueue.Workload) string {
	if workload.Namespace != reader {
		return ""
	}
	if owner := metav1.GetControllerOf(workload); owner != nil {
		return fmt.Sprintf("%s %q", owner.Kind, owner.Name)
	}
	return fmt.Sprintf("Workload %q", workload.Name)
}

// right returns Kueue's words for the rule of a preemption.
func right(reason string) string {
	switch reason {
	case kueue.InClusterQueueReason:
		return "prioritization in the ClusterQueue"
	case kueue.InCohortReclamationReason:
		return "reclamation within the cohort"
	case kueue.InCohortFairSharingReason:
		return "Fair Sharing within the cohort"
	case kueue.InCohortReclaimWhileBorrowingReason:
		return "reclamation within the cohort while borrowing"
	}
	return cmp.Or(reason, unknown)
}

// Suspended returns the status of a quota Workload that holds nothing because the user has suspended its JobSet.
func Suspended(workload *kueue.Workload, now time.Time) kueue.WorkloadStatus {
	s := newStatusBuilder(workload, now)
	s.resetChecks()
	owner := "JobSet"
	if workload.Labels[apis.JobLabel] != "" {
		owner = "Job"
	}
	s.release(bothReasons(kueue.WorkloadOnHold, "The "+owner+" is suspended by its user: set spec.suspend to false to queue again"))
	return s.status
}

// PodsNotStarted returns the condition PodsReady of a quota Workload whose Jobs are held again: they start from the beginning.
func PodsNotStarted() metav1.Condition {
	return PodsReady(nil, false)
}
