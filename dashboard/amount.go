package dashboard

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	accelerator "github.com/tranche-dev/tranche/admission/charge"
	"github.com/tranche-dev/tranche/admission/quota"
)

// An Amount is a quantity of a resource for readers.
type Amount struct {
	Resource corev1.ResourceName `json:"resource"`
	// Flavor is missing if none is assigned.
	Flavor string `json:"flavor,omitempty"`
	// Amount is in the usual form of the resource, such as 16, 500m or 64Gi.
	Amount string `json:"amount"`
}

// units returns an amount in the unit of its resource: CPUs, bytes, or pieces.
func units(name corev1.ResourceName, a quota.Amount) float64 {
	if name == corev1.ResourceCPU {
		return float64(a) / 1000
	}
	return float64(a)
}

// amountsOf returns amounts in the order of their resources.
func amountsOf(sums map[corev1.ResourceName]quota.Amount) []Amount {
	var all []Amount
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		q := sums[name].Quantity(name)
		all = append(all, Amount{Resource: name, Amount: q.String()})
	}
	return all
}

// acceleratorsFirst returns amounts in the order of their resources, those of accelerators first.
func acceleratorsFirst(sums map[corev1.ResourceName]quota.Amount) []Amount {
	all := amountsOf(sums)
	orderAccelerators(all)
	return all
}

// orderAccelerators moves accelerators before the other amounts.
func orderAccelerators(all []Amount) {
	slices.SortStableFunc(all, func(a, b Amount) int { return compareAccelerators(a.Resource, b.Resource) })
}

// compareAccelerators orders accelerators before resources that every node has.
func compareAccelerators(a, b corev1.ResourceName) int {
	switch isFirst := accelerator.IsAccelerator(a); {
	case isFirst == accelerator.IsAccelerator(b):
		return 0
	case isFirst:
		return -1
	}
	return 1
}

// amountsHeld returns charges for readers.
func amountsHeld(charges []charge) []Amount {
	var all []Amount
	for _, c := range charges {
		q := c.amount.Quantity(c.Resource)
		all = append(all, Amount{Resource: c.Resource, Flavor: string(c.Flavor), Amount: q.String()})
	}
	return all
}
