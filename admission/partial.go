package admission

import (
	"slices"

	"github.com/tranche-dev/tranche/admission/flavor"
	"github.com/tranche-dev/tranche/admission/quota"
)

// fitsInPart looks for the largest number of pods that fit now, where pod sets may have fewer than they ask for (KEP-420). Of several
// such pod sets each gives up the same share of what it can spare.
func (e *Engine) fitsInPart(l *look) bool {
	most := spare(l.podSets)
	if most == 0 {
		return false
	}
	whole := l.podSets
	low, high := int64(1), most+1
	for low < high {
		if middle := low + (high-low)/2; e.fitsWithout(l, whole, middle, most) {
			high = middle
		} else {
			low = middle + 1
		}
	}
	return low <= most && e.fitsWithout(l, whole, low, most)
}

// spare is how many pods the pod sets can do without.
func spare(podSets []flavor.PodSet) int64 {
	var total int64
	for i := range podSets {
		if podSets[i].Min > 0 {
			total += int64(max(0, podSets[i].Count-podSets[i].Min))
		}
	}
	return total
}

// fitsWithout tells whether the pod sets fit without some of the pods that they can spare, and if so takes them.
func (e *Engine) fitsWithout(l *look, whole []flavor.PodSet, fewer, most int64) bool {
	podSets := without(whole, fewer, most)
	supply := e.supply(l.q)
	items, lack := supply.Items(podSets)
	if lack != nil {
		return false
	}
	before := l.items
	l.items = items
	if !e.chooseWhatFits(l) {
		l.items = before
		return false
	}
	l.podSets = podSets
	return true
}

func without(whole []flavor.PodSet, fewer, most int64) []flavor.PodSet {
	podSets := slices.Clone(whole)
	for i := range podSets {
		if p := &podSets[i]; p.Min > 0 && p.Count > p.Min {
			p.Resize(p.Count - int32(int64(p.Count-p.Min)*fewer/most)) //nolint:gosec // not more than Count
		}
	}
	return podSets
}

// mayFitInPart tells whether the fewest pods that are enough could be had if nothing were charged. Then they are what is waited for.
func (e *Engine) mayFitInPart(l *look) bool {
	most := spare(l.podSets)
	if most == 0 {
		return false
	}
	supply := e.supply(l.q)
	items, lack := supply.Items(without(l.podSets, most, most))
	if lack != nil || !l.q.isWithinMost(items) {
		return false
	}
	l.items = items
	return true
}

// waitForPart notes what must be had before the fewest pods that are enough fit. There may be more flavors for these than for all.
func (e *Engine) waitForPart(l *look) {
	whole := l.items
	if e.mayFitInPart(l) {
		e.shortages(l)
	}
	l.items = whole
}

// supply is what a ClusterQueue has to choose from.
func (e *Engine) supply(q *clusterQueue) flavor.Supply {
	return flavor.Supply{Groups: q.flavorGroups, Index: e.tree.Index, Most: func(id quota.ID) quota.Amount { return q.node.Most(id) }}
}
