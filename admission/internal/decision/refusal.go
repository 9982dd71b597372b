package decision

import (
	"fmt"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// NamespaceSelected is the check that refuses stages of namespaces that a ClusterQueue does not select.
const NamespaceSelected = "NamespaceIsSelected"

// PodsAreValid is the check that refuses pods which the API server would not create.
const PodsAreValid = "PodsAreValid"

// StrictFIFO is the check that refuses stages behind a blocking stage.
const StrictFIFO = "StrictFIFO"

// InKueue sets the message that Kueue has for a refusal.
func (r Refusal) InKueue(format string, args ...any) *Refusal {
	r.Kueue = fmt.Sprintf(format, args...)
	return &r
}

// News returns the text whose change is announced to all. A stage that waits for quota is notified once: the missing amounts change with every
// admission.
func (r Refusal) News() string {
	if r.Reason == kueue.WorkloadQuotaReservedReasonWaitingForQuota {
		return r.Reason
	}
	return r.Message
}

// NewRefusal returns the refusal of a check for one of Kueue's reasons.
func NewRefusal(check, reason, format string, args ...any) *Refusal {
	return &Refusal{Check: check, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// Misconfigured returns the refusal of a check for what a user or an administrator has to change.
func Misconfigured(check, format string, args ...any) *Refusal {
	return NewRefusal(check, kueue.WorkloadQuotaReservedReasonMisconfigured, format, args...)
}
