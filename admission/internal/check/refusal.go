package check

import (
	"fmt"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/flavor"
	"github.com/tranche-dev/tranche/admission/internal/decision"
	"github.com/tranche-dev/tranche/admission/quota"
)

// The checks that are explained further.
const (
	WithinLimits     = "WithinLimits"
	PeakWithinLimits = "PeakWithinLimits"
	QuotaIsFree      = "QuotaFits"
	PeakFits         = "PeakFits"
	CoStartFits      = "CoStartFits"
	StageUnsafe      = "StageUnsafe"
	DelaysNone       = "DelaysNone"
)

// AddKueueMessage gives a refusal that is about quota the message that Kueue has for it.
func (ck *Checker) AddKueueMessage(l *Candidate, r *decision.Refusal) {
	if r.Kueue != "" {
		return
	}
	switch r.Reason {
	case kueue.WorkloadQuotaReservedReasonWaitingForQuota, kueue.WorkloadQuotaReservedReasonExceedsMaxQuota,
		kueue.WorkloadQuotaReservedReasonNoMatchingFlavor, kueue.WorkloadQuotaReservedReasonWaitingForPreemptedWorkloads:
		supply := ck.m.Supply(l.Queue)
		ck.IgnoringOwnReservations(l, func() bool {
			r.Kueue = supply.KueueMessage(l.PodSets, l.Queue.Node.Available)
			return true
		})
	}
	if n := len(l.Victims); n > 0 && r.Kueue != "" {
		r.Kueue += fmt.Sprintf(". Pending the preemption of %d workload(s)", n)
	}
}

// Choices returns the usages of the first combinations of flavors.
func Choices(items []flavor.Item) []quota.Usage {
	var usages []quota.Usage
	for choice := range flavor.Choices(items, flavor.MaxChoices) {
		usages = append(usages, choice.Usage(items))
	}
	return usages
}

// RoomIsMade refuses a stage that waits for its victims to leave.
func (ck *Checker) RoomIsMade(l *Candidate) *decision.Refusal {
	return decision.NewRefusal("RoomIsMade", kueue.WorkloadQuotaReservedReasonWaitingForPreemptedWorkloads,
		"waits in ClusterQueue %s until the pods of the stages that it preempts have terminated%s", l.Queue.Name, ck.Notice(l.Stage))
}
