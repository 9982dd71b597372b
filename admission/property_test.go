package admission_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/stageplan"
)

// TestEverythingFinishes runs random JobSets on random quota, with the least helpful Jobs: none succeeds before all stages that may run beside it
// do run. Under Safe and Reserve, every JobSet that is not refused permanently finishes (I3).
func TestEverythingFinishes(t *testing.T) {
	for _, policy := range []string{admission.Safe, admission.Reserve} {
		t.Run(policy, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				w := drawWorld(t, policy)
				w.runToTheEnd(t)
				for name, js := range w.jobSets {
					if !js.hasSucceeded() && !w.isRefusedForGood(js) {
						t.Fatalf("%s (%s) hangs at %v; used %s; refusals %v", name, js.plan, js.states, w.used("q"), w.refusals)
					}
				}
				for key, wl := range w.workloads {
					if len(wl.OwnerReferences) == 0 && !isFinished(wl) && w.refusals[key].Reason == kueue.WorkloadQuotaReservedReasonWaitingForQuota {
						t.Fatalf("%s waits forever: %v", key, w.refusals[key])
					}
				}
			})
		})
	}
}

// TestGreedyDeadlocks makes sure that the test above can find a deadlock: without a policy, some of the same worlds hang.
func TestGreedyDeadlocks(t *testing.T) {
	hung := 0
	worlds := rapid.Custom(func(t *rapid.T) bool {
		w := drawWorld(t, admission.Greedy)
		w.runToTheEnd(t)
		for _, js := range w.jobSets {
			for i := range js.plan.Stages {
				if !js.hasSucceeded() && len(w.engine.Holding(js.uid)) > 0 && w.refusals[keyOf(js.workload(i))].Check == "QuotaFits" {
					return true
				}
			}
		}
		return false
	})
	for seed := range 200 {
		if worlds.Example(seed) {
			hung++
		}
	}
	if hung == 0 {
		t.Error("no deadlock in 200 worlds under Greedy")
	}
}

