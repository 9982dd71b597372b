package simulator

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/simulator/internal/cluster"
)

// This file lets the controllers and the engine take turns, so that events happen, and writes fail, between any two of their steps. A
// scenario cannot say in which order they do. So a counter-example has their steps as comments, and as a scenario it only comes near.

// steps returns the work that is due, one move for each object of each controller, and the ends that a manager may have in the middle of it.
func (x *situation) steps() []move {
	x.divideWork()
	var all []move
	step := func(text string, kind adversity, do func(*situation)) {
		all = append(all, move{"# " + text + "\n", kind, do, true})
	}
	for _, key := range slices.SortedFunc(maps.Keys(x.WorkloadQueue.Changed), cluster.CompareKeys) {
		step("the manager reconciles quota Workload "+key.Name, none, func(x *situation) {
			delete(x.WorkloadQueue.Changed, key)
			if w := x.Workloads[key]; w != nil {
				x.ReconcileWorkload(key, w)
			}
		})
	}
	for _, uid := range slices.Sorted(maps.Keys(x.JobQueue)) {
		job := x.Jobs[uid]
		if job == nil {
			delete(x.JobQueue, uid)
			continue
		}
		step("the Job controller reconciles "+jobName(job), none, func(x *situation) {
			delete(x.JobQueue, uid)
			x.jobController.Reconcile(x.Jobs[uid])
		})
	}
	for _, key := range slices.SortedFunc(maps.Keys(x.jobSetWork), cluster.CompareKeys) {
		step("the JobSet controller reconciles "+key.Name, none, func(x *situation) {
			delete(x.jobSetWork, key)
			if js := x.JobSets[key]; js != nil {
				x.jobSetController.Reconcile(js)
			}
		})
	}
	x.managerSteps(step)
	x.engineSteps(step)
	return all
}

// managerSteps are the reconciles of JobSets: one that succeeds, and those that read a stale cache, of which a write fails, or that a crash cuts.
func (x *situation) managerSteps(step func(text string, kind adversity, do func(*situation))) {
	for _, key := range slices.SortedFunc(maps.Keys(x.stageWork), cluster.CompareKeys) {
		step("the manager reconciles JobSet "+key.Name, none, func(x *situation) {
			delete(x.stageWork, key)
			x.ReconcileJobSet(key)
		})
		for _, stale := range x.Changed(key) {
			step(fmt.Sprintf("the manager reconciles JobSet %s, and its cache lacks the last change of %s", key.Name, stale), lags, func(x *situation) {
				x.ReconcileStale(key, stale) // the event is still to come, so the JobSet stays queued
			})
		}
		writes := x.writesFor(key)
		for n := range writes {
			fail := func(why string, losesAnswer bool) {
				step(fmt.Sprintf("the manager reconciles JobSet %s, and its write after %d writes fails: %s", key.Name, n, why), faults, func(x *situation) {
					delete(x.stageWork, key)
					x.FailsAfter, x.LosesAnswer = x.Writes+n, losesAnswer
					x.ReconcileJobSet(key)
					x.FailsAfter = -1
				})
			}
			fail("conflict", false)
			fail("the answer is lost", true)
		}
		for n := range writes {
			step(fmt.Sprintf("the manager reconciles JobSet %s, and dies after %d writes\ncrash writes=%[2]d", key.Name, n), crashes, func(x *situation) {
				delete(x.stageWork, key)
				x.DiesAfter = x.Writes + n
				x.ReconcileJobSet(key)
				x.DiesAfter = -1
				x.forgetDecisions()
			})
		}
	}
}

// divideWork gives the JobSets that have changed to both controllers of JobSets.
func (x *situation) divideWork() {
	x.JobSetQueue.Wake(x.Now)
	for key := range x.JobSetQueue.Changed {
		x.jobSetWork[key], x.stageWork[key] = true, true
	}
	clear(x.JobSetQueue.Changed)
	x.WorkloadQueue.Wake(x.Now)
}

// writesFor returns how many writes the next Step for a JobSet has.
func (x *situation) writesFor(key admission.StageKey) int {
	if x.left[crashes] == 0 && x.left[faults] == 0 {
		return 0
	}
	probe := x.copied()
	if err := probe.revive(); err != nil {
		return 0
	}
	probe.ReconcileJobSet(key)
	return probe.Writes - x.Writes
}

func (x *situation) engineSteps(step func(text string, kind adversity, do func(*situation))) {
	switch {
	case len(x.decisions) > 0:
		text := x.decisions[0].String()
		step("the manager writes: "+text, none, func(x *situation) { x.writeNext() })
		if _, _, id := aboutOf(x.decisions[0]); id != 0 {
			step("this write fails: "+text, crashes, func(x *situation) { x.failNext() })
		}
		step("the manager dies before it writes its decisions", crashes, func(x *situation) {
			x.forgetDecisions()
			x.Restart()
		})
	case x.idleAt != len(x.Calls):
		step("the engine decides", none, func(x *situation) {
			x.decisions = x.Decide()
			x.WriteConsumption()
			if len(x.decisions) == 0 {
				x.idleAt = len(x.Calls)
			}
		})
	}
}

func (x *situation) forgetDecisions() { x.decisions, x.idleAt = nil, -1 }

// writeNext writes the first decision. That fails if the quota Workload has been replaced since it was decided, and changes nothing if it has
// finished, since it holds no quota then.
func (x *situation) writeNext() {
	key, uid, id := aboutOf(x.decisions[0])
	if w := x.Workloads[key]; id != 0 && (w == nil || w.UID != uid || cluster.IsFinished(w)) {
		x.failNext()
		return
	}
	d := x.decisions[0]
	x.decisions = x.decisions[1:]
	x.Write(d)
}

// failNext lets the write of the first decision fail.
func (x *situation) failNext() {
	_, _, id := aboutOf(x.decisions[0])
	x.decisions = x.decisions[1:]
	x.Settle(id)
}

// aboutOf returns the quota Workload that a decision is about, and the name of the decision if it has to be settled.
func aboutOf(d admission.Decision) (key admission.StageKey, uid types.UID, id admission.DecisionID) {
	switch d := d.(type) {
	case admission.Admit:
		return d.Stage, d.UID, d.ID
	case admission.Evict:
		return d.Stage, d.UID, d.ID
	case admission.Refuse:
		return d.Stage, d.UID, 0
	}
	return key, uid, id
}
