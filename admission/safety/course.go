package safety

import (
	"slices"

	"github.com/tranche-dev/tranche/admission/flavor"
	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/admission/stageplan"
)

// An Outline is what of a plan decides how much is held at once. It does not change.
type Outline struct {
	plan     *stageplan.Plan
	segments [][]int
	// before tells whether one stage finishes before another begins.
	before [][]bool
}

// NewOutline returns the outline of a plan.
func NewOutline(plan *stageplan.Plan) *Outline {
	return &Outline{plan: plan, segments: plan.HoldSegments(), before: plan.Precedence()}
}

// A Course is how far a JobSet has come with its plan. The slices go by stage.
type Course struct {
	Outline *Outline
	// Held is what a stage holds, or nil if it is not admitted. One that is admitted and needs no quota holds an empty usage.
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
	held := quota.Usage{}
	held.AddAll(after.Held[stage])
	held.AddAll(usage)
	after.Held[stage] = held
	return &after
}

// HeldNow is what all stages hold.
func (c *Course) HeldNow() quota.Usage {
	var held quota.Usage
	for _, u := range c.Held {
		held.AddAll(u)
	}
	return held
}

// Ahead lists the stages that the JobSet may come to hold before it gives everything back: those of the hold segment that it is in.
func (c *Course) Ahead() []int {
	segments := c.Outline.segments
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

// Remaining lists the stages that neither hold quota nor have finished.
func (c *Course) Remaining() []int {
	var remaining []int
	for s := range c.Held {
		if c.Held[s] == nil && !c.Finished[s] {
			remaining = append(remaining, s)
		}
	}
	return remaining
}

// isOutOfTurn tells whether a stage holds quota although another has to finish before it, as after a restart. Then it goes on holding it
// beside whatever comes before its turn.
func (c *Course) isOutOfTurn(s int) bool {
	if c.Held[s] == nil {
		return false
	}
	for a := range c.Held {
		if c.Outline.before[a][s] && !c.Finished[a] {
			return true
		}
	}
	return false
}

// Peaks returns the most that the JobSet may hold at once until it gives everything back, for each combination of flavors. There
// are none if some stage ahead can use no flavor.
func (c *Course) Peaks() []quota.Usage { return c.peaksOf(c.Ahead()) }

// PeaksToTheEnd is Peaks of all that is left of the plan.
func (c *Course) PeaksToTheEnd() []quota.Usage { return c.peaksOf(c.Remaining()) }

// peaksOf returns the peaks of what is held together with the given stages. They do not become more when one of the stages is admitted as
// they foresee.
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
	var outOfTurn quota.Usage
	inTurn := slices.Clone(c.Held)
	for s, held := range c.Held {
		if c.isOutOfTurn(s) {
			outOfTurn.AddAll(held)
			inTurn[s] = nil
		}
	}
	regular := &Course{Outline: c.Outline, Held: inTurn}
	peakOf := regular.peak
	if regular.holdsAllAtOnce(stages) {
		held := regular.HeldNow()
		peakOf = func(items []flavor.Item, _ []int, choice flavor.Choice) quota.Usage {
			peak := held.Clone()
			peak.AddAll(choice.Usage(items))
			return peak
		}
	}
	var peaks []quota.Usage
	// Each look at a choice costs more in a longer plan.
	for choice := range flavor.Choices(items, max(1, flavor.MaxChoices/max(1, len(stages)))) {
		peak := peakOf(items, stageOf, choice)
		peak.AddAll(outOfTurn)
		if !slices.ContainsFunc(peaks, peak.Equal) {
			peaks = append(peaks, peak)
		}
	}
	return peaks
}

// holdsAllAtOnce tells whether none of the given stages, and of those that hold quota, finishes before another of them: then the most that
// they hold is the sum of all.
func (c *Course) holdsAllAtOnce(stages []int) bool {
	counts := func(s int) bool { return c.Held[s] != nil || slices.Contains(stages, s) }
	for a, row := range c.Outline.before {
		for b, isBefore := range row {
			if isBefore && counts(a) && counts(b) {
				return false
			}
		}
	}
	return true
}

// peak is the most that the stages hold at once under a choice, where some finish before others begin.
func (c *Course) peak(items []flavor.Item, stageOf []int, choice flavor.Choice) quota.Usage {
	var ids quota.Usage
	byStage := make([]quota.Usage, len(c.Held))
	for s, held := range c.Held {
		byStage[s] = held.Clone()
		ids.AddAll(held)
	}
	for i := range items {
		usage := items[i].Options[choice[i]].Usage
		byStage[stageOf[i]].AddAll(usage)
		ids.AddAll(usage)
	}
	var peak quota.Usage
	amounts := make([]int64, len(byStage))
	for _, entry := range ids {
		for s := range byStage {
			amounts[s] = int64(byStage[s].Of(entry.ID))
		}
		peak.Add(entry.ID, quota.Amount(stageplan.MostAtOnce(c.Outline.before, amounts)))
	}
	return peak
}
