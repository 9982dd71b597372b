package admission

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/admission/flavor"
	"github.com/tranche-dev/tranche/admission/quota"
)

// A sizeSearch searches for the largest numbers of pods with which pod sets would fit a ClusterQueue if nothing were charged.
type sizeSearch struct {
	podSets []flavor.PodSet
	// items of the pod sets, with all flavors that fit them, whatever their quota.
	items []flavor.Item
	most  func(quota.ID) quota.Amount
	// suits reports whether some combination of flavors for items is feasible. Each option alone is within capacity.
	suits func(items []flavor.Item) bool
}

// A sizeHint is a cached size hint. It is valid while the queue and the limits stay the same.
type sizeHint struct {
	queue    *clusterQueue
	revision uint64
	text     string
}

// largest returns the size hint for a stage that can never fit: the numbers of pods with which the JobSet, where it is judged as a whole, or else
// the stage would fit. It is empty if the number of pods is not what prevents that. The result is cached because it is expensive and many may
// ask.
func (e *Engine) largest(l *candidate) string {
	known := &e.offer(l.s.demand, l.q).sizeHint
	if l.isJudgedWhole() {
		known = &l.j.sizeHint
	}
	if known.queue != l.q || known.revision != e.revision {
		*known = sizeHint{l.q, e.revision, e.findLargest(l)}
	}
	return known.text
}

// largestWhole returns the hint only for a JobSet that has not begun. Otherwise the finished stages would count, too.
func (e *Engine) largestWhole(l *candidate) string {
	if !l.isJudgedWhole() {
		return ""
	}
	return e.largest(l)
}

// isJudgedWhole reports whether the whole JobSet has to fit.
func (l *candidate) isJudgedWhole() bool {
	return l.hasPlan() && l.policy != Greedy && !l.j.continues()
}

func (e *Engine) findLargest(l *candidate) string {
	z := &sizeSearch{most: l.q.node.Capacity}
	if l.isJudgedWhole() {
		holds := e.addStages(z, l)
		z.suits = func(items []flavor.Item) bool { return e.runsToItsEnd(l, items, holds) }
	} else {
		z.add(e.supply(l.q), l.podSets)
		z.suits = l.q.isWithinMost
	}
	if z.items == nil {
		return ""
	}
	return z.sizeHint()
}

// addStages adds the pod sets of all stages of a plan, and returns the Hold of each.
func (e *Engine) addStages(z *sizeSearch, l *candidate) (holdOf []int) {
	for s, demand := range l.j.stages {
		if !z.add(e.supply(l.q), demand.podSets) {
			return nil
		}
		for i := range demand.podSets {
			holdOf = append(holdOf, l.j.planGraph.HoldOf(s, i))
		}
	}
	return holdOf
}

// add adds more pod sets. If no flavor fits one of them, whatever their number, it drops all items and returns false.
func (z *sizeSearch) add(supply flavor.Supply, podSets []flavor.PodSet) bool {
	supply.Most = func(quota.ID) quota.Amount { return quota.MaxAmount }
	items, infeasibility := supply.Items(podSets)
	if infeasibility != nil {
		z.items = nil
		return false
	}
	for i := range items {
		items[i].PodSet += len(z.podSets)
	}
	z.items = append(z.items, items...)
	z.podSets = append(z.podSets, podSets...)
	return true
}

// runsToItsEnd reports whether a JobSet that has not begun could run all its stages in turn if they had these items.
func (e *Engine) runsToItsEnd(l *candidate, items []flavor.Item, holdOf []int) bool {
	c := e.progress(l.j, l.q)
	for h := range c.Items {
		c.Items[h] = []flavor.Item{}
	}
	for _, item := range items {
		h := holdOf[item.PodSet]
		c.Items[h] = append(c.Items[h], item)
	}
	return slices.ContainsFunc(c.PeaksToTheEnd(), l.q.withinCapacity)
}

// sizeHint names the pod sets of which a single one has to be smaller, if there are such. If not, it reduces all of them to the same share, and
// then grows each again as far as possible. Beyond a number of pod sets it reports only the share: the full result would be too long to read and
// to compute.
func (z *sizeSearch) sizeHint() string {
	const named, percent = 8, 100
	if p := z.tooLarge(); p != "" {
		return fmt.Sprintf("one pod of %s alone is too large", p)
	}
	if len(z.podSets) > named {
		switch part := z.share(percent); {
		case part > 0:
			return fmt.Sprintf("would fit with %d%% of the pods of each pod set", part)
		case part == 0:
			return "would fit with one pod of each pod set"
		}
	} else if smaller := z.oneSmaller(); len(smaller) > 0 {
		return "would fit with " + strings.Join(smaller, ", or ")
	} else if smaller := z.allSmaller(); len(smaller) > 0 {
		return "would fit with " + strings.Join(smaller, " and ")
	}
	return "would not fit with one pod of each pod set either"
}

