package model

import (
	"slices"
	"strconv"

	"github.com/tranche-dev/tranche/admission/flavor"
	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/admission/safety"
	"github.com/tranche-dev/tranche/admission/stageplan"
)

// finishedKey returns the set of finished stages as text, which is empty for a JobSet that has not begun. The plan must be known.
func (j *JobSet) finishedKey() string {
	if !j.Continues() {
		return ""
	}
	key := []byte("begun")
	for i, isFinished := range j.Finished() {
		if isFinished {
			key = strconv.AppendInt(append(key, ' '), int64(i), 10)
		}
	}
	return string(key)
}

// attempt returns the latest restart of any quota Workload. Stages that finished in an earlier attempt have to run again.
func (j *JobSet) attempt() int {
	latest := 0
	for _, s := range j.Members {
		latest = max(latest, s.Attempt)
	}
	return latest
}

// Finished reports, for each stage, whether it has finished and does not run again in this attempt. The plan must be known.
func (j *JobSet) Finished() []bool {
	done, open := make([]bool, len(j.Plan.Stages)), make([]bool, len(j.Plan.Stages))
	attempt := j.attempt()
	for _, s := range j.Members {
		switch {
		case s.Index < 0 || s.Index >= len(done):
		case s.Entry.Phase == Finished && s.Attempt == attempt:
			done[s.Index] = true
		case !s.IsGrowth: // growths are extra pods, not part of the plan
			open[s.Index] = true
		}
	}
	for i := range done {
		done[i] = done[i] && !open[i]
	}
	for _, s := range j.Members {
		if s.Index >= 0 && s.Index < len(done) && s.Attempt == attempt && s.ClosedBy == nil && s.Entry.IsCharged() {
			j.addWaitedFor(done, s.Index)
		}
	}
	return done
}

// addWaitedFor adds the stages that must have succeeded before a stage was opened. Their quota Workloads may say otherwise, if they were deleted
// and recreated: the running stage has still been opened in order.
func (j *JobSet) addWaitedFor(done []bool, stage int) {
	for _, c := range j.Plan.Stages[stage].After {
		if c.Status == stageplan.Succeeded && len(c.Targets) == len(j.Plan.Stages[c.Stage].ReplicatedJobs) {
			done[c.Stage] = true
		}
	}
}

// Progress returns the progress of the JobSet. It counts only quota that is held in the given ClusterQueue, and items there. The plan must be
// known.
func (m *Model) Progress(j *JobSet, q *ClusterQueue) *safety.Progress {
	n := j.PlanGraph.Holds()
	c := &safety.Progress{PlanGraph: j.PlanGraph, Held: make([]quota.Usage, n), Finished: make([]bool, n), Items: make([][]flavor.Item, n)}
	for _, s := range j.Members {
		if s.Index >= 0 && s.Index < len(j.Plan.Stages) && s.Entry.Counts() && s.Entry.ClusterQueue == q {
			for h, usage := range j.UsageByHold(s.Index, s.Entry.Usage, s.charge().Parts) {
				held := quota.Usage{}
				held.AddAll(c.Held[h])
				held.AddAll(usage)
				c.Held[h] = held
			}
			j.noteSucceeded(s, c)
		}
	}
	for stage, isFinished := range j.Finished() {
		holds := j.PlanGraph.HoldsOf(stage)
		if c.Held[holds[0]] != nil {
			continue
		}
		for _, h := range holds {
			c.Finished[h] = isFinished
		}
		if !isFinished {
			j.addItems(c, stage, m.Offer(j.Stages[stage], q).Items)
		}
	}
	return c
}

// addItems adds the items of a stage to its Holds. There are none if no flavor fits one of its pod sets.
func (j *JobSet) addItems(c *safety.Progress, stage int, items []flavor.Item) {
	if items == nil {
		return
	}
	for _, h := range j.PlanGraph.HoldsOf(stage) {
		c.Items[h] = []flavor.Item{}
	}
	for _, item := range items {
		h := j.PlanGraph.HoldOf(stage, item.PodSet)
		c.Items[h] = append(c.Items[h], item)
	}
}

// UsageByHold divides the charge of a stage among its Holds. Without parts all of it counts for the Hold that lasts longest.
func (j *JobSet) UsageByHold(stage int, usage quota.Usage, parts []PodSetCharge) map[int]quota.Usage {
	holds := j.PlanGraph.HoldsOf(stage)
	usages := map[int]quota.Usage{}
	for _, h := range holds {
		usages[h] = quota.Usage{}
	}
	if !j.PlanGraph.IsDivided(stage) || parts == nil {
		usages[j.PlanGraph.LongestHold(stage)] = usage
		return usages
	}
	for _, part := range parts {
		h := holds[max(0, j.podSet(stage, part.PodSet))]
		usage := usages[h]
		usage.AddAll(part.Usage)
		usages[h] = usage
	}
	return usages
}

// PodSet returns the index of a pod set in a stage of the plan, or a negative number.
func (j *JobSet) podSet(stage int, name string) int {
	return slices.IndexFunc(j.Plan.Stages[stage].PodSets, func(p stageplan.PodSet) bool { return p.Name == name })
}

// noteSucceeded marks the Holds of a stage whose pods are all reclaimable: their ReplicatedJobs have succeeded.
func (j *JobSet) noteSucceeded(s *Stage, c *safety.Progress) {
	if !j.PlanGraph.IsDivided(s.Index) || s.IsGrowth {
		return
	}
	holds := j.PlanGraph.HoldsOf(s.Index)
	for _, h := range holds {
		c.Finished[h] = true
	}
	for i, h := range holds {
		needed := func(p flavor.PodSet) bool { return p.Name == j.Plan.Stages[s.Index].PodSets[i].Name && p.Count > 0 }
		if slices.ContainsFunc(s.Demand.PodSets, needed) {
			c.Finished[h] = false
		}
	}
}
