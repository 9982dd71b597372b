package workloadstatus

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
)

// maxConditionMessage is the limit of the API server.
const maxConditionMessage = 32 << 10

// A statusBuilder is a builder of the part of a quota Workload's status that belongs to admission.
type statusBuilder struct {
	workload *kueue.Workload
	now      time.Time
	status   kueue.WorkloadStatus
}

// newStatusBuilder starts from the status of the Workload, without its admission, and without a requeue time that has passed: no write keeps that, or writes
// one back that another write has cleared.
func newStatusBuilder(workload *kueue.Workload, now time.Time) *statusBuilder {
	s := &statusBuilder{workload: workload, now: now.Truncate(time.Second), status: admissionPart(workload)}
	s.status.RequeueState = unexpired(s.status.RequeueState, now)
	return s
}

// newHoldingStatusBuilder starts from the status of the Workload, including its admission.
func newHoldingStatusBuilder(workload *kueue.Workload, now time.Time) *statusBuilder {
	s := newStatusBuilder(workload, now)
	s.status.Admission = workload.Status.Admission.DeepCopy()
	return s
}

func (s *statusBuilder) set(conditionType string, status metav1.ConditionStatus, reason, message string) {
	if len(message) > maxConditionMessage {
		message = strings.ToValidUTF8(message[:maxConditionMessage], "")
	}
	set(&s.status, s.workload, metav1.Condition{
		Type: conditionType, Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(s.now),
	})
}

// reserve sets the admission and its conditions, and clears those of an earlier eviction.
func (s *statusBuilder) reserve(admission *kueue.Admission) {
	s.status.Admission, s.status.ResourceRequests = admission, nil
	s.waitNoMore()
	s.waitsNoLonger()
	s.set(kueue.WorkloadQuotaReserved, metav1.ConditionTrue, reasonQuotaReserved, fmt.Sprintf("Quota reserved in ClusterQueue %s", admission.ClusterQueue))
	for _, conditionType := range []string{kueue.WorkloadEvicted, kueue.WorkloadPreempted} {
		if old := quotaworkload.FindTrue(s.workload, conditionType); old != nil {
			s.set(conditionType, metav1.ConditionFalse, reasonQuotaReserved, "Previously: "+old.Message)
		}
	}
}

// release sets the conditions of a Workload that holds nothing and why, and adds the time that it was admitted. The draft has no admission.
func (s *statusBuilder) release(w quotaworkload.Wait) {
	s.wait(w)
	s.endNotice(w.Reason, "The quota is released: "+w.Message)
	admitted := apimeta.FindStatusCondition(s.status.Conditions, kueue.WorkloadAdmitted)
	if admitted == nil && s.workload.Status.Admission == nil {
		return
	}
	if admitted != nil && admitted.Status == metav1.ConditionTrue {
		seconds := int64(max(s.now.Sub(admitted.LastTransitionTime.Time), 0) / time.Second)
		seconds += int64(ptr.Deref(s.status.AccumulatedPastExecutionTimeSeconds, 0))
		s.status.AccumulatedPastExecutionTimeSeconds = new(int32(min(seconds, math.MaxInt32))) //nolint:gosec // it is not negative either
	}
	reason, message := kueue.WorkloadAdmittedReasonNoReservation, messageNoReservation
	if slices.ContainsFunc(s.status.AdmissionChecks, func(c kueue.AdmissionCheckState) bool { return c.State != kueue.CheckStateReady }) {
		reason, message = reasonNeither, messageNeither
	}
	s.set(kueue.WorkloadAdmitted, metav1.ConditionFalse, reason, message)
}

// resetChecks resets every AdmissionCheck.
func (s *statusBuilder) resetChecks() {
	for i := range s.status.AdmissionChecks {
		s.status.AdmissionChecks[i] = reset(&s.status.AdmissionChecks[i], s.now)
	}
}
