package scenario

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// DefaultFlavor is the flavor of quotas that name none. It need not be declared.
const DefaultFlavor = "default"

// quotaKey reads the key of a field about quota, such as gpu of gpu=8 or a100:gpu of a100:gpu=8/borrow=4/lend=2.
func (f Field) quotaKey() (flavor, resource string, isQuota bool) {
	flavor, resource, hasFlavor := strings.Cut(f.Key, ":")
	if !hasFlavor {
		flavor, resource = DefaultFlavor, f.Key
	}
	return flavor, resource, hasFlavor || isResource(resource)
}

// HasDefaultFlavor reports whether a quota names no flavor.
func (f Fields) HasDefaultFlavor() bool {
	return slices.ContainsFunc(f, func(field Field) bool {
		flavor, _, isQuota := field.quotaKey()
		return isQuota && flavor == DefaultFlavor
	})
}

// quota reads a field about quota.
func (f Field) quota() (flavor kueue.ResourceFlavorReference, quota kueue.ResourceQuota, err error) {
	flavorName, resource, _ := f.quotaKey()
	if err = checkName(flavorName); err != nil {
		return "", quota, err
	}
	if quota.Name, err = resourceName(resource); err != nil {
		return "", quota, err
	}
	parts := strings.Split(f.Value, "/")
	if quota.NominalQuota, err = quantity(parts[0]); err != nil {
		return "", quota, err
	}
	for _, part := range parts[1:] {
		key, value, _ := strings.Cut(part, "=")
		limit, err := quantity(value)
		switch {
		case err != nil:
			return "", quota, err
		case key == "borrow" && quota.BorrowingLimit == nil:
			quota.BorrowingLimit = &limit
		case key == "lend" && quota.LendingLimit == nil:
			quota.LendingLimit = &limit
		default:
			return "", quota, fmt.Errorf("%q is no limit: write /borrow=AMOUNT or /lend=AMOUNT, each once", part)
		}
	}
	return kueue.ResourceFlavorReference(flavorName), quota, nil
}

// applyQuotas puts the quotas of the fields into groups: an existing flavor and resource is replaced, others are appended.
func (f Fields) applyQuotas(groups *[]kueue.ResourceGroup) error {
	if len(f) == 0 {
		return nil
	}
	var flavors []kueue.FlavorQuotas
	for _, g := range *groups {
		for i := range g.Flavors {
			flavors = append(flavors, *g.Flavors[i].DeepCopy())
		}
	}
	for _, field := range f {
		name, quota, err := field.quota()
		if err != nil {
			return fmt.Errorf("%s: %w", field.Key, err)
		}
		i := slices.IndexFunc(flavors, func(f kueue.FlavorQuotas) bool { return f.Name == name })
		if i < 0 {
			i = len(flavors)
			flavors = append(flavors, kueue.FlavorQuotas{Name: name})
		}
		resources := &flavors[i].Resources
		k := slices.IndexFunc(*resources, func(r kueue.ResourceQuota) bool { return r.Name == quota.Name })
		if k < 0 {
			*resources = append(*resources, quota)
		} else {
			(*resources)[k] = quota
		}
	}
	grouped, err := group(flavors)
	if err == nil {
		*groups = grouped
	}
	return err
}

// group returns a resource group of all flavors that have quota for the same resources.
func group(flavors []kueue.FlavorQuotas) ([]kueue.ResourceGroup, error) {
	var groups []kueue.ResourceGroup
	for _, f := range flavors {
		covered := make([]corev1.ResourceName, len(f.Resources))
		for i := range f.Resources {
			covered[i] = f.Resources[i].Name
		}
		slices.Sort(covered)
		i := slices.IndexFunc(groups, func(g kueue.ResourceGroup) bool { return shares(g.CoveredResources, covered) })
		switch {
		case i < 0:
			groups = append(groups, kueue.ResourceGroup{CoveredResources: covered, Flavors: []kueue.FlavorQuotas{f}})
			continue
		case !slices.Equal(groups[i].CoveredResources, covered):
			return nil, fmt.Errorf("flavor %s has quota for %v and flavor %s for %v: flavors that share a resource must have quota for the same ones; write 0 for what a flavor lacks",
				groups[i].Flavors[0].Name, groups[i].CoveredResources, f.Name, covered)
		}
		groups[i].Flavors = append(groups[i].Flavors, f)
	}
	// A resource has the same index in every flavor of a group.
	for _, g := range groups {
		for i := range g.Flavors {
			slices.SortFunc(g.Flavors[i].Resources, func(a, b kueue.ResourceQuota) int { return strings.Compare(string(a.Name), string(b.Name)) })
		}
	}
	return groups, nil
}

func shares(a, b []corev1.ResourceName) bool {
	return slices.ContainsFunc(a, func(r corev1.ResourceName) bool { return slices.Contains(b, r) })
}
