package safety

import (
	"maps"
	"slices"

	"github.com/tranche-dev/tranche/admission/flavor"
	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/admission/stageplan"
)

// A Course is how far a JobSet has come with its plan. The slices go by stage.
type Course struct {
	Plan *stageplan.Plan
	// Held is what a stage holds, or nil if it holds nothing.
	Held []quota.Usage
	// Finished stages neither hold nor will.
	Finished []bool
	// Items of the stages that neither hold quota nor have finished.
	Items [][]flavor.Item
}

// With returns the course after a stage has been admitted with this usage.
func (c *Course) With(stage int, usage quota.Usage) *Course {
	after := *c
	after.Held = slices.Clone(c.Held)
	if old := after.Held[stage]; old != nil {
		usage = maps.Clone(usage)
		usage.AddAll(old)
	}
	after.Held[stage] = usage
	return &after
}

// HeldNow is what all stages hold.
func (c *Course) HeldNow() quota.Usage {
	held := quota.Usage{}
	for _, u := range c.Held {
		held.AddAll(u)
	}
	return held
}

// Ahead lists the stages that the JobSet may come to hold before it gives everything back: those of the hold segment that it is in.
func (c *Course) Ahead() []int {
	ahead, _ := c.ahead()
	return ahead
}

// Remaining lists the stages that neither hold quota nor have finished.
func (c *Course) Remaining() []int {
	var remaining []int
	for s := range c.Plan.Stages {
		if c.Held[s] == nil && !c.Finished[s] {
			remaining = append(remaining, s)
		}
	}
	return remaining
}

// ahead also tells whether a stage holds quota out of turn, as after a restart: then nothing is known about what ends before what.
func (c *Course) ahead() (stages []int, outOfTurn bool) {
	segments := c.Plan.HoldSegments()
	last := -1
	for k, segment := range segments {
		if slices.ContainsFunc(segment, func(s int) bool { return c.Held[s] != nil }) {
			last = k
		}
	}
	for _, segment := range segments[:last+1] {
		unfinished := slices.DeleteFunc(slices.Clone(segment), func(s int) bool { return c.Finished[s] })
		outOfTurn = outOfTurn || len(unfinished) > 0 && segment[0] != segments[last][0]
		stages = append(stages, slices.DeleteFunc(unfinished, func(s int) bool { return c.Held[s] != nil })...)
	}
	return stages, outOfTurn
}

// Peaks returns the most that the JobSet may hold at once until it gives everything back, for each combination of flavors. There
// are none if some stage ahead can use no flavor.
func (c *Course) Peaks() []quota.Usage {
	stages, outOfTurn := c.ahead()
	if outOfTurn {
		held := c.HeldNow()
		free := &Course{Plan: c.Plan, Held: make([]quota.Usage, len(c.Held)), Finished: c.Finished, Items: c.Items}
		peaks := free.peaksOf(stages)
		for _, p := range peaks {
			p.AddAll(held)
		}
		return peaks
	}
	return c.peaksOf(stages)
}

// PeaksToTheEnd is Peaks of all that is left of the plan.
func (c *Course) PeaksToTheEnd() []quota.Usage { return c.peaksOf(c.Remaining()) }

// peaksOf returns the peaks of what is held together with the given stages.
func (c *Course) peaksOf(stages []int) []quota.Usage {
	var items []flavor.Item
	var stageOf []int
	for _, s := range stages {
		if c.Items[s] == nil {
			return nil
		}
		for _, item := range c.Items[s] {
			items = append(items, item)
			stageOf = append(stageOf, s)
		}
	}
	var peaks []quota.Usage
	for choice := range flavor.Choices(items, flavor.MaxChoices) {
		peak := c.peak(items, stageOf, choice)
		if !slices.ContainsFunc(peaks, func(p quota.Usage) bool { return maps.Equal(p, peak) }) {
			peaks = append(peaks, peak)
		}
	}
	return peaks
}

func (c *Course) peak(items []flavor.Item, stageOf []int, choice flavor.Choice) quota.Usage {
	byResource := map[quota.FlavorResource][]int64{}
	add := func(stage int, fr quota.FlavorResource, a quota.Amount) {
		if byResource[fr] == nil {
			byResource[fr] = make([]int64, len(c.Plan.Stages))
		}
		byResource[fr][stage] = int64(quota.Amount(byResource[fr][stage]).Plus(a))
	}
	for s, held := range c.Held {
		for fr, a := range held {
			add(s, fr, a)
		}
	}
	for i := range items {
		for name, a := range items[i].Request {
			add(stageOf[i], quota.FlavorResource{Flavor: items[i].Options[choice[i]], Resource: name}, a)
		}
	}
	peak := quota.Usage{}
	for fr, amounts := range byResource {
		peak[fr] = quota.Amount(c.Plan.MostHeld(amounts))
	}
	return peak
}
