package observe

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/internal/cohorts"
	"github.com/tranche-dev/tranche/admission/internal/queuespec"
	"github.com/tranche-dev/tranche/admission/internal/version"
	"github.com/tranche-dev/tranche/admission/quota"
)

func (ev CohortObserved) apply(o *Observer) {
	object, c := ev.Cohort, o.m.Cohorts.Get(ev.Cohort.Name)
	v := version.Of(object.UID, object.ResourceVersion)
	if v.IsOlderThan(c.Version) {
		return
	}
	c.Version = v
	spec := object.Spec.DeepCopy()
	groups, weight := spec.ResourceGroups, queuespec.WeightOf(spec.FairSharing)
	if c.Exists && c.Parent == string(spec.ParentName) && c.Weight == weight && queuespec.SameGroups(c.Groups, groups) {
		return
	}
	c.Exists, c.IsLost, c.Parent, c.Groups, c.Weight = true, false, string(spec.ParentName), groups, weight
	o.renewCohort(c)
}

func (ev CohortGone) apply(o *Observer) {
	c := o.m.Cohorts.Get(ev.Name)
	c.Exists, c.IsLost, c.Parent, c.Groups, c.Weight, c.Version = false, true, "", nil, 1, version.Version{}
	o.renewCohort(c)
}

// renewCohort recomputes all that depends on the spec.
func (o *Observer) renewCohort(c *cohorts.Cohort) {
	limits, _ := o.limits(c.Groups)
	o.m.Tree.SetQuotas(c.Node, limits)
	o.m.SafetyTree.SetQuotas(c.Bare, limits)
	c.Node.Weight, c.Bare.Weight = c.Weight, c.Weight
	o.m.Changes.ChangedCohorts[c.Name] = struct{}{}
	if c.Parent != "" {
		o.m.Cohorts.Get(c.Parent)
	}
	o.m.Schedule.IsStale = true
}

// limits converts the quotas of some resource groups. Remarks are about quotas that are not used as they are written: the API server rejects
// them, but may have stored them before it did.
func (o *Observer) limits(groups []kueue.ResourceGroup) (limits map[quota.ID]quota.Quota, remarks []string) {
	limits = map[quota.ID]quota.Quota{}
	for _, g := range groups {
		for i := range g.Flavors {
			name := g.Flavors[i].Name
			for _, r := range g.Flavors[i].Resources {
				amount := func(field string, q *resource.Quantity) quota.Amount {
					if q == nil {
						return quota.MaxAmount
					}
					a, ok := quota.Of(r.Name, *q)
					if !ok {
						remarks = append(remarks, fmt.Sprintf("%s %q of %s in flavor %q counts as %s", field, q.String(), r.Name, name, inexact(a)))
					}
					return a
				}
				id := o.m.Tree.Index.ID(quota.FlavorResource{Flavor: name, Resource: r.Name})
				if _, isRepeated := limits[id]; isRepeated {
					remarks = append(remarks, fmt.Sprintf("of several quotas of %s in flavor %q the last one counts", r.Name, name))
				}
				limits[id] = quota.Quota{
					// Those of all queues of a cohort tree can be added up.
					Nominal:        min(amount("nominalQuota", &r.NominalQuota), quota.MaxCharge),
					BorrowingLimit: amount("borrowingLimit", r.BorrowingLimit),
					LendingLimit:   amount("lendingLimit", r.LendingLimit),
				}
			}
		}
	}
	return limits, remarks
}

// inexact describes the amount that is used for a quantity that has no exact amount.
func inexact(a quota.Amount) string {
	if a == 0 {
		return "0"
	}
	return "no limit"
}
