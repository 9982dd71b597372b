// Package queuespec reads what the dashboard needs of queues from their spec and status.
package queuespec

import (
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quota"
)

// A Limit is the quota of one flavor and resource.
type Limit struct {
	quota.FlavorResource
	quota.Quota
	// IsUnlisted is true if the spec has no quota of it.
	IsUnlisted bool
}

// StopOf returns the stop policy of a queue, or nothing if it is None.
func StopOf(p *kueue.StopPolicy) string {
	if stop := ptr.Deref(p, kueue.None); stop != kueue.None {
		return string(stop)
	}
	return ""
}

// WeightOf returns the weight of fair sharing.
func WeightOf(f *kueue.FairSharing) float64 {
	if f == nil || f.Weight == nil {
		return 1
	}
	return max(0, f.Weight.AsApproximateFloat64())
}

// ShareOf returns the weighted share of fair sharing, or nil without it.
func ShareOf(f *kueue.FairSharingStatus) *int64 {
	if f == nil {
		return nil
	}
	return new(f.WeightedShare)
}

// InactiveOf returns the condition of this type if it is False.
func InactiveOf(conditions []metav1.Condition, conditionType string) *metav1.Condition {
	if c := apimeta.FindStatusCondition(conditions, conditionType); c != nil && c.Status == metav1.ConditionFalse {
		return &metav1.Condition{Reason: c.Reason, Message: c.Message}
	}
	return nil
}

// LimitsIn returns the quotas of resource groups in the order of the spec.
func LimitsIn(groups []kueue.ResourceGroup) []Limit {
	var limits []Limit
	for g := range groups {
		for f := range groups[g].Flavors {
			flavor := &groups[g].Flavors[f]
			for r := range flavor.Resources {
				one := &flavor.Resources[r]
				l := Limit{
					FlavorResource: quota.FlavorResource{Flavor: flavor.Name, Resource: one.Name},
					Quota:          quota.Quota{BorrowingLimit: quota.MaxAmount, LendingLimit: quota.MaxAmount},
				}
				l.Nominal, _ = quota.Of(one.Name, one.NominalQuota)
				if one.BorrowingLimit != nil {
					l.BorrowingLimit, _ = quota.Of(one.Name, *one.BorrowingLimit)
				}
				if one.LendingLimit != nil {
					l.LendingLimit, _ = quota.Of(one.Name, *one.LendingLimit)
				}
				limits = append(limits, l)
			}
		}
	}
	return limits
}

// AmountsUsed returns the usage that the status of a ClusterQueue reports.
func AmountsUsed(usages []kueue.FlavorUsage) map[quota.FlavorResource]quota.Amount {
	amounts := map[quota.FlavorResource]quota.Amount{}
	for i := range usages {
		for k := range usages[i].Resources {
			r := &usages[i].Resources[k]
			amounts[quota.FlavorResource{Flavor: usages[i].Name, Resource: r.Name}], _ = quota.Of(r.Name, r.Total)
		}
	}
	return amounts
}
