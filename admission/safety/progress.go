package safety

import (
	"cmp"
	"slices"

	"github.com/tranche-dev/tranche/admission/flavor"
	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/admission/stageplan"
)

// A PlanGraph is the part of a plan that determines how much is held at once. It does not change.
type PlanGraph struct {
	// holdOf is the index of the Hold of each pod set, by stage.
	holdOf [][]int
	// segments lists the indexes of the Holds of each hold segment.
	segments [][]int
	// segmentOf has the index of its segment for each stage.
	segmentOf []int
	// before is the Precedence of the Holds.
	before [][]bool
}

// NewPlanGraph returns the outline of a plan.
func NewPlanGraph(plan *stageplan.Plan) *PlanGraph {
	holds := plan.Holds()
	p := &PlanGraph{holdOf: make([][]int, len(plan.Stages)), segmentOf: make([]int, len(plan.Stages)), before: plan.Precedence(holds)}
	for s := range plan.Stages {
		p.holdOf[s] = make([]int, max(1, len(plan.Stages[s].PodSets)))
	}
	for h, hold := range holds {
		for _, i := range hold.PodSets {
			p.holdOf[hold.Stage][i] = h
		}
		if len(hold.PodSets) == 0 {
			p.holdOf[hold.Stage][0] = h
		}
	}
	for k, segment := range plan.HoldSegments() {
		var inSegment []int
		for h, hold := range holds {
			if slices.Contains(segment, hold.Stage) {
				inSegment = append(inSegment, h)
			}
		}
		p.segments = append(p.segments, inSegment)
		for _, s := range segment {
			p.segmentOf[s] = k
		}
	}
	return p
}

// Holds returns the number of Holds.
func (p *PlanGraph) Holds() int { return len(p.before) }

// HoldOf returns the index of the Hold of a pod set. A stage without pod sets has one Hold, of its pod set 0.
func (p *PlanGraph) HoldOf(stage, podSet int) int { return p.holdOf[stage][podSet] }

// HoldsOf lists the Holds of the pod sets of a stage.
func (p *PlanGraph) HoldsOf(stage int) []int { return p.holdOf[stage] }

// IsDivided is true if a stage has several Holds.
func (p *PlanGraph) IsDivided(stage int) bool {
	holds := p.holdOf[stage]
	return slices.ContainsFunc(holds, func(h int) bool { return h != holds[0] })
}

// LongestHold returns the Hold of a stage that precedes the fewest other Holds.
func (p *PlanGraph) LongestHold(stage int) int {
	later := func(h int) (n int) {
		for _, isBefore := range p.before[h] {
			if isBefore {
				n++
			}
		}
		return n
	}
	return slices.MinFunc(p.holdOf[stage], func(a, b int) int { return cmp.Compare(later(a), later(b)) })
}

// Segment returns the index of the hold segment that a stage belongs to.
func (p *PlanGraph) Segment(stage int) int { return p.segmentOf[stage] }

// A Progress is the progress of a JobSet in its plan. The slices are indexed by Hold: see stageplan.Hold.
type Progress struct {
	PlanGraph *PlanGraph
	// Held is the charge of a Hold, or nil if its stage is not admitted. An admitted Hold that needs no quota has an empty usage.
	Held []quota.Usage
	// Finished Holds will get no more quota: their stage has finished, or the ReplicatedJobs of the Hold have succeeded.
	Finished []bool
	// Items of the Holds whose stages neither hold quota nor have finished.
	Items [][]flavor.Item
}

// With returns the progress after a stage has been admitted with these usages of its Holds.
func (c *Progress) With(usages map[int]quota.Usage) *Progress {
	after := *c
	after.Held = slices.Clone(c.Held)
	for h, usage := range usages {
		held := quota.Usage{}
		held.AddAll(after.Held[h])
		held.AddAll(usage)
		after.Held[h] = held
	}
	return &after
}

// HeldNow returns the sum of what all stages hold.
func (c *Progress) HeldNow() quota.Usage {
	var held quota.Usage
	for _, u := range c.Held {
		held.AddAll(u)
	}
	return held
}

// Ahead lists the Holds that the JobSet may come to have before it releases everything: those of its current hold segment.
func (c *Progress) Ahead() []int {
	segments := c.PlanGraph.segments
	last := -1
	for k, segment := range segments {
		if slices.ContainsFunc(segment, func(s int) bool { return c.Held[s] != nil }) {
			last = k
		}
	}
	var ahead []int
	for _, segment := range segments[:last+1] {
		for _, s := range segment {
			if c.Held[s] == nil && !c.Finished[s] {
				ahead = append(ahead, s)
			}
		}
	}
	return ahead
}

