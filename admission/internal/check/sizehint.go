package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/admission/flavor"
	"github.com/tranche-dev/tranche/admission/internal/demand"
	"github.com/tranche-dev/tranche/admission/internal/model"
	"github.com/tranche-dev/tranche/admission/internal/settings"
	"github.com/tranche-dev/tranche/admission/quota"
)

// A sizeSearch searches for the pod sets of which a single one has to be smaller, so that all would fit a ClusterQueue if nothing were charged.
type sizeSearch struct {
	queue   *model.ClusterQueue
	podSets []flavor.PodSet
	// items of the pod sets, with all flavors that fit them, whatever their quota.
	items []flavor.Item
	// suits reports whether some combination of flavors for items is feasible. Each option alone is within capacity.
	suits func(items []flavor.Item) bool
}

// largest returns the size hint for a stage that can never fit: the number of pods of one pod set with which the JobSet, where it is judged as a
// whole, or else the stage would fit. It is empty if there is no such number. The result is cached because it is expensive and many may ask.
func (ck *Checker) largest(l *Candidate) string {
	known := &ck.m.Offer(l.Stage.Demand, l.Queue).SizeHint
	if l.isJudgedWhole() {
		known = &l.JobSet.SizeHint
	}
	if known.Node != l.Queue.Node || known.Revision != ck.m.Schedule.Revision {
		*known = demand.SizeHint{Node: l.Queue.Node, Revision: ck.m.Schedule.Revision, Text: ck.findLargest(l)}
	}
	return known.Text
}

// largestWhole returns the hint only for a JobSet that has not begun. Otherwise the finished stages would count, too.
func (ck *Checker) largestWhole(l *Candidate) string {
	if !l.isJudgedWhole() {
		return ""
	}
	return ck.largest(l)
}

// isJudgedWhole reports whether the whole JobSet has to fit.
func (l *Candidate) isJudgedWhole() bool {
	return l.hasPlan() && l.policy != settings.Greedy && !l.JobSet.Continues()
}

func (ck *Checker) findLargest(l *Candidate) string {
	z := &sizeSearch{queue: l.Queue, podSets: l.PodSets, suits: l.Queue.IsWithinMost}
	if l.isJudgedWhole() {
		z.podSets, z.suits = ck.wholePlan(l)
	}
	supply := ck.m.Supply(l.Queue)
	supply.Most = func(quota.ID) quota.Amount { return quota.MaxAmount }
	items, lack := supply.Items(z.podSets)
	if lack != nil {
		return ""
	}
	z.items = items
	return z.sizeHint()
}

// wholePlan returns the pod sets of all stages of a plan, and a function that reports whether the plan could finish with some items for them.
func (ck *Checker) wholePlan(l *Candidate) (podSets []flavor.PodSet, suits func([]flavor.Item) bool) {
	var holdOf []int
	for s, demand := range l.JobSet.Stages {
		for i := range demand.PodSets {
			holdOf = append(holdOf, l.JobSet.PlanGraph.HoldOf(s, i))
		}
		podSets = append(podSets, demand.PodSets...)
	}
	return podSets, func(items []flavor.Item) bool { return ck.runsToItsEnd(l, items, holdOf) }
}

// runsToItsEnd reports whether a JobSet that has not begun could run all its stages in turn if they had these items.
func (ck *Checker) runsToItsEnd(l *Candidate, items []flavor.Item, holdOf []int) bool {
	c := ck.m.Progress(l.JobSet, l.Queue)
	for h := range c.Items {
		c.Items[h] = []flavor.Item{}
	}
	for _, item := range items {
		h := holdOf[item.PodSet]
		c.Items[h] = append(c.Items[h], item)
	}
	return slices.ContainsFunc(c.PeaksToTheEnd(), l.Queue.WithinCapacity)
}

// maxSized is the number of pod sets up to which the numbers of pods are computed. The cost grows with its square.
const maxSized = 8

// SizeHint names a pod set of which one pod is too large, or up to three pod sets of which each would be enough to make smaller.
func (z *sizeSearch) sizeHint() string {
	const most = 3
	var smaller []string
	for p := range z.podSets {
		podSet := &z.podSets[p]
		if z.isTooLarge(p) {
			return fmt.Sprintf("one pod of %s alone is too large", podSet.Name)
		}
		if len(z.podSets) > maxSized || len(smaller) == most {
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
func (z *sizeSearch) isTooLarge(p int) bool {
	return z.podSets[p].Count > 0 && slices.ContainsFunc(z.items, func(item flavor.Item) bool {
		return item.PodSet == p && len(z.resized(item, p, 1).Options) == 0
	})
}

// largest returns with how many pods of one pod set, less than it has, all pod sets would fit. It is zero if not even one is few enough.
func (z *sizeSearch) largest(p int) int32 {
	low, high := int32(0), z.podSets[p].Count
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
func (z *sizeSearch) fits(p int, count int32) bool {
	items := make([]flavor.Item, len(z.items))
	for i := range z.items {
		items[i] = z.resized(z.items[i], p, count)
		if len(items[i].Options) == 0 {
			return false
		}
	}
	return z.suits(items)
}

// resized returns an item for another number of pods of one pod set, with the options that are within capacity.
func (z *sizeSearch) resized(item flavor.Item, p int, count int32) flavor.Item {
	var options []flavor.Option
	for _, o := range item.Options {
		if item.PodSet == p {
			o.Usage = o.Usage.Clone()
			for i := range o.Usage {
				o.Usage[i].Amount = o.Usage[i].Amount / quota.Amount(z.podSets[p].Count) * quota.Amount(count)
			}
		}
		if z.queue.WithinCapacity(o.Usage) {
			options = append(options, o)
		}
	}
	item.Options = options
	return item
}
