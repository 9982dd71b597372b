package admission

import (
	"slices"

	"github.com/tranche-dev/tranche/admission/flavor"
	"github.com/tranche-dev/tranche/admission/quota"
)

// fitsInPart searches for the largest number of pods that fit now, where pod sets may have fewer than they ask for (KEP-420). If there are
// several such pod sets, each is reduced by the same share of its spare pods.
func (e *Engine) fitsInPart(l *candidate) bool {
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

// spare returns how many pods the pod sets can do without.
func spare(podSets []flavor.PodSet) int64 {
	var total int64
	for i := range podSets {
		if podSets[i].Min > 0 {
			total += int64(max(0, podSets[i].Count-podSets[i].Min))
		}
	}
	return total
}

// fitsWithout reports whether the pod sets fit without some of their spare pods, and if so selects that size.
func (e *Engine) fitsWithout(l *candidate, whole []flavor.PodSet, fewer, most int64) bool {
	podSets := without(whole, fewer, most)
	supply := e.supply(l.q)
	items, infeasibility := supply.Items(podSets)
	if infeasibility != nil {
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

// mayFitInPart reports whether the minimum number of pods is within capacity. Then the stage waits for quota for these.
func (e *Engine) mayFitInPart(l *candidate) bool {
	most := spare(l.podSets)
	if most == 0 {
		return false
	}
	supply := e.supply(l.q)
	items, infeasibility := supply.Items(without(l.podSets, most, most))
	if infeasibility != nil || !l.q.isWithinMost(items) {
		return false
	}
	l.items = items
	return true
}

// waitForPart notes the amounts that are missing for the minimum number of pods. There may be more flavors for these than for all pods.
func (e *Engine) waitForPart(l *candidate) {
	whole := l.items
	if e.mayFitInPart(l) {
		e.shortages(l)
	}
	l.items = whole
}

// supply returns the flavors and quotas of a ClusterQueue.
func (e *Engine) supply(q *clusterQueue) flavor.Supply {
	return flavor.Supply{Groups: q.flavorGroups, Index: e.tree.Index, Most: func(id quota.ID) quota.Amount { return q.node.Capacity(id) }}
}