// oneSmaller returns the pod sets for which it is enough to make that one alone smaller.
func (z *sizeSearch) oneSmaller() []string {
	const most = 3
	var smaller []string
	for p := range z.podSets {
		counts := z.whole()
		if len(smaller) < most && z.grow(counts, p, 1) && counts[p] < z.podSets[p].Count {
			smaller = append(smaller, z.name(counts, p))
		}
	}
	return smaller
}

// allSmaller returns numbers of pods that fit together and of which none can be larger: each pod set keeps the same share.
func (z *sizeSearch) allSmaller() []string {
	parts := max(1, int64(slices.Max(z.whole())))
	part := z.share(parts)
	if part < 0 {
		return nil
	}
	counts := z.part(part, parts)
	for p := range counts {
		z.grow(counts, p, counts[p])
	}
	var smaller []string
	for p := range counts {
		if counts[p] < z.podSets[p].Count {
			smaller = append(smaller, z.name(counts, p))
		}
	}
	return smaller
}

// tooLarge returns a pod set of which not even one pod would fit, or nothing.
func (z *sizeSearch) tooLarge() string {
	for p := range z.podSets {
		if z.podSets[p].Count > 0 && z.bound(p) < 1 {
			return z.podSets[p].Name
		}
	}
	return ""
}

func (z *sizeSearch) name(counts []int32, p int) string {
	return fmt.Sprintf("at most %d of %d pods of %s", counts[p], z.podSets[p].Count, z.podSets[p].Name)
}

func (z *sizeSearch) whole() []int32 {
	counts := make([]int32, len(z.podSets))
	for p := range counts {
		counts[p] = z.podSets[p].Count
	}
	return counts
}

// share returns the largest number of equal parts of all pod sets that fits. It is negative if not even one pod of each fits.
func (z *sizeSearch) share(parts int64) int64 {
	return largest(0, parts, func(part int64) bool { return z.fits(z.part(part, parts)) })
}

// part returns a share of each pod set, at least one pod.
func (z *sizeSearch) part(part, parts int64) []int32 {
	counts := z.whole()
	for p := range counts {
		counts[p] = min(counts[p], max(1, int32(int64(counts[p])*part/parts))) //nolint:gosec // not more than it was
	}
	return counts
}

// grow sets the number of pods of one pod set to the largest that fits beside the others. It leaves the number unchanged if not even the least
// fits.
func (z *sizeSearch) grow(counts []int32, p int, least int32) bool {
	before := counts[p]
	best := largest(int64(least), int64(min(z.podSets[p].Count, z.bound(p))), func(n int64) bool {
		counts[p] = int32(n) //nolint:gosec // not more than Count
		return z.fits(counts)
	})
	counts[p] = before
	if best >= int64(least) {
		counts[p] = int32(best) //nolint:gosec // not more than Count
		return true
	}
	return false
}

// bound returns how many pods of a pod set would fit if there were no others.
func (z *sizeSearch) bound(p int) int32 {
	bound := z.podSets[p].Count
	for i := range z.items {
		if z.items[i].PodSet == p {
			widest := int32(0)
			for _, o := range z.items[i].Options {
				widest = max(widest, z.room(p, o.Usage))
			}
			bound = min(bound, widest)
		}
	}
	return bound
}

// room returns for how many pods of a pod set there is quota of one flavor.
func (z *sizeSearch) room(p int, usage quota.Usage) int32 {
	room := z.podSets[p].Count
	for _, c := range usage {
		if perPod := c.Amount / quota.Amount(max(1, z.podSets[p].Count)); perPod > 0 {
			room = int32(min(quota.Amount(room), max(0, z.most(c.ID))/perPod)) //nolint:gosec // not more than Count
		}
	}
	return room
}

// fits reports whether the pod sets would fit with these numbers of pods.
func (z *sizeSearch) fits(counts []int32) bool {
	items := slices.Clone(z.items)
	for i := range items {
		item := &items[i]
		p := item.PodSet
		options := item.Options
		item.Options = nil
		for _, o := range options {
			if z.room(p, o.Usage) >= counts[p] {
				o.Usage = resized(o.Usage, z.podSets[p].Count, counts[p])
				item.Options = append(item.Options, o)
			}
		}
		if len(item.Options) == 0 {
			return false
		}
	}
	return z.suits(items)
}

// resized returns the usage for another number of pods.
func resized(u quota.Usage, from, to int32) quota.Usage {
	if from == to {
		return u
	}
	u = u.Clone()
	for i := range u {
		u[i].Amount = u[i].Amount / quota.Amount(from) * quota.Amount(to)
	}
	return u
}

// largest returns the last number from least to most for which isFine holds, or least-1. It holds for all numbers below one for which it holds.
func largest(least, most int64, isFine func(int64) bool) int64 {
	// Often most is the only limit.
	if most >= least && isFine(most) {
		return most
	}
	low, high := least-1, max(most, least)
	for high-low > 1 {
		if middle := low + (high-low)/2; isFine(middle) {
			low = middle
		} else {
			high = middle
		}
	}
	return low
}
