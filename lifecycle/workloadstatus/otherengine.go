package workloadstatus

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
)

// This file computes what Tranche writes into the status of a quota Workload that another engine admits: what the controller of a job writes in
// Kueue.

// Barred returns the status of a quota Workload with this condition Requeued, which names its gates. See quotaworkload.Bar.
func Barred(workload *kueue.Workload, bar metav1.Condition, now time.Time) kueue.WorkloadStatus {
	s := newHoldingStatusBuilder(workload, now)
	s.set(bar.Type, bar.Status, bar.Reason, bar.Message)
	return s.status
}

// Cleared returns the status of a quota Workload whose pods have terminated after its eviction, or after its user has suspended its JobSet, or that is reserved
// for a stage that must not start. Only after a preemption or a failure of nodes does it queue again at once: the other engine requeues it after every other eviction. Gates that keep
// it out of the queue stay.
func Cleared(workload *kueue.Workload, now time.Time) kueue.WorkloadStatus {
	s := newStatusBuilder(workload, now)
	evicted := quotaworkload.FindTrue(workload, kueue.WorkloadEvicted)
	if evicted == nil {
		// With the reason of a gate Kueue would not queue it again when the gate is removed.
		s.release(pendingEvaluation(outOfQueue(workload).Message))
		return s.status
	}
	s.release(pendingEvaluation(evicted.Message))
	if quotaworkload.IsBarred(workload) {
		return s.status
	}
	requeued := metav1.ConditionFalse
	if evicted.Reason == kueue.WorkloadEvictedByPreemption || evicted.Reason == kueue.WorkloadEvictedDueToNodeFailures {
		requeued = metav1.ConditionTrue
	}
	s.set(kueue.WorkloadRequeued, requeued, evicted.Reason, evicted.Message)
	return s.status
}