// Remaining lists the Holds that have no quota and have not finished.
func (c *Progress) Remaining() []int {
	var remaining []int
	for s := range c.Held {
		if c.Held[s] == nil && !c.Finished[s] {
			remaining = append(remaining, s)
		}
	}
	return remaining
}

// isOutOfTurn is true if a Hold has quota although another has to finish before it, as after a restart. Then it keeps the quota beside all that
// precedes it.
func (c *Progress) isOutOfTurn(s int) bool {
	if c.Held[s] == nil {
		return false
	}
	for a := range c.Held {
		if c.PlanGraph.before[a][s] && !c.Finished[a] {
			return true
		}
	}
	return false
}

// Peaks returns the most that the JobSet may hold at once until it releases everything, for each combination of flavors. There are none if some
// stage ahead fits no flavor.
func (c *Progress) Peaks() []quota.Usage { return c.peaksOf(c.Ahead()) }

// PeaksToTheEnd returns the peaks of the rest of the plan.
func (c *Progress) PeaksToTheEnd() []quota.Usage { return c.peaksOf(c.Remaining()) }

// PeaksWith returns the peaks of the held quota together with that of some stages. There are none if one of them fits no flavor.
func (c *Progress) PeaksWith(stages []int) []quota.Usage {
	var holds []int
	for _, s := range stages {
		for _, h := range c.PlanGraph.HoldsOf(s) {
			if !slices.Contains(holds, h) && c.Held[h] == nil && !c.Finished[h] {
				holds = append(holds, h)
			}
		}
	}
	return c.peaksOf(holds)
}

// Holds reports whether a stage holds quota.
func (c *Progress) Holds(stage int) bool {
	return slices.ContainsFunc(c.PlanGraph.HoldsOf(stage), func(h int) bool { return c.Held[h] != nil })
}

// HasFinished reports whether a stage will get no more quota.
func (c *Progress) HasFinished(stage int) bool {
	return !slices.ContainsFunc(c.PlanGraph.HoldsOf(stage), func(h int) bool { return !c.Finished[h] })
}

// peaksOf returns the peaks of the held quota together with the given Holds. They do not grow when a stage is admitted as they assume.
func (c *Progress) peaksOf(holds []int) []quota.Usage {
	var items []flavor.Item
	var holdOf []int
	for _, h := range holds {
		if c.Items[h] == nil {
			return nil
		}
		for _, item := range c.Items[h] {
			items = append(items, item)
			holdOf = append(holdOf, h)
		}
	}
	var outOfTurn quota.Usage
	inTurn := slices.Clone(c.Held)
	for s, held := range c.Held {
		if c.isOutOfTurn(s) {
			outOfTurn.AddAll(held)
			inTurn[s] = nil
		}
	}
	regular := &Progress{PlanGraph: c.PlanGraph, Held: inTurn}
	peakOf := regular.peak
	if regular.holdsAllAtOnce(holds) {
		held := regular.HeldNow()
		peakOf = func(items []flavor.Item, _ []int, choice flavor.Choice) quota.Usage {
			peak := held.Clone()
			peak.AddAll(choice.Usage(items))
			return peak
		}
	}
	var peaks []quota.Usage
	// Each choice costs more time in a longer plan.
	for choice := range flavor.Choices(items, max(1, flavor.MaxChoices/max(1, len(holds)))) {
		peak := peakOf(items, holdOf, choice)
		peak.AddAll(outOfTurn)
		if !slices.ContainsFunc(peaks, peak.Equal) {
			peaks = append(peaks, peak)
		}
	}
	return peaks
}

// holdsAllAtOnce is true if none of the given Holds, and of those that have quota, finishes before another of them: then the peak is the sum of
// all.
func (c *Progress) holdsAllAtOnce(holds []int) bool {
	counts := func(h int) bool { return c.Held[h] != nil || slices.Contains(holds, h) }
	for a, row := range c.PlanGraph.before {
		for b, isBefore := range row {
			if isBefore && counts(a) && counts(b) {
				return false
			}
		}
	}
	return true
}

// peak returns the most that is held at once under a choice, where some Holds are released before others begin.
func (c *Progress) peak(items []flavor.Item, holdOf []int, choice flavor.Choice) quota.Usage {
	var ids quota.Usage
	byHold := make([]quota.Usage, len(c.Held))
	for h, held := range c.Held {
		byHold[h] = held.Clone()
		ids.AddAll(held)
	}
	for i := range items {
		usage := items[i].Options[choice[i]].Usage
		byHold[holdOf[i]].AddAll(usage)
		ids.AddAll(usage)
	}
	var peak quota.Usage
	amounts := make([]quota.Amount, len(byHold))
	for _, entry := range ids {
		for h := range byHold {
			amounts[h] = byHold[h].Of(entry.ID)
		}
		peak.Add(entry.ID, stageplan.MostAtOnce(c.PlanGraph.before, amounts))
	}
	return peak
}
