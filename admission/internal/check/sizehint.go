package check

import (
	"slices"

	"github.com/tranche-dev/tranche/admission/flavor"
	"github.com/tranche-dev/tranche/admission/internal/demand"
	"github.com/tranche-dev/tranche/admission/internal/settings"
	"github.com/tranche-dev/tranche/admission/internal/sizehint"
	"github.com/tranche-dev/tranche/admission/quota"
)

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
	return l.HasPlan() && l.Policy != settings.Greedy && !l.JobSet.Continues()
}

func (ck *Checker) findLargest(l *Candidate) string {
	z := &sizehint.Search{IsWithinCapacity: l.Queue.WithinCapacity, PodSets: l.PodSets, Suits: func(items []flavor.Item) bool { return isWithinMost(l.Queue, items) }}
	if l.isJudgedWhole() {
		z.PodSets, z.Suits = ck.wholePlan(l)
	}
	supply := ck.m.Supply(l.Queue)
	supply.Most = func(quota.ID) quota.Amount { return quota.MaxAmount }
	items, lack := supply.Items(z.PodSets)
	if lack != nil {
		return ""
	}
	z.Items = items
	return z.Text()
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
