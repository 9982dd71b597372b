package quota

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// A FlavorResource is the unit of quota: a resource on nodes of one flavor.
type FlavorResource struct {
	Flavor   kueue.ResourceFlavorReference
	Resource corev1.ResourceName
}

// Compare orders by flavor, then by resource.
func (fr FlavorResource) Compare(other FlavorResource) int {
	return cmp.Or(cmp.Compare(fr.Flavor, other.Flavor), cmp.Compare(fr.Resource, other.Resource))
}

// An ID is the number of a FlavorResource in one Index. IDs count from zero on.
type ID int32

// An Index numbers FlavorResources, and the resources among them, in the order in which it meets them. It never removes a number: its size is
// bounded by the FlavorResources for which administrators have ever given quota.
type Index struct {
	ids       map[FlavorResource]ID
	names     []FlavorResource
	resources map[corev1.ResourceName]int
	resource  []int
	// resourceNames is by number.
	resourceNames []corev1.ResourceName
}

// NewIndex returns an empty Index.
func NewIndex() *Index {
	return &Index{ids: map[FlavorResource]ID{}, resources: map[corev1.ResourceName]int{}}
}

// ID returns the number of a FlavorResource, and assigns one if it has none yet.
func (x *Index) ID(fr FlavorResource) ID {
	id, known := x.ids[fr]
	if !known {
		id = ID(len(x.names)) //nolint:gosec // far from 2^31
		x.ids[fr] = id
		x.names = append(x.names, fr)
		r, met := x.resources[fr.Resource]
		if !met {
			r = len(x.resources)
			x.resources[fr.Resource] = r
			x.resourceNames = append(x.resourceNames, fr.Resource)
		}
		x.resource = append(x.resource, r)
	}
	return id
}

// Name returns the FlavorResource of a number.
func (x *Index) Name(id ID) FlavorResource { return x.names[id] }

// Len returns how many FlavorResources have a number.
func (x *Index) Len() int { return len(x.names) }

// Resource returns the number of the resource alone. It counts from zero on, too.
func (x *Index) Resource(id ID) int { return x.resource[id] }

// ResourceName returns the resource of a number.
func (x *Index) ResourceName(r int) corev1.ResourceName { return x.resourceNames[r] }

// Resources returns how many resources there are.
func (x *Index) Resources() int { return len(x.resources) }

// Compare orders by name, so that output does not depend on the order of events.
func (x *Index) Compare(a, b ID) int { return x.names[a].Compare(x.names[b]) }
