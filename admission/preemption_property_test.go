package admission_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
)

// TestPreemptionEnds lets stages preempt each other in random cohorts, with pods that terminate late, writes that fail and stages that arrive,
// finish and are deleted. Every call of Decide ends; without new stages the evictions end; and once all stages that hold quota have finished,
// again and again, every stage that can ever fit has had a turn.
func TestPreemptionEnds(t *testing.T) {
	for _, fair := range []bool{false, true} {
		t.Run(fmt.Sprintf("fair=%t", fair), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				w := drawRivals(t, admission.Config{FairSharing: fair})
				left := rapid.IntRange(1, 40).Draw(t, "stages")
				for range rapid.IntRange(0, 120).Draw(t, "steps") {
					w.decideOnRivals(t)
					if left > 0 && rapid.IntRange(0, 2).Draw(t, "new") == 0 {
						left--
						w.important(w.drawQueue(t), fmt.Sprintf("w%d", left), fmt.Sprintf("gpu=%d", rapid.SampledFrom([]int{1, 1, 3, 6, 9}).Draw(t, "gpu")), int32(rapid.IntRange(0, 3).Draw(t, "priority")))
						continue
					}
					w.moveRival(t)
				}
				w.comeToRest(t, w.decideOnRivals)
				w.runEverybody(t)
			})
		})
	}
}

func drawRivals(t *rapid.T, config admission.Config) *world {
	w := newWorld(t, config)
	policy := rapid.SampledFrom([]kueue.PreemptionPolicy{kueue.PreemptionPolicyNever, kueue.PreemptionPolicyLowerPriority, kueue.PreemptionPolicyAny})
	for _, name := range []string{"p", "q", "r", "s"} {
		w.queue(name, fmt.Sprintf("a: gpu=%d", rapid.IntRange(0, 6).Draw(t, "nominal")), func(q *kueue.ClusterQueue) {
			q.Spec.CohortName = "c"
			q.Spec.QueueingStrategy = rapid.SampledFrom([]kueue.QueueingStrategy{kueue.BestEffortFIFO, kueue.StrictFIFO}).Draw(t, "strategy")
			drawLimits(t, q)
			q.Spec.Preemption = &kueue.ClusterQueuePreemption{
				ReclaimWithinCohort: policy.Draw(t, "reclaim"),
				WithinClusterQueue: rapid.SampledFrom([]kueue.PreemptionPolicy{
					kueue.PreemptionPolicyNever, kueue.PreemptionPolicyLowerPriority, kueue.PreemptionPolicyLowerOrNewerEqualPriority,
				}).Draw(t, "within"),
			}
			if !config.FairSharing && q.Spec.Preemption.ReclaimWithinCohort != kueue.PreemptionPolicyNever && rapid.Bool().Draw(t, "borrows") {
				q.Spec.Preemption.BorrowWithinCohort = &kueue.BorrowWithinCohort{Policy: kueue.BorrowWithinCohortPolicyLowerPriority}
			}
		})
	}
	return w
}

// decideOnRivals writes the decisions, some of them not at the first try.
func (w *world) decideOnRivals(t *rapid.T) int {
	decided, _ := w.write(t, w.engine.Decide(w.now()), func(d admission.Evict) { w.evict(d.Stage.Name, d.Reason) })
	return decided
}

// moveRival lets one stage leave, finish or be deleted.
func (w *world) moveRival(t *rapid.T) {
	names := []string{}
	for _, key := range slices.SortedFunc(maps.Keys(w.workloads), compareNames) {
		if !isFinished(w.workloads[key]) {
			names = append(names, key.Name)
		}
	}
	if len(names) == 0 {
		return
	}
	name := rapid.SampledFrom(names).Draw(t, "moves")
	switch wl := w.workloads[keyOf(name)]; {
	case isLeaving(wl):
		w.leave(name)
	case rapid.IntRange(0, 9).Draw(t, "deleted") == 0:
		w.remove(name)
	case wl.Status.Admission != nil:
		w.change(name, finish)
	}
}

// runEverybody lets all running stages finish, and those after them.
func (w *world) runEverybody(t *rapid.T) {
	for range 100 {
		ran := false
		for _, key := range slices.SortedFunc(maps.Keys(w.workloads), compareNames) {
			if wl := w.workloads[key]; wl.Status.Admission != nil && !isFinished(wl) {
				w.change(key.Name, finish)
				ran = true
			}
		}
		w.comeToRest(t, w.decideOnRivals)
		if !ran {
			break
		}
	}
	for key, wl := range w.workloads {
		if !isFinished(wl) && w.refusals[key].Reason != kueue.WorkloadQuotaReservedReasonExceedsMaxQuota && !w.isBehindNever(key) {
			t.Fatalf("%s waits forever: %v", key, w.refusals[key])
		}
	}
}

// isBehindNever reports whether a stage waits under StrictFIFO.
func (w *world) isBehindNever(key admission.StageKey) bool {
	return w.refusals[key].Check == "StrictFIFO"
}
