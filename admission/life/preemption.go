package life

import (
	"fmt"
	"strings"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// EvictionOf returns what a quota Workload with the condition Evicted was evicted for.
func EvictionOf(workload *kueue.Workload) Eviction {
	var e Eviction
	if c := apimeta.FindStatusCondition(workload.Status.Conditions, kueue.WorkloadEvicted); c != nil {
		reason, cause, _ := strings.Cut(c.Reason, "DueTo")
		e.Reason, e.Cause, e.Message = reason, kueue.EvictionUnderlyingCause(cause), c.Message
	}
	if c := apimeta.FindStatusCondition(workload.Status.Conditions, kueue.WorkloadPreempted); c != nil && c.Status == metav1.ConditionTrue {
		e.Preempted = c.Reason
	}
	return e
}

// A Preemptor is the quota Workload that another one is preempted for.
type Preemptor struct {
	Namespace, Name string
	UID             types.UID
	// JobUID is the UID of the object that the quota Workload was created for, or empty if it is not known.
	JobUID string
	// Reason is that of the condition Preempted: the rule by which the preemptor takes the quota.
	Reason string
}

// PreemptionMessage returns what the owner of a victim in a namespace reads of the preemptor, and of the rule by which it takes the quota. A
// preemptor of another namespace is not named. The UIDs, under the names that Kueue gives them, lead to it where its objects can be read.
func PreemptionMessage(victimNamespace string, p Preemptor) string {
	jobUID := p.JobUID
	if jobUID == "" {
		jobUID = "UNKNOWN"
	}
	who := "a Workload of another namespace"
	if p.Namespace == victimNamespace {
		who = fmt.Sprintf("Workload %q", p.Name)
	}
	return fmt.Sprintf("Preempted to make room for %s (UID: %s, JobUID: %s) due to %s", who, p.UID, jobUID, right(p.Reason))
}

// right says in words by what a preemptor comes first.
func right(reason string) string {
	switch reason {
	case kueue.InClusterQueueReason:
		return "its priority in the ClusterQueue"
	case kueue.InCohortReclamationReason:
		return "its ClusterQueue taking back nominal quota that was borrowed in the cohort"
	case kueue.InCohortFairSharingReason:
		return "fair sharing within the cohort"
	case kueue.InCohortReclaimWhileBorrowingReason:
		return "its ClusterQueue borrowing before this one in the cohort"
	}
	return reason
}

// Suspended returns the status of a quota Workload that holds nothing because the user has suspended its JobSet.
func Suspended(workload *kueue.Workload, now time.Time) kueue.WorkloadStatus {
	d := newDraft(workload, now)
	d.resetChecks()
	d.release(bothReasons(kueue.WorkloadOnHold, "The JobSet is suspended by its user: set spec.suspend to false to queue again"))
	return d.status
}

// PodsNotStarted is the condition PodsReady of a quota Workload whose Jobs are held again: they start from the beginning.
func PodsNotStarted() metav1.Condition {
	return PodsReady(nil, false)
}
