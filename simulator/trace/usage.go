package trace

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/admission/stageplan"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/simulator/replay"
)

// An Idle is quota that is held and that no pod uses, times seconds, by cause.
type Idle struct {
	// NotReady is held by pods that have started and are not ready yet.
	NotReady float64 `json:"notReady"`
	// WaitsForStage is held by pods that are ready, while a stage that they open does not run yet.
	WaitsForStage float64 `json:"waitsForStage"`
	// NotRunning is held for pods that have not started, or that have ended.
	NotRunning float64 `json:"notRunning"`
}

// Sum is what all causes have together.
func (i *Idle) Sum() float64 { return i.NotReady + i.WaitsForStage + i.NotRunning }

// A Step is the quota that is held, and the part of it that pods use, from a time on, in seconds after the first submission.
type Step struct{ At, Held, Used float64 }

// A usage adds up what jobs hold and use of a resource.
type usage struct {
	begin    time.Time
	resource corev1.ResourceName
	held     float64
	used     float64
	idle     Idle
	changes  []Step
}

// add adds a job.
func (u *usage) add(result *replay.Result) {
	for i := range result.Holdings {
		h := &result.Holdings[i]
		u.held += u.change(h.From, h.To, h.Held[u.resource], 0)
	}
	plan, err := stageplan.New(&result.JobSet.Spec)
	if err != nil {
		return // it is left out
	}
	for i := range result.Executions {
		e := &result.Executions[i]
		amount := u.amountOf(plan, result.JobSet, e.ReplicatedJob)
		if e.Ready.IsZero() {
			u.idle.NotReady += amount * e.Ended.Sub(e.Started).Seconds()
			continue
		}
		u.idle.NotReady += amount * e.Ready.Sub(e.Started).Seconds()
		busy := busyFrom(e, plan, result.Executions)
		u.idle.WaitsForStage += amount * busy.Sub(e.Ready).Seconds()
		u.used += u.change(busy, e.Ended, 0, amount)
	}
}

// change notes an amount that is held or used for some time, and returns it times seconds.
func (u *usage) change(from, to time.Time, held, used float64) float64 {
	start, end := from.Sub(u.begin).Seconds(), to.Sub(u.begin).Seconds()
	if held+used > 0 && end > start {
		u.changes = append(u.changes, Step{start, held, used}, Step{end, -held, -used})
	}
	return (held + used) * max(0, end-start)
}

// amountOf returns how much the pods of each Job of a ReplicatedJob ask for.
func (u *usage) amountOf(plan *stageplan.Plan, js *jobsetapi.JobSet, replicatedJob string) float64 {
	for i := range plan.Stages {
		for j := range plan.Stages[i].PodSets {
			if podSet := &plan.Stages[i].PodSets[j]; podSet.Name == replicatedJob {
				return amountOf(podSet, u.resource) / float64(replicasOf(js, replicatedJob))
			}
		}
	}
	return 0
}

// replicasOf returns how many Jobs a ReplicatedJob has.
func replicasOf(js *jobsetapi.JobSet, replicatedJob string) int32 {
	i := slices.IndexFunc(js.Spec.ReplicatedJobs, func(r jobsetapi.ReplicatedJob) bool { return r.Name == replicatedJob })
	return max(1, js.Spec.ReplicatedJobs[i].Replicas)
}

// amountOf returns how much all pods of a ReplicatedJob ask for.
func amountOf(podSet *stageplan.PodSet, name corev1.ResourceName) float64 {
	quantity := podSet.Requests[name]
	return quantity.AsApproximateFloat64() * float64(podSet.Count)
}

// busyFrom returns since when all stages have run that the readiness of a Job opens. It is the end of the Job if one of them does not run before that.
func busyFrom(e *replay.Execution, plan *stageplan.Plan, all []replay.Execution) time.Time {
	busy := e.Ready
	for i := range plan.Stages {
		stage := &plan.Stages[i]
		if !slices.ContainsFunc(stage.After, func(c stageplan.Condition) bool {
			return c.Status == stageplan.Ready && slices.Contains(c.Targets, e.ReplicatedJob)
		}) {
			continue
		}
		runs := e.Ended
		for j := range all {
			if slices.Contains(stage.ReplicatedJobs, all[j].ReplicatedJob) && all[j].Ended.After(e.Ready) && all[j].Started.Before(runs) {
				runs = all[j].Started
			}
		}
		if runs.After(busy) {
			busy = runs
		}
	}
	return busy
}

// curve returns what is held and used over time: a step for each change.
func (u *usage) curve() []Step {
	slices.SortStableFunc(u.changes, func(a, b Step) int { return cmp.Compare(a.At, b.At) })
	var steps []Step
	now := Step{}
	for _, c := range u.changes {
		now = Step{c.At, now.Held + c.Held, now.Used + c.Used}
		if last := len(steps) - 1; last >= 0 && steps[last].At == c.At {
			steps[last] = now
			continue
		}
		steps = append(steps, now)
	}
	return slices.CompactFunc(steps, func(a, b Step) bool { return a.Held == b.Held && a.Used == b.Used })
}

// Mean returns what is held and used in the mean of a time, in seconds.
func Mean(curve []Step, from, to float64) (held, used float64) {
	for i := range curve {
		end := to
		if i+1 < len(curve) {
			end = min(to, curve[i+1].At)
		}
		if seconds := end - max(from, curve[i].At); seconds > 0 {
			held += curve[i].Held * seconds
			used += curve[i].Used * seconds
		}
	}
	return held / (to - from), used / (to - from)
}
