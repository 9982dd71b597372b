// Package quorum determines whether all gangs of a co-admission group are there and agree about the group: what a group has to be before its quota is
// looked at.
package quorum

import (
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/internal/decision"
	"github.com/tranche-dev/tranche/admission/internal/model"
	"github.com/tranche-dev/tranche/apis"
)

// The checks of co-admission groups that do not depend on quota.
const (
	gangsAreThere = "GangsAreThere"
	gangsAgree    = "GangsAgree"
)

// Lacks returns why a member of a co-admission group cannot be admitted whatever quota is free, or nil.
func Lacks(b *model.CoAdmissionGroup, s *model.Stage) *decision.Refusal {
	switch missing := missingMember(b, s); {
	case b.Members.Has(func(s *model.Stage) bool { return s.OwnerUID != "" }):
		return decision.Misconfigured(gangsAgree, "one of the gangs that are admitted together belongs to a stage plan, which is not supported: remove label %s from its quota Workload",
			apis.AdmitTogetherLabel)
	case b.Sizes[0] > 0 || len(b.Sizes) != 1 || b.Sizes[len(b.Members)] == 0 && len(b.Members) > s.Membership.Size:
		return disagreement(b, s)
	case b.Sizes[len(b.Members)] == 0:
		return decision.NewRefusal(gangsAreThere, kueue.WorkloadQuotaReservedReasonPendingEvaluation,
			"waits until all %d gangs that are admitted together request quota", s.Membership.Size)
	default:
		return missing
	}
}

// disagreement returns the refusal for members that report different sizes, or a wrong one.
func disagreement(b *model.CoAdmissionGroup, s *model.Stage) *decision.Refusal {
	if b.Sizes[0] > 0 {
		return decision.Misconfigured(gangsAgree, "from 1 to %d gangs can be admitted together, but at least one of these declares another number", model.MaxTogether)
	}
	if len(b.Sizes) == 1 {
		return decision.Misconfigured(gangsAgree, "belongs to a group of %d gangs that are admitted together, but the group has more", s.Membership.Size)
	}
	return decision.Misconfigured(gangsAgree, "declares that %d gangs are admitted together, but at least one of them declares another number", s.Membership.Size)
}

// missingMember returns a refusal because of a member that is not pending, or nil.
func missingMember(b *model.CoAdmissionGroup, s *model.Stage) *decision.Refusal {
	if b.Counts[model.IsGoing] > 0 {
		return decision.NewRefusal(gangsAreThere, kueue.WorkloadQuotaReservedReasonPendingEvaluation,
			"waits until the pods of evicted gangs that are admitted together with it have terminated")
	}
	closed := b.Sorted(model.IsClosed)
	if len(closed) == 0 {
		return nil
	}
	why := ""
	if other := closed[0]; other.Key.Namespace == s.Key.Namespace && other.ClosedBy != nil {
		why = ": " + other.ClosedBy.Text()
	}
	return decision.NewRefusal(gangsAreThere, kueue.WorkloadAdmissionGated,
		"waits until %s, which is admitted together with it, requests quota%s", NameOf(s, closed[0]), why)
}

// NameOf returns the name of another stage for the owner of a stage. Objects of other namespaces are not disclosed.
func NameOf(s *model.Stage, other *model.Stage) string {
	if other.Key.Namespace == s.Key.Namespace {
		return "gang " + other.Key.Name
	}
	return "a gang of another namespace"
}
