package workloadstatus

import (
	"slices"
	"strings"
	"unicode"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
)

// pendingEvaluation returns the Wait of a quota Workload that is in the queue, and about which nothing has been decided yet.
func pendingEvaluation(message string) quotaworkload.Wait {
	return quotaworkload.Wait{Reason: kueue.WorkloadQuotaReservedReasonPendingEvaluation, Message: message}
}

// bothReasons returns the Wait of a quota Workload for which Kueue has the same reason with and without feature gates.
func bothReasons(reason, message string) quotaworkload.Wait {
	return quotaworkload.Wait{Reason: reason, KueueReason: reason, Message: message}
}

// notInQueue begins the messages about gates of Tranche.
const notInQueue = "Not in the queue: "

// outOfQueue returns the Wait of a quota Workload that a gate of Tranche keeps out of the queue.
func outOfQueue(w *kueue.Workload) quotaworkload.Wait {
	gate := quotaworkload.GateOf(w)
	return bothReasons(gate.Reason, notInQueue+gate.Text())
}

// wait sets the conditions of a quota Workload that holds no quota: QuotaReserved as Kueue writes it with default feature gates, and
// WaitingCondition if that has more details.
func (s *statusBuilder) wait(w quotaworkload.Wait) {
	reason, message := w.KueueReason, w.KueueMessage
	if reason == "" {
		reason = kueue.WorkloadPending //nolint:staticcheck // the reason that Kueue writes by default
	}
	if message == "" {
		message = w.Message
	}
	s.set(kueue.WorkloadQuotaReserved, metav1.ConditionFalse, reason, message)
	if w.Requests != nil {
		s.status.ResourceRequests = w.Requests
	}
	if finest(reason) == w.Reason && message == w.Message {
		s.waitsNoLonger()
		return
	}
	s.set(apis.WaitingCondition, metav1.ConditionTrue, w.Reason, w.Message)
}

// finest returns the reason that Kueue writes with its feature gates instead of one that it writes without, if there is only one.
func finest(reason string) string {
	if reason == kueue.WorkloadPending { //nolint:staticcheck // the reason that Kueue writes by default
		return kueue.WorkloadQuotaReservedReasonPendingEvaluation
	}
	return reason
}

// waitsNoLonger removes WaitingCondition.
func (s *statusBuilder) waitsNoLonger() {
	apimeta.RemoveStatusCondition(&s.status.Conditions, apis.WaitingCondition)
}

// WithoutAmounts removes the numbers from a message, so that messages which differ only in amounts become equal. That of another flavor stays different,
// unless their names differ only in digits.
func WithoutAmounts(message string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsDigit(r) {
			return -1
		}
		return r
	}, message)
}

// WaitOf returns the most specific reason for which a quota Workload holds no quota, and the message for its owner. It returns nil if its status
// has none.
func WaitOf(workload *kueue.Workload) *quotaworkload.Wait {
	reserved := apimeta.FindStatusCondition(workload.Status.Conditions, kueue.WorkloadQuotaReserved)
	if reserved == nil || reserved.Status != metav1.ConditionFalse {
		return nil
	}
	w := &quotaworkload.Wait{Reason: finest(reserved.Reason), Message: reserved.Message, KueueReason: reserved.Reason, KueueMessage: reserved.Message}
	if c := apimeta.FindStatusCondition(workload.Status.Conditions, apis.WaitingCondition); c != nil && c.Status == metav1.ConditionTrue {
		w.Reason, w.Message = c.Reason, c.Message
	}
	return w
}

// Observable returns a status of a quota Workload with the reasons of QuotaReserved=False and Admitted=False, and with the condition Admitted
// besides QuotaReserved, that Kueue writes with its feature gate UnadmittedWorkloadsObservability.
func Observable(status kueue.WorkloadStatus) kueue.WorkloadStatus {
	status.Conditions = slices.Clone(status.Conditions)
	if admitted := apimeta.FindStatusCondition(status.Conditions, kueue.WorkloadAdmitted); admitted != nil {
		switch admitted.Reason {
		case reasonUnsatisfied:
			admitted.Reason = kueue.WorkloadAdmittedReasonUnsatisfiedAdmissionChecks
		case reasonNeither:
			admitted.Reason, admitted.Message = kueue.WorkloadAdmittedReasonNoReservation, messageNoReservation
		}
	}
	wait := WaitOf(&kueue.Workload{Status: status})
	if wait == nil {
		return status
	}
	reserved := apimeta.FindStatusCondition(status.Conditions, kueue.WorkloadQuotaReserved)
	reserved.Reason = wait.Reason
	if apimeta.FindStatusCondition(status.Conditions, kueue.WorkloadAdmitted) == nil {
		status.Conditions = append(status.Conditions, metav1.Condition{
			Type: kueue.WorkloadAdmitted, Status: metav1.ConditionFalse, Reason: kueue.WorkloadAdmittedReasonNoReservation, Message: messageNoReservation,
			ObservedGeneration: reserved.ObservedGeneration, LastTransitionTime: reserved.LastTransitionTime,
		})
	}
	return status
}
