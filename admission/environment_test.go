package admission_test

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/ledger"
)

// This file has what random tests let users, controllers and administrators do in a world.

// drawWorld makes up to three ClusterQueues, which share a Cohort or do not.
func drawWorld(t *rapid.T) *world {
	w := newWorld(t, admission.Config{StageAdmission: admission.Safe})
	amount := rapid.IntRange(0, 9)
	cohort := rapid.SampledFrom([]kueue.CohortReference{"", "c"}).Draw(t, "cohort")
	for _, name := range []string{"q", "p", "r"}[:rapid.IntRange(1, 3).Draw(t, "queues")] {
		quotas := fmt.Sprintf("a: cpu=%d gpu=%d; b: cpu=%d gpu=%d", amount.Draw(t, "cpu"), amount.Draw(t, "gpu"), amount.Draw(t, "cpu"), amount.Draw(t, "gpu"))
		w.queue(name, quotas, func(q *kueue.ClusterQueue) {
			q.Spec.QueueingStrategy = rapid.SampledFrom([]kueue.QueueingStrategy{kueue.BestEffortFIFO, kueue.StrictFIFO}).Draw(t, "strategy")
			q.Spec.CohortName = cohort
			if cohort != "" {
				drawLimits(t, q)
			}
		})
	}
	return w
}

func drawLimits(t *rapid.T, q *kueue.ClusterQueue) {
	limit := rapid.SampledFrom([]int64{-1, 0, 2, 4})
	for i := range q.Spec.ResourceGroups[0].Flavors {
		for k := range q.Spec.ResourceGroups[0].Flavors[i].Resources {
			r := &q.Spec.ResourceGroups[0].Flavors[i].Resources[k]
			if borrowing := limit.Draw(t, "borrowing"); borrowing >= 0 {
				r.BorrowingLimit = resource.NewQuantity(borrowing, resource.DecimalSI)
			}
			if lending := limit.Draw(t, "lending"); lending >= 0 {
				r.LendingLimit = resource.NewQuantity(min(lending, r.NominalQuota.Value()), resource.DecimalSI)
			}
		}
	}
}

func (w *world) drawQueue(t *rapid.T) string {
	return rapid.SampledFrom(slices.Sorted(maps.Keys(w.queues))).Draw(t, "queue")
}

func drawJobs(t *rapid.T) []job {
	n := rapid.IntRange(1, 4).Draw(t, "jobs")
	jobs := make([]job, n)
	for i := range jobs {
		jobs[i] = job{name: fmt.Sprintf("j%d", i), requests: fmt.Sprintf("cpu=%d gpu=%d", rapid.IntRange(0, 3).Draw(t, "cpu"), rapid.IntRange(0, 5).Draw(t, "gpu"))}
		if only := rapid.SampledFrom([]string{"", "", "a", "b"}).Draw(t, "flavor"); only != "" {
			jobs[i].change = func(spec *corev1.PodSpec) { spec.NodeSelector = map[string]string{"flavor": only} }
		}
		for k := range i {
			if rapid.IntRange(0, 2).Draw(t, "waits") > 0 {
				jobs[i].after = append(jobs[i].after, fmt.Sprintf("j%d %s", k, rapid.SampledFrom([]string{"Ready", "Ready", "Complete"}).Draw(t, "for")))
			}
		}
	}
	return jobs
}

// write writes decisions, some of them not at the first try, and lets evict write the evictions. It returns how many admissions and evictions there
// are, and whether a write has failed.
func (w *world) write(t *rapid.T, decisions []admission.Decision, evict func(admission.Evict)) (decided int, failed bool) {
	for _, d := range decisions {
		var id admission.DecisionID
		var write func()
		switch d := d.(type) {
		case admission.Refuse:
			w.refusals[d.Stage] = d.Refusal
			continue
		case admission.Evict:
			w.evictions = append(w.evictions, d.String()+" "+d.Message)
			id, write = d.ID, func() { evict(d) }
		case admission.Notice:
			id, write = d.ID, func() { w.writeNotice(d) }
		case admission.Admit:
			delete(w.refusals, d.Stage)
			id, write = d.ID, func() {
				w.change(d.Stage.Name, func(wl *kueue.Workload) {
					reserve(wl, &d.Admission)
					w.date(wl)
				})
			}
		}
		decided++
		if rapid.IntRange(0, 14).Draw(t, "fails") == 0 {
			failed = true
		} else {
			write()
		}
		w.engine.Settle(id)
	}
	if v := w.engine.Violations(); len(v) > 0 {
		t.Fatalf("%v", v)
	}
	return decided, failed
}

// evict evicts a quota Workload. Its pods terminate later.
func (w *world) evict(name, reason string) {
	w.change(name, func(wl *kueue.Workload) {
		setCondition(wl, kueue.WorkloadEvicted, metav1.ConditionTrue)
		c := &wl.Status.Conditions[len(wl.Status.Conditions)-1]
		c.Reason, c.LastTransitionTime = reason, metav1.NewTime(w.now())
	})
}

