package check

import (
	"slices"

	"github.com/tranche-dev/tranche/admission/flavor"
	"github.com/tranche-dev/tranche/admission/internal/model"
)

// fitsInPart searches for the largest number of pods that fit now, where pod sets may have fewer than they ask for (KEP-420). If there are
// several such pod sets, each is reduced by the same share of its spare pods.
func (ck *Checker) fitsInPart(l *Candidate) bool {
	most := spare(l.PodSets)
	if most == 0 {
		return false
	}
	whole := l.PodSets
	low, high := int64(1), most+1
	for low < high {
		if middle := low + (high-low)/2; ck.fitsWithout(l, whole, middle, most) {
			high = middle
		} else {
			low = middle + 1
		}
	}
	return low <= most && ck.fitsWithout(l, whole, low, most)
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
func (ck *Checker) fitsWithout(l *Candidate, whole []flavor.PodSet, fewer, most int64) bool {
	podSets := without(whole, fewer, most)
	supply := ck.m.Supply(l.Queue)
	items, infeasibility := supply.Items(podSets)
	if infeasibility != nil {
		return false
	}
	before := l.Items
	l.Items = items
	if !ck.chooseWhatFits(l) {
		l.Items = before
		return false
	}
	l.PodSets = podSets
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
func (ck *Checker) mayFitInPart(l *Candidate) bool {
	most := spare(l.PodSets)
	if most == 0 {
		return false
	}
	supply := ck.m.Supply(l.Queue)
	items, infeasibility := supply.Items(without(l.PodSets, most, most))
	if infeasibility != nil || !isWithinMost(l.Queue, items) {
		return false
	}
	l.Items = items
	return true
}

// waitForPart notes the amounts that are missing for the minimum number of pods. There may be more flavors for these than for all pods.
func (ck *Checker) waitForPart(l *Candidate) {
	whole := l.Items
	if ck.mayFitInPart(l) {
		ck.shortages(l)
	}
	l.Items = whole
}

// isWithinMost reports whether some combination of flavors is within the capacity of a ClusterQueue.
func isWithinMost(q *model.ClusterQueue, items []flavor.Item) bool {
	return slices.ContainsFunc(Choices(items), q.WithinCapacity)
}
