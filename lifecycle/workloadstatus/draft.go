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

// A draft is a builder of the part of a quota Workload's status that belongs to admission.
type draft struct {
	workload *kueue.Workload
	now      time.Time
	status   kueue.WorkloadStatus
}

// newDraft starts from the status of the Workload, without its admission.
func newDraft(workload *kueue.Workload, now time.Time) *draft {
	return &draft{workload: workload, now: now.Truncate(time.Second), status: admissionPart(workload)}
}

// newHoldingDraft starts from the status of the Workload, including its admission.
func newHoldingDraft(workload *kueue.Workload, now time.Time) *draft {
	d := newDraft(workload, now)
	d.status.Admission = workload.Status.Admission.DeepCopy()
	return d
}

func (d *draft) set(conditionType string, status metav1.ConditionStatus, reason, message string) {
	if len(message) > maxConditionMessage {
		message = strings.ToValidUTF8(message[:maxConditionMessage], "")
	}
	set(&d.status, d.workload, metav1.Condition{
		Type: conditionType, Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(d.now),
	})
}

// reserve sets the admission and its conditions, and clears those of an earlier eviction.
func (d *draft) reserve(admission *kueue.Admission) {
	d.status.Admission = admission
	d.waitsNoLonger()
	d.set(kueue.WorkloadQuotaReserved, metav1.ConditionTrue, reasonQuotaReserved, fmt.Sprintf("Quota reserved in ClusterQueue %s", admission.ClusterQueue))
	for _, conditionType := range []string{kueue.WorkloadEvicted, kueue.WorkloadPreempted} {
		if old := d.isTrue(conditionType); old != nil {
			d.set(conditionType, metav1.ConditionFalse, reasonQuotaReserved, "Previously: "+old.Message)
		}
	}
}

// release sets the conditions of a Workload that holds nothing and why, and adds the time that it was admitted. The draft has no admission.
func (d *draft) release(w quotaworkload.Wait) {
	d.wait(w)
	admitted := apimeta.FindStatusCondition(d.status.Conditions, kueue.WorkloadAdmitted)
	if admitted == nil && d.workload.Status.Admission == nil {
		return
	}
	if admitted != nil && admitted.Status == metav1.ConditionTrue {
		seconds := int64(max(d.now.Sub(admitted.LastTransitionTime.Time), 0) / time.Second)
		seconds += int64(ptr.Deref(d.status.AccumulatedPastExecutionTimeSeconds, 0))
		d.status.AccumulatedPastExecutionTimeSeconds = new(int32(min(seconds, math.MaxInt32))) //nolint:gosec // it is not negative either
	}
	reason, message := kueue.WorkloadAdmittedReasonNoReservation, messageNoReservation
	if slices.ContainsFunc(d.status.AdmissionChecks, func(c kueue.AdmissionCheckState) bool { return c.State != kueue.CheckStateReady }) {
		reason, message = reasonNeither, messageNeither
	}
	d.set(kueue.WorkloadAdmitted, metav1.ConditionFalse, reason, message)
}

// resetChecks resets every AdmissionCheck.
func (d *draft) resetChecks() {
	for i := range d.status.AdmissionChecks {
		d.status.AdmissionChecks[i] = reset(&d.status.AdmissionChecks[i], d.now)
	}
}

// isTrue returns the condition if its status is True.
func (d *draft) isTrue(conditionType string) *metav1.Condition {
	c := apimeta.FindStatusCondition(d.status.Conditions, conditionType)
	if c == nil || c.Status != metav1.ConditionTrue {
		return nil
	}
	return c.DeepCopy()
}
