package dashboard

import (
	"strings"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/lifecycle/ledger"
)

// A flavorLimit is the quota of one flavor and resource.
type flavorLimit struct {
	quota.FlavorResource
	quota.Quota
	// IsUnlisted is true if the spec has no quota of it.
	IsUnlisted bool
}

// stopOf returns the stop policy of a queue, or nothing if it is None.
func stopOf(p *kueue.StopPolicy) string {
	if stop := ptr.Deref(p, kueue.None); stop != kueue.None {
		return string(stop)
	}
	return ""
}

// weightOf returns the weight of fair sharing.
func weightOf(f *kueue.FairSharing) float64 {
	if f == nil || f.Weight == nil {
		return 1
	}
	return max(0, f.Weight.AsApproximateFloat64())
}

// shareOf returns the weighted share of fair sharing, or nil without it.
func shareOf(f *kueue.FairSharingStatus) *int64 {
	if f == nil {
		return nil
	}
	return new(f.WeightedShare)
}

// inactiveOf returns the condition of this type if it is False.
func inactiveOf(conditions []metav1.Condition, conditionType string) *metav1.Condition {
	if c := apimeta.FindStatusCondition(conditions, conditionType); c != nil && c.Status == metav1.ConditionFalse {
		return &metav1.Condition{Reason: c.Reason, Message: plainMessage(c.Message)}
	}
	return nil
}

// plainMessage returns the message of the condition Active without what the reader of an inactive queue knows. Kueue's "Can't admit new workloads: is stopped." is no
// sentence.
func plainMessage(message string) string {
	why, isOfKueue := strings.CutPrefix(message, "Can't admit new workloads: ")
	if isOfKueue && (strings.HasPrefix(why, "is ") || strings.HasPrefix(why, "references ")) {
		return "the ClusterQueue " + why
	}
	return why
}

// limitsIn returns the quotas of resource groups in the order of the spec.
func limitsIn(groups []kueue.ResourceGroup) []flavorLimit {
	var limits []flavorLimit
	for fr, one := range ledger.QuotasOf(groups) {
		l := flavorLimit{FlavorResource: fr, Quota: quota.Quota{BorrowingLimit: quota.MaxAmount, LendingLimit: quota.MaxAmount}}
		l.Nominal, _ = quota.Of(one.Name, one.NominalQuota)
		l.Nominal = min(l.Nominal, quota.MaxCharge)
		if one.BorrowingLimit != nil {
			l.BorrowingLimit, _ = quota.Of(one.Name, *one.BorrowingLimit)
		}
		if one.LendingLimit != nil {
			l.LendingLimit, _ = quota.Of(one.Name, *one.LendingLimit)
		}
		limits = append(limits, l)
	}
	return limits
}

// amountsUsed returns the usage that the status of a ClusterQueue reports.
func amountsUsed(usages []kueue.FlavorUsage) map[quota.FlavorResource]quota.Amount {
	amounts := map[quota.FlavorResource]quota.Amount{}
	for i := range usages {
		for k := range usages[i].Resources {
			r := &usages[i].Resources[k]
			amounts[quota.FlavorResource{Flavor: usages[i].Name, Resource: r.Name}], _ = quota.Of(r.Name, r.Total)
		}
	}
	return amounts
}
