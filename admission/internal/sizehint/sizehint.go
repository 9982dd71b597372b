// Package sizehint computes how much smaller a job would have to be to fit a ClusterQueue.
package sizehint

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/admission/flavor"
	"github.com/tranche-dev/tranche/admission/quota"
)

// A Search searches for the pod sets of which a single one has to be smaller, so that all would fit a ClusterQueue if nothing were charged.
type Search struct {
	// IsWithinCapacity reports whether a usage is within the capacity of the ClusterQueue.
	IsWithinCapacity func(quota.Usage) bool
	PodSets          []flavor.PodSet
	// Items of the pod sets, with all flavors that fit them, whatever their quota.
	Items []flavor.Item
	// Suits reports whether some combination of flavors for items is feasible. Each option alone is within capacity.
	Suits func(items []flavor.Item) bool
}

// maxSized is the number of pod sets up to which the numbers of pods are computed. The cost grows with its square.
const maxSized = 8

// Text names a pod set of which one pod is too large, or up to three pod sets of which each would be enough to make smaller.
func (z *Search) Text() string {
	const most = 3
	var smaller []string
	for p := range z.PodSets {
		podSet := &z.PodSets[p]
		if z.isTooLarge(p) {
			return fmt.Sprintf("one pod of %s alone is too large", podSet.Name)
		}
		if len(z.PodSets) > maxSized || len(smaller) == most {
			continue
		}
		if fewer := z.largest(p); fewer > 0 {
			smaller = append(smaller, fmt.Sprintf("at most %d of %d pods of %s", fewer, podSet.Count, podSet.Name))
		}
	}
	if len(smaller) == 0 {
		return ""
	}
	return "would fit with " + strings.Join(smaller, ", or ")
}

// isTooLarge reports whether no flavor has the quota for one pod of a pod set.
func (z *Search) isTooLarge(p int) bool {
	return z.PodSets[p].Count > 0 && slices.ContainsFunc(z.Items, func(item flavor.Item) bool {
		return item.PodSet == p && len(z.resized(item, p, 1).Options) == 0
	})
}

// largest returns with how many pods of one pod set, less than it has, all pod sets would fit. It is zero if not even one is few enough.
func (z *Search) largest(p int) int32 {
	low, high := int32(0), z.PodSets[p].Count
	for high-low > 1 {
		if middle := low + (high-low)/2; z.fits(p, middle) {
			low = middle
		} else {
			high = middle
		}
	}
	return low
}

// fits reports whether all pod sets would fit with this number of pods of one of them.
func (z *Search) fits(p int, count int32) bool {
	items := make([]flavor.Item, len(z.Items))
	for i := range z.Items {
		items[i] = z.resized(z.Items[i], p, count)
		if len(items[i].Options) == 0 {
			return false
		}
	}
	return z.Suits(items)
}

// resized returns an item for another number of pods of one pod set, with the options that are within capacity.
func (z *Search) resized(item flavor.Item, p int, count int32) flavor.Item {
	var options []flavor.Option
	for _, o := range item.Options {
		if item.PodSet == p {
			o.Usage = o.Usage.Clone()
			for i := range o.Usage {
				o.Usage[i].Amount = o.Usage[i].Amount / quota.Amount(z.PodSets[p].Count) * quota.Amount(count)
			}
		}
		if z.IsWithinCapacity(o.Usage) {
			options = append(options, o)
		}
	}
	item.Options = options
	return item
}
