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
	// Without tooFew they do not fit; without fewer they do, if that is not more than there are.
	tooFew, fewer := int64(0), most+1
	for fewer-tooFew > 1 {
		if middle := tooFew + (fewer-tooFew)/2; e.fitsWithout(l, whole, middle, most) {
			fewer = middle
		} else {
			tooFew = middle
		}
	}
	return fewer <= most && e.fitsWithout(l, whole, fewer, most)
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
	choice := make(flavor.Choice, len(items))
	walk := flavor.Walk{Node: l.q.node, Fungibility: l.q.fungibility}
	verdict := walk.Choose(items, choice)
	if verdict.Mode != flavor.Fit {
		return false
	}
	l.podSets, l.items, l.choice, l.usage, l.level = podSets, items, choice, choice.Usage(items), verdict.Level
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
	if lack != nil || len(e.aboveMost(l.q, make(flavor.Choice, len(items)).Usage(items))) > 0 {
		return false
	}
	l.items = items
	return true
}

// supply is what a ClusterQueue has to choose from.
func (e *Engine) supply(q *clusterQueue) flavor.Supply {
	return flavor.Supply{Groups: q.flavorGroups, Index: e.tree.Index, Most: func(id quota.ID) quota.Amount { return q.node.Most(id) }}
}
