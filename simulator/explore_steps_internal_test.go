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
		who := "the JobSet controller"
		if x.PlainJobs[key] != nil {
			who = "the controller of jobs"
		}
		step(who+" reconciles "+key.Name, none, func(x *situation) {
			delete(x.jobSetWork, key)
			if j := x.PlainJobs[key]; j != nil {
				x.plainJobController.Reconcile(j)
			}
			if js := x.JobSets[key]; js != nil {
				x.jobSetController.Reconcile(js)
			}
		})
	}
	x.managerSteps(step)
	x.gangSteps(step)
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
		x.interrupted("the manager reconciles JobSet "+key.Name, "\ncrash writes=%d", step, func(x *situation) {
			delete(x.stageWork, key)
			x.ReconcileJobSet(key)
		})
	}
}

// interrupted adds the reconciles of which one write fails, with a conflict or because the answer is lost, and those that a crash cuts. The crash
// is a line of a scenario, if that has one for it.
func (x *situation) interrupted(what, crash string, step func(text string, kind adversity, do func(*situation)), reconcile func(*situation)) {
	writes := x.writesOf(reconcile)
	for n := range writes {
		fail := func(why string, losesAnswer bool) {
			step(fmt.Sprintf("%s, and its write after %d writes fails: %s", what, n, why), faults, func(x *situation) {
				x.FailsAfter, x.LosesAnswer = x.Writes+n, losesAnswer
				reconcile(x)
				x.FailsAfter = -1
			})
		}
		fail("conflict", false)
		fail("the answer is lost", true)
	}
	for n := range writes {
		line := ""
		if crash != "" {
			line = fmt.Sprintf(crash, n)
		}
		step(fmt.Sprintf("%s, and dies after %d writes%s", what, n, line), crashes, func(x *situation) {
			x.DiesAfter = x.Writes + n
			reconcile(x)
			x.DiesAfter = -1
			x.forget()
		})
	}
}

// divideWork gives the JobSets that have changed to both controllers of JobSets, and the jobs of other kinds to theirs.
func (x *situation) divideWork() {
	x.JobSetQueue.Wake(x.Now)
	for key := range x.JobSetQueue.Changed {
		if x.UserJobs[key] != nil {
			x.jobSetWork[key], x.stageWork[key] = true, true
		} else if x.PlainJobs[key] != nil {
			x.jobSetWork[key] = true
		}
	}
	clear(x.JobSetQueue.Changed)
	x.WorkloadQueue.Wake(x.Now)
	x.wakeGangs()
}

// writesOf returns how many writes a reconcile makes.
func (x *situation) writesOf(reconcile func(*situation)) int {
	if x.left[crashes] == 0 && x.left[faults] == 0 {
		return 0
	}
	probe := x.copied()
	if err := probe.revive(); err != nil {
		return 0
	}
	reconcile(probe)
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
			x.forget()
			x.Restart()
		})
	case x.idleAt != len(x.Calls):
		step("the engine decides", none, func(x *situation) {
			x.decisions = x.Decide()
			x.noteRefusals()
			x.WriteConsumption()
			if len(x.decisions) == 0 {
				x.idleAt = len(x.Calls)
			}
		})
	}
}

// noteRefusals records what the engine remembers of its decisions. It refuses a stage again once that has held quota.
func (x *situation) noteRefusals() {
	for _, d := range x.decisions {
		switch d := d.(type) {
		case admission.Refuse:
			x.refused[d.Stage] = d.Refusal.String()
		case admission.Admit:
			delete(x.refused, d.Stage)
		case admission.Evict, admission.Notice:
		}
	}
}

// forget is the start of a new manager, which knows of no decisions and reconciles everything.
func (x *situation) forget() {
	x.decisions, x.idleAt = nil, -1
	clear(x.refused)
	x.requeueGangs()
}

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
	case admission.Notice:
		return d.Stage, d.UID, d.ID
	case admission.Refuse:
		return d.Stage, d.UID, 0
	}
	return key, uid, id
}
