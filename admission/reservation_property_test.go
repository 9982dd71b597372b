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

// TestIdleQuotaUnderReservations lets stages of one cohort preempt each other while victims leave late. A preemptor never waits when it fits into
// idle quota, so no two of them wait for each other. Other stages may use idle quota, except what the reservations together still lack when all
// evicted stages have left.
func TestIdleQuotaUnderReservations(t *testing.T) {
	for _, fair := range []bool{false, true} {
		t.Run(fmt.Sprintf("fair=%t", fair), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				w := newWorld(t, admission.Config{FairSharing: fair})
				total := w.drawPreemptors(t)
				for n := range rapid.IntRange(1, 30).Draw(t, "steps") {
					_, leaving := w.running()
					if len(leaving) > 0 && rapid.Bool().Draw(t, "leaves") {
						w.leave(rapid.SampledFrom(leaving).Draw(t, "victim"))
					} else {
						size := rapid.IntRange(1, min(4, total)).Draw(t, "size")
						w.important(rapid.SampledFrom([]string{"p", "q", "r"}).Draw(t, "queue"), fmt.Sprint("w", n), fmt.Sprint("gpu=", size), int32(rapid.IntRange(0, 3).Draw(t, "priority")))
					}
					w.decide()
					w.decide() // stages that were notified of an eviction are checked again
					w.wantNoIdlePreemptor(t, total)
					w.probe(t, total)
				}
			})
		})
	}
}

// drawPreemptors makes three ClusterQueues of one cohort that preempt, and one without quota that does not.
func (w *world) drawPreemptors(t *rapid.T) (total int) {
	for _, name := range []string{"p", "q", "r"} {
		nominal := rapid.IntRange(1, 4).Draw(t, "nominal")
		total += nominal
		w.queue(name, fmt.Sprint("a100: gpu=", nominal), inCohort("c"), func(q *kueue.ClusterQueue) {
			q.Spec.Preemption = &kueue.ClusterQueuePreemption{
				WithinClusterQueue:  kueue.PreemptionPolicyLowerPriority,
				ReclaimWithinCohort: rapid.SampledFrom([]kueue.PreemptionPolicy{kueue.PreemptionPolicyAny, kueue.PreemptionPolicyLowerPriority}).Draw(t, "reclaim"),
			}
		})
	}
	w.queue("probe", "a100: gpu=0", inCohort("c"))
	return total
}

func gpusOf(wl *kueue.Workload) int {
	q := wl.Spec.PodSets[0].Template.Spec.Containers[0].Resources.Requests[gpu]
	return int(q.Value())
}

// idle returns the idle quota, what evicted stages still hold, and what preemptors wait for.
func (w *world) idle(total int) (idle, leaving int, waiting map[string]int) {
	idle, waiting = total, map[string]int{}
	for _, key := range slices.SortedFunc(maps.Keys(w.workloads), compareNames) {
		wl := w.workloads[key]
		switch {
		case isFinished(wl):
		case wl.Status.Admission == nil && w.refusals[key].Check == "RoomIsMade":
			waiting[key.Name] = gpusOf(wl)
		case wl.Status.Admission == nil:
		case isLeaving(wl):
			leaving += gpusOf(wl)
			idle -= gpusOf(wl)
		default:
			idle -= gpusOf(wl)
		}
	}
	return idle, leaving, waiting
}

func (w *world) wantNoIdlePreemptor(t *rapid.T, total int) {
	idle, _, waiting := w.idle(total)
	for name, need := range waiting {
		if need <= idle {
			t.Fatalf("%s waits for %d, and %d are idle; waiting are %v", name, need, idle, waiting)
		}
	}
}

// probe submits a stage that may not preempt and asks for all idle quota, except what the reservations lack. It has to be admitted.
func (w *world) probe(t *rapid.T, total int) {
	idle, leaving, waiting := w.idle(total)
	lack := -leaving
	for _, need := range waiting {
		lack += need
	}
	free := idle - max(0, lack)
	if len(waiting) == 0 || free < 1 {
		return
	}
	name := fmt.Sprint("probe", len(w.workloads))
	w.important("probe", name, fmt.Sprint("gpu=", free), 0)
	w.decide()
	if w.workloads[keyOf(name)].Status.Admission == nil {
		t.Fatalf("%d are idle, and %d will be left over when %d have left and %v run, but: %v", idle, free, leaving, waiting, w.refusals[keyOf(name)])
	}
	w.change(name, finish)
	w.decide()
}
