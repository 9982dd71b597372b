package admission

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quota"
)

// A cohort exists as soon as an object names it, whether or not there is a Cohort object. Without one it has no quota of its own, no parent and
// weight 1.
type cohort struct {
	name    string
	version version
	exists  bool
	// isLost is true if the object has been deleted. It is remembered only while members name the cohort.
	isLost bool
	parent string
	groups []kueue.ResourceGroup
	weight float64

	node, bare *quota.Node
	// cycle names the Cohorts from parent to parent, if they form a cycle, and is empty otherwise.
	cycle string
}

func (e *Engine) cohort(name string) *cohort {
	c := e.cohorts[name]
	if c == nil {
		c = &cohort{name: name, weight: 1, node: e.tree.AddCohort(name), bare: e.safetyTree.AddCohort(name)}
		e.cohorts[name] = c
	}
	return c
}

func (e *Engine) observeCohort(object *kueue.Cohort) {
	c := e.cohort(object.Name)
	v := versionOf(object.UID, object.ResourceVersion)
	if v.isOlderThan(c.version) {
		return
	}
	c.version = v
	spec := object.Spec.DeepCopy()
	groups, weight := spec.ResourceGroups, weightOf(spec.FairSharing)
	if c.exists && c.parent == string(spec.ParentName) && c.weight == weight && sameGroups(c.groups, groups) {
		return
	}
	c.exists, c.isLost, c.parent, c.groups, c.weight = true, false, string(spec.ParentName), groups, weight
	e.renewCohort(c)
}

func (e *Engine) loseCohort(name string) {
	c := e.cohort(name)
	c.exists, c.isLost, c.parent, c.groups, c.weight, c.version = false, true, "", nil, 1, version{}
	e.renewCohort(c)
}

// renewCohort recomputes all that depends on the spec.
func (e *Engine) renewCohort(c *cohort) {
	limits, _ := e.limits(c.groups)
	e.tree.SetQuotas(c.node, limits)
	e.safetyTree.SetQuotas(c.bare, limits)
	c.node.Weight, c.bare.Weight = c.weight, c.weight
	e.changedCohorts[c.name] = struct{}{}
	if c.parent != "" {
		e.cohort(c.parent)
	}
	e.isStale = true
}

// weightOf returns the weight, by default 1.
func weightOf(f *kueue.FairSharing) float64 {
	if f == nil || f.Weight == nil {
		return 1
	}
	return max(0, f.Weight.AsApproximateFloat64())
}

// limits converts the quotas of some resource groups. Remarks are about quotas that are not used as they are written: the API server rejects
// them, but may have stored them before it did.
func (e *Engine) limits(groups []kueue.ResourceGroup) (limits map[quota.ID]quota.Quota, remarks []string) {
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
				id := e.tree.Index.ID(quota.FlavorResource{Flavor: name, Resource: r.Name})
				if _, isRepeated := limits[id]; isRepeated {
					remarks = append(remarks, fmt.Sprintf("of several quotas of %s in flavor %q the last one counts", r.Name, name))
				}
				limits[id] = quota.Quota{
					Nominal:        amount("nominalQuota", &r.NominalQuota),
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

// sameGroups reports whether two lists of resource groups are equal.
func sameGroups(a, b []kueue.ResourceGroup) bool {
	return slices.EqualFunc(a, b, func(a, b kueue.ResourceGroup) bool {
		return slices.Equal(a.CoveredResources, b.CoveredResources) && slices.EqualFunc(a.Flavors, b.Flavors, sameQuotas)
	})
}

func sameQuotas(a, b kueue.FlavorQuotas) bool {
	return a.Name == b.Name && slices.EqualFunc(a.Resources, b.Resources, func(a, b kueue.ResourceQuota) bool {
		same := a.Name == b.Name && a.NominalQuota.Cmp(b.NominalQuota) == 0
		for _, limit := range [][2]*resource.Quantity{{a.BorrowingLimit, b.BorrowingLimit}, {a.LendingLimit, b.LendingLimit}} {
			same = same && (limit[0] == nil) == (limit[1] == nil) && (limit[0] == nil || limit[0].Cmp(*limit[1]) == 0)
		}
		return same
	})
}