// writeNotice writes the condition PreemptionPending.
func (w *world) writeNotice(d admission.Notice) {
	w.change(d.Stage.Name, func(wl *kueue.Workload) {
		setCondition(wl, apis.PreemptionPendingCondition, metav1.ConditionFalse)
		if d.Preemption != nil {
			wl.Status.Conditions[len(wl.Status.Conditions)-1] = metav1.Condition{
				Type: apis.PreemptionPendingCondition, Status: metav1.ConditionTrue, Reason: d.Preemption.Reason, LastTransitionTime: metav1.NewTime(w.now()),
				Message: quotaworkload.NoticeMessage(d.Ends, string(d.Preemption.PreemptorUID)),
			}
		}
	})
}

func isLeaving(wl *kueue.Workload) bool {
	return wl.Status.Admission != nil && slices.ContainsFunc(wl.Status.Conditions, func(c metav1.Condition) bool {
		return c.Type == kueue.WorkloadEvicted && c.Status == metav1.ConditionTrue
	})
}

// comeToRest lets all victims leave, until nothing is decided.
func (w *world) comeToRest(t *rapid.T, decide func(*rapid.T) (decided int)) {
	for range 2000 {
		w.clock++
		decided, left := decide(t), false
		for _, key := range slices.SortedFunc(maps.Keys(w.workloads), compareNames) {
			if wl := w.workloads[key]; isLeaving(wl) && !isFinished(wl) {
				w.leave(key.Name)
				left = true
			}
		}
		if decided == 0 && !left {
			return
		}
	}
	t.Fatalf("still deciding after 2000 rounds: %q", w.evictions[max(0, len(w.evictions)-10):])
}

// checkQuota checks that what the Engine charges is within the limits (I1).
func (w *world) checkQuota(t *rapid.T) {
	charged, quotas := w.charges(), ledger.Quotas{ClusterQueues: w.queues, Cohorts: w.cohorts}
	for _, name := range slices.Sorted(maps.Keys(charged)) {
		for fr := range charged[name] {
			if e := quotas.Exceeded(name, fr, charged.Of(fr)); e != nil {
				t.Fatalf("%d of %d thousandths of %v reserved in %s", e.Reserved, e.Limit, fr, e.Node)
			}
		}
	}
}

// charges are what the Engine charges to each ClusterQueue.
func (w *world) charges() ledger.Totals {
	all := ledger.Totals{}
	for name := range w.queues {
		view, _ := w.engine.ClusterQueue(name)
		all[name] = ledger.Sum{}
		for _, f := range view.FlavorsHeld {
			for _, r := range f.Resources {
				all[name][quota.FlavorResource{Flavor: f.Name, Resource: r.Name}] = r.Total.MilliValue()
			}
		}
	}
	return all
}

// movesOf lets running stages become ready, and succeed only when they cannot be waiting for another stage beside them.
func (w *world) movesOf(js *fakeJobSet) []func() {
	var ready, succeed []func()
	waiting := w.waitingStages(js)
	for i := range js.plan.Stages {
		wl := w.workloads[keyOf(js.workload(i))]
		for _, name := range js.plan.Stages[i].ReplicatedJobs {
			mayNeed := func(stage int) bool { return !js.isAfterSuccess(stage, name) }
			switch {
			case wl.Status.Admission == nil || !js.isOpen(i) || js.states[name] == stageplan.Succeeded:
			case js.states[name] == "":
				ready = append(ready, func() { w.reach(js.name, name, stageplan.Ready) })
			case !slices.ContainsFunc(waiting, mayNeed):
				succeed = append(succeed, func() { w.reach(js.name, name, stageplan.Succeeded) })
			}
		}
	}
	if len(ready) > 0 {
		return ready
	}
	return succeed
}

// waitingStages returns the stages that are open and not admitted.
func (w *world) waitingStages(js *fakeJobSet) (waiting []int) {
	for i := range js.plan.Stages {
		if js.isOpen(i) && w.workloads[keyOf(js.workload(i))].Status.Admission == nil {
			waiting = append(waiting, i)
		}
	}
	return waiting
}

// isAfterSuccess reports whether a stage starts only after a ReplicatedJob has succeeded, perhaps because a stage between them does. That ReplicatedJob
// cannot be waiting for the stage, also if it runs again after an eviction, and the stage is open because the one between them stays finished.
func (js *fakeJobSet) isAfterSuccess(stage int, replicatedJob string) bool {
	return slices.ContainsFunc(js.plan.Stages[stage].After, func(c stageplan.Condition) bool {
		return c.Status == stageplan.Succeeded && slices.Contains(c.Targets, replicatedJob) || js.isAfterSuccess(c.Stage, replicatedJob)
	})
}

func (js *fakeJobSet) hasSucceeded() bool {
	for i := range js.plan.Stages {
		for _, name := range js.plan.Stages[i].ReplicatedJobs {
			if js.states[name] != stageplan.Succeeded {
				return false
			}
		}
	}
	return true
}

func isFinished(wl *kueue.Workload) bool {
	return slices.ContainsFunc(wl.Status.Conditions, func(c metav1.Condition) bool { return c.Type == kueue.WorkloadFinished })
}
