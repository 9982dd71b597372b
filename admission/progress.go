package admission

import (
	"slices"
	"strconv"

	"github.com/tranche-dev/tranche/admission/flavor"
	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/admission/safety"
	"github.com/tranche-dev/tranche/admission/stageplan"
)

// finishedKey returns the set of finished stages as text, which is empty for a JobSet that has not begun. The plan must be known.
func (j *jobSet) finishedKey() string {
	if !j.continues() {
		return ""
	}
	key := []byte("begun")
	for i, isFinished := range j.finished() {
		if isFinished {
			key = strconv.AppendInt(append(key, ' '), int64(i), 10)
		}
	}
	return string(key)
}

// attempt returns the latest restart of any quota Workload. Stages that finished in an earlier attempt have to run again.
func (j *jobSet) attempt() int {
	latest := 0
	for _, s := range j.members {
		latest = max(latest, s.attempt)
	}
	return latest
}

// finished reports, for each stage, whether it has finished and does not run again in this attempt. The plan must be known.
func (j *jobSet) finished() []bool {
	done, open := make([]bool, len(j.plan.Stages)), make([]bool, len(j.plan.Stages))
	attempt := j.attempt()
	for _, s := range j.members {
		switch {
		case s.index < 0 || s.index >= len(done):
		case s.entry.phase == finished && s.attempt == attempt:
			done[s.index] = true
		case !s.isGrowth: // growths are extra pods, not part of the plan
			open[s.index] = true
		}
	}
	for i := range done {
		done[i] = done[i] && !open[i]
	}
	for _, s := range j.members {
		if s.index >= 0 && s.index < len(done) && s.attempt == attempt && s.closed == "" && s.entry.isCharged() {
			j.addWaitedFor(done, s.index)
		}
	}
	return done
}

// addWaitedFor adds the stages that must have succeeded before a stage was opened. Their quota Workloads may say otherwise, if they were deleted
// and recreated: the running stage has still been opened in order.
func (j *jobSet) addWaitedFor(done []bool, stage int) {
	for _, c := range j.plan.Stages[stage].After {
		if c.Status == stageplan.Succeeded && len(c.Targets) == len(j.plan.Stages[c.Stage].ReplicatedJobs) {
			done[c.Stage] = true
		}
	}
}

// progress returns the progress of the JobSet. It counts only quota that is held in the given ClusterQueue, and items there. The plan must be
// known.
func (e *Engine) progress(j *jobSet, q *clusterQueue) *safety.Progress {
	n := j.planGraph.Holds()
	c := &safety.Progress{PlanGraph: j.planGraph, Held: make([]quota.Usage, n), Finished: make([]bool, n), Items: make([][]flavor.Item, n)}
	for _, s := range j.members {
		if s.index >= 0 && s.index < len(j.plan.Stages) && s.entry.isCharged() && s.entry.clusterQueue == q {
			for h, usage := range j.usageByHold(s.index, s.entry.usage, s.charge().parts) {
				held := quota.Usage{}
				held.AddAll(c.Held[h])
				held.AddAll(usage)
				c.Held[h] = held
			}
			j.noteSucceeded(s, c)
		}
	}
	for stage, isFinished := range j.finished() {
		holds := j.planGraph.HoldsOf(stage)
		if c.Held[holds[0]] != nil {
			continue
		}
		for _, h := range holds {
			c.Finished[h] = isFinished
		}
		if !isFinished {
			j.addItems(c, stage, e.offer(j.stages[stage], q).items)
		}
	}
	return c
}

// addItems adds the items of a stage to its Holds. There are none if no flavor fits one of its pod sets.
func (j *jobSet) addItems(c *safety.Progress, stage int, items []flavor.Item) {
	if items == nil {
		return
	}
	for _, h := range j.planGraph.HoldsOf(stage) {
		c.Items[h] = []flavor.Item{}
	}
	for _, item := range items {
		h := j.planGraph.HoldOf(stage, item.PodSet)
		c.Items[h] = append(c.Items[h], item)
	}
}

// usageByHold divides the charge of a stage among its Holds. Without parts all of it counts for the Hold that lasts longest.
func (j *jobSet) usageByHold(stage int, usage quota.Usage, parts []podSetCharge) map[int]quota.Usage {
	holds := j.planGraph.HoldsOf(stage)
	usages := map[int]quota.Usage{}
	for _, h := range holds {
		usages[h] = quota.Usage{}
	}
	if !j.planGraph.IsDivided(stage) || parts == nil {
		usages[j.planGraph.LongestHold(stage)] = usage
		return usages
	}
	for _, part := range parts {
		h := holds[max(0, j.podSet(stage, part.podSet))]
		usage := usages[h]
		usage.AddAll(part.usage)
		usages[h] = usage
	}
	return usages
}

// podSet returns the index of a pod set in a stage of the plan, or a negative number.
func (j *jobSet) podSet(stage int, name string) int {
	return slices.IndexFunc(j.plan.Stages[stage].PodSets, func(p stageplan.PodSet) bool { return p.Name == name })
}

// noteSucceeded marks the Holds of a stage whose pods are all reclaimable: their ReplicatedJobs have succeeded.
func (j *jobSet) noteSucceeded(s *stage, c *safety.Progress) {
	if !j.planGraph.IsDivided(s.index) || s.isGrowth {
		return
	}
	holds := j.planGraph.HoldsOf(s.index)
	for _, h := range holds {
		c.Finished[h] = true
	}
	for i, h := range holds {
		needed := func(p flavor.PodSet) bool { return p.Name == j.plan.Stages[s.index].PodSets[i].Name && p.Count > 0 }
		if slices.ContainsFunc(s.demand.podSets, needed) {
			c.Finished[h] = false
		}
	}
}