// drawWorld makes up to three ClusterQueues, which share a Cohort or do not.
func drawWorld(t *rapid.T, policy string) *world {
	w := newWorld(t, admission.Config{StageAdmission: policy})
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

// runToTheEnd submits JobSets now and then, and continues until nothing changes.
func (w *world) runToTheEnd(t *rapid.T) {
	left := rapid.IntRange(1, 6).Draw(t, "jobsets")
	for range 2000 {
		w.decideWithFailures(t)
		moves := w.moves()
		if left > 0 {
			moves = append(moves, func() {
				left--
				name := fmt.Sprintf("js%d", left)
				if rapid.IntRange(0, 3).Draw(t, "kind") == 0 {
					w.lone(w.drawQueue(t), name, fmt.Sprintf("gpu=%d", rapid.IntRange(0, 5).Draw(t, "gpu")))
					return
				}
				w.submit(w.drawQueue(t), name, drawJobs(t)...)
			})
		}
		if len(moves) == 0 {
			return
		}
		moves[rapid.IntRange(0, len(moves)-1).Draw(t, "move")]()
	}
	t.Fatalf("still moving after 2000 steps")
}

// decideWithFailures is decide with writes that fail, and checks that quota is never exceeded.
func (w *world) decideWithFailures(t *rapid.T) {
	for {
		decisions := w.engine.Decide(w.now())
		w.checkQuota(t)
		failed := false
		for _, d := range decisions {
			switch d := d.(type) {
			case admission.Refuse:
				w.refusals[d.Stage] = d.Refusal
			case admission.Evict:
				t.Fatalf("%s, and no stage may be preempted", d)
			case admission.Admit:
				if rapid.IntRange(0, 9).Draw(t, "fails") == 0 {
					w.engine.Settle(d.ID)
					failed = true
					continue
				}
				w.change(d.Stage.Name, func(wl *kueue.Workload) { reserve(wl, &d.Admission) })
				w.engine.Settle(d.ID)
				delete(w.refusals, d.Stage)
			}
		}
		if !failed {
			return
		}
	}
}

// checkQuota adds up what the quota Workloads hold, and checks each limit independently of the Engine.
func (w *world) checkQuota(t *rapid.T) {
	nominal, used := map[string]int64{}, map[string]int64{}
	for _, name := range slices.Sorted(maps.Keys(w.queues)) {
		q := w.queues[name]
		view, _ := w.engine.ClusterQueue(name)
		for i, f := range view.FlavorsHeld {
			for k, r := range f.Resources {
				limits := q.Spec.ResourceGroups[0].Flavors[i].Resources[k]
				own, total := limits.NominalQuota.MilliValue(), r.Total.MilliValue()
				lent := own
				if limits.LendingLimit != nil {
					lent = min(lent, limits.LendingLimit.MilliValue())
				}
				key := string(q.Spec.CohortName) + string(f.Name) + string(r.Name)
				nominal[key] += lent
				used[key] += max(0, total-(own-lent))
				if q.Spec.CohortName == "" && total > own || limits.BorrowingLimit != nil && total > own+limits.BorrowingLimit.MilliValue() {
					t.Fatalf("%s of %s %s reserved in %s, limits %+v", r.Total.String(), f.Name, r.Name, name, limits)
				}
			}
		}
	}
	for key, u := range used {
		if strings.HasPrefix(key, "c") && u > nominal[key] {
			t.Fatalf("%d of %d reserved of what the Cohort shares of %s", u, nominal[key], key)
		}
	}
	if v := w.engine.Violations(); len(v) > 0 {
		t.Fatalf("%v", v)
	}
}

// moves returns all that can happen next without another decision, in a fixed order.
func (w *world) moves() []func() {
	var moves []func()
	for _, key := range slices.SortedFunc(maps.Keys(w.workloads), compareNames) {
		wl := w.workloads[key]
		if len(wl.OwnerReferences) == 0 && wl.Status.Admission != nil && !isFinished(wl) {
			moves = append(moves, func() { w.change(key.Name, finish) })
		}
	}
	for _, name := range slices.Sorted(maps.Keys(w.jobSets)) {
		moves = append(moves, w.movesOf(w.jobSets[name])...)
	}
	return moves
}

// movesOf lets running stages become ready, and succeed only when they cannot be waiting for another stage beside them.
func (w *world) movesOf(js *fakeJobSet) []func() {
	var ready, succeed []func()
	complete := true
	for i := range js.plan.Stages {
		wl := w.workloads[keyOf(js.workload(i))]
		if js.isOpen(i) && wl.Status.Admission == nil {
			complete = false
		}
		for _, name := range js.plan.Stages[i].ReplicatedJobs {
			switch {
			case wl.Status.Admission == nil || !js.isOpen(i) || js.states[name] == stageplan.Succeeded:
			case js.states[name] == "":
				ready = append(ready, func() { w.reach(js.name, name, stageplan.Ready) })
			default:
				succeed = append(succeed, func() { w.reach(js.name, name, stageplan.Succeeded) })
			}
		}
	}
	if len(ready) > 0 || !complete {
		return ready
	}
	return succeed
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

// isRefusedForGood reports whether a JobSet was refused at its first stages because it can never run, and holds nothing.
func (w *world) isRefusedForGood(js *fakeJobSet) bool {
	good := false
	for i := range js.plan.Stages {
		key := keyOf(js.workload(i))
		if w.workloads[key].Status.Admission != nil {
			return false
		}
		reason := w.refusals[key].Reason
		good = good || reason == kueue.WorkloadQuotaReservedReasonExceedsMaxQuota || reason == kueue.WorkloadQuotaReservedReasonNoMatchingFlavor
	}
	return good
}

func isFinished(wl *kueue.Workload) bool {
	return slices.ContainsFunc(wl.Status.Conditions, func(c metav1.Condition) bool { return c.Type == kueue.WorkloadFinished })
}
