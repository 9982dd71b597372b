package admission_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/stageplan"
)

// reserving has a ClusterQueue of 4 GPUs for each name, in which quota is reserved for a stage that has waited for a minute. They share nothing unless they
// are changed.
func reserving(t *testing.T, names []string, change ...func(*kueue.ClusterQueue)) *world {
	t.Helper()
	w := newWorld(t, admission.Config{Reservation: admission.Reservation{IsEnabled: true, After: time.Minute}})
	for _, name := range names {
		w.queue(name, "a: gpu=4", change...)
	}
	return w
}

const waitingForQuota = kueue.WorkloadQuotaReservedReasonWaitingForQuota

// untilDue lets time pass until all that waits now is due.
func (w *world) untilDue() { w.clock += 60 }

// ends finishes quota Workloads, and lets the Engine decide after each of them.
func (w *world) ends(names ...string) (admitted []string) {
	for _, name := range names {
		w.change(name, finish)
		admitted = append(admitted, w.decide()...)
	}
	return admitted
}

// TestQuotaIsKeptForGangGroups: in both ClusterQueues of a due group, others overtake only if they do not delay it, also after a restart.
func TestQuotaIsKeptForGangGroups(t *testing.T) {
	for name, restarts := range map[string]bool{"without a restart": false, "with a restart": true} {
		t.Run(name, func(t *testing.T) {
			w := reserving(t, []string{"p", "q"})
			for _, name := range []string{"p0", "p1", "q0", "q1"} {
				w.lone(name[:1], name, "gpu=2")
			}
			w.decide()
			w.lone("p", "a", "gpu=4", together("ab", 2))
			w.lone("q", "b1", "gpu=1", together("ab", 2))
			w.wantAdmitted()
			w.untilDue()
			w.lone("p", "small-p", "gpu=2")
			w.lone("q", "small-q", "gpu=2")
			w.wantAdmitted()
			w.ends("p0", "q0")
			if restarts {
				w.restart()
				w.wantAdmitted()
			}
			w.wantRefusal("small-p", "DelaysNone", waitingForQuota, `would delay quota Workload "a", which has been due since 2026-01-01T00:01:0`)
			w.wantRefusal("small-q", "DelaysNone", waitingForQuota, `would delay quota Workload "b1"`)
			w.wantRefusal("a", "QuotaFits", waitingForQuota, "quota that is released is kept for the gangs that are admitted together, in ClusterQueue p, up to 4 nvidia.com/gpu of flavor a")
			w.wantRefusal("b1", "GangsPassTogether", waitingForQuota, "in ClusterQueue q, up to 1 nvidia.com/gpu of flavor a")
			if explained := w.engine.Explain(keyOf("a")); len(explained) != 1 || explained[0].Message != w.refusals[keyOf("a")].Message {
				t.Errorf("explained by %v, refused by %v", explained, w.refusals[keyOf("a")])
			}
			w.lone("q", "tiny", "gpu=1")
			w.wantAdmitted("tiny") // fits beside the gang in any case
			if admitted := w.ends("q1"); !slices.Equal(admitted, []string{"small-q"}) {
				t.Errorf("admitted %v, want what fits beside the gang now", admitted)
			}
			w.wantRefusal("small-p", "DelaysNone", waitingForQuota, "would delay")
			if admitted := w.ends("p1"); !slices.Equal(admitted, []string{"a", "b1"}) {
				t.Errorf("admitted %v, want the group; refusals %v", admitted, w.refusals)
			}
		})
	}
}

// TestGroupsInOppositeOrderAreDueInTurn: each of two groups comes first in one of their ClusterQueues. The group whose last member came first is due in both.
func TestGroupsInOppositeOrderAreDueInTurn(t *testing.T) {
	w := reserving(t, []string{"p", "q"})
	w.lone("p", "busy-p", "gpu=4")
	w.lone("q", "busy-q", "gpu=4")
	w.decide()
	w.lone("p", "a1", "gpu=4", together("a", 2))
	w.lone("q", "b1", "gpu=4", together("b", 2))
	w.lone("p", "b2", "gpu=4", together("b", 2))
	w.lone("q", "a2", "gpu=4", together("a", 2))
	w.decide()
	w.untilDue()
	w.decide()
	w.wantRefusal("b1", "QuotaFits", waitingForQuota, "due since")
	w.wantRefusal("b2", "QuotaFits", waitingForQuota, "due since")
	for _, name := range []string{"a1", "a2"} {
		if message := w.refusals[keyOf(name)].Message; strings.Contains(message, "due since") {
			t.Errorf("%s: %s", name, message)
		}
	}
	for range 2 {
		w.restart()
		w.decide()
	}
	if admitted := w.ends("busy-p", "busy-q", "b1", "b2"); !slices.Equal(admitted, []string{"b1", "b2", "a1", "a2"}) {
		t.Errorf("admitted %v, want b and then a; refusals %v", admitted, w.refusals)
	}
}

// TestAGroupIsDueInAllOfItsQueues: while another stage is due in one of them, nothing is kept for the group in the others; then all is. If one of its members
// asks for nothing any longer, nothing is kept either.
func TestAGroupIsDueInAllOfItsQueues(t *testing.T) {
	w := reserving(t, []string{"p", "q"})
	w.lone("p", "p0", "gpu=3")
	w.lone("q", "q0", "gpu=3")
	w.decide()
	w.lone("p", "first", "gpu=4")
	w.lone("p", "a", "gpu=4", together("ab", 2))
	w.lone("q", "b", "gpu=4", together("ab", 2))
	w.decide()
	w.untilDue()
	w.lone("q", "passes", "gpu=1")
	w.wantAdmitted("passes")
	w.ends("p0")
	w.lone("q", "waits", "gpu=1")
	w.ends("q0")
	w.wantRefusal("first", "", "", "") // it has started
	w.wantRefusal("waits", "DelaysNone", waitingForQuota, `would delay quota Workload "b"`)
	w.change("a", func(wl *kueue.Workload) { wl.Spec.Active = new(false) })
	w.wantAdmitted("waits")
}

// TestNoGroupIsDueWhereOneQueueReservesNothing: there the group could wait without end, while its other ClusterQueue drains.
func TestNoGroupIsDueWhereOneQueueReservesNothing(t *testing.T) {
	for name, change := range map[string]func(*kueue.ClusterQueue){
		"never":      func(q *kueue.ClusterQueue) { q.Annotations = map[string]string{"tranche.dev/reserve-after": "Never"} },
		"StrictFIFO": strictFIFO,
	} {
		t.Run(name, func(t *testing.T) {
			w := reserving(t, []string{"p"})
			w.queue("q", "a: gpu=4", change)
			w.lone("p", "p0", "gpu=3")
			w.lone("q", "q0", "gpu=3")
			w.decide()
			w.lone("p", "a", "gpu=4", together("ab", 2))
			w.lone("q", "b", "gpu=4", together("ab", 2))
			w.decide()
			w.untilDue()
			w.lone("p", "small", "gpu=1")
			w.wantAdmitted("small")
		})
	}
}

// TestGangsDelayTogether: each of two gangs fits beside the due stage, but not both.
func TestGangsDelayTogether(t *testing.T) {
	w := reserving(t, []string{"p", "r"}, inCohort("c"))
	w.lone("r", "borrower", "gpu=6")
	w.decide()
	w.lone("p", "due", "gpu=3")
	w.decide()
	w.untilDue()
	w.lone("p", "a", "gpu=1", together("ab", 2))
	w.lone("p", "b", "gpu=1", together("ab", 2))
	w.wantAdmitted()
	w.wantRefusal("a", "DelaysNone", waitingForQuota, `would delay quota Workload "due"`)
	w.wantRefusal("b", "DelaysNone", waitingForQuota, `would delay quota Workload "due"`)
	w.lone("p", "one", "gpu=1")
	w.wantAdmitted("one")
}

// TestGroupsReserveForAllMembersOfAQueue: two of the gangs share a ClusterQueue, and what is kept there is for both.
func TestGroupsReserveForAllMembersOfAQueue(t *testing.T) {
	w := reserving(t, []string{"p", "q"})
	w.lone("p", "p0", "gpu=4")
	w.lone("q", "q0", "gpu=4")
	w.decide()
	w.lone("p", "a", "gpu=2", together("abc", 3))
	w.lone("p", "b", "gpu=1", together("abc", 3))
	w.lone("q", "c", "gpu=1", together("abc", 3))
	w.decide()
	w.untilDue()
	w.lone("p", "two", "gpu=2")
	w.lone("p", "one", "gpu=1")
	w.decide()
	w.wantRefusal("a", "QuotaFits", waitingForQuota, "in ClusterQueue p, up to 3 nvidia.com/gpu of flavor a")
	if admitted := w.ends("p0"); !slices.Equal(admitted, []string{"one"}) {
		t.Errorf("admitted %v, want only what fits beside both gangs", admitted)
	}
	if admitted := w.ends("q0"); !slices.Equal(admitted, []string{"a", "b", "c"}) {
		t.Errorf("admitted %v", admitted)
	}
}

// TestQuotaIsKeptForGatheringGangs: a NonStrict gang asks for quota part by part. Before its first part is admitted, quota is kept for all parts, also after a
// restart.
func TestQuotaIsKeptForGatheringGangs(t *testing.T) {
	w := reserving(t, []string{"q"})
	w.lone("q", "q0", "gpu=1")
	w.lone("q", "q1", "gpu=3")
	w.decide()
	g := &gathering{name: "g", queue: "q", requests: slices.Repeat([]string{"gpu=2"}, 2)}
	w.plan(g)
	w.gather(g)
	w.gather(g)
	w.wantAdmitted()
	w.untilDue()
	w.lone("q", "small", "gpu=1")
	w.wantAdmitted()
	w.wantRefusal("g-0", "QuotaFits", waitingForQuota, "is kept for it, up to 4 nvidia.com/gpu of flavor a")
	w.ends("q0")
	w.restart()
	w.plan(g)
	w.wantAdmitted()
	w.wantRefusal("small", "DelaysNone", waitingForQuota, `would delay quota Workload "g-0"`)
	if admitted := w.ends("q1"); !slices.Equal(admitted, []string{"g-0", "g-1"}) {
		t.Errorf("admitted %v, want all parts", admitted)
	}
}

// TestDueGroupsAreFoundAfterARestart: the next segment of a JobSet that has begun comes first in its queue, and would take the quota that is kept for the group
// if the new Engine did not know before its first cycle that the group is due.
func TestDueGroupsAreFoundAfterARestart(t *testing.T) {
	w := reserving(t, []string{"p", "q"})
	w.lone("p", "p0", "gpu=2")
	w.lone("q", "q0", "gpu=4")
	w.decide()
	w.lone("p", "a", "gpu=4", together("ab", 2))
	w.lone("q", "b", "gpu=4", together("ab", 2))
	w.submit("p", "js", job{name: "one", requests: "gpu=2"}, job{name: "two", requests: "gpu=2", after: []string{"one Complete"}})
	w.wantAdmitted("js-one")
	w.untilDue()
	w.reach("js", "one", stageplan.Ready)
	w.reach("js", "one", stageplan.Succeeded)
	w.restart()
	w.wantAdmitted()
	w.wantRefusal("js-two", "DelaysNone", waitingForQuota, `would delay quota Workload "a"`)
	if admitted := w.ends("p0", "q0"); !slices.Equal(admitted, []string{"a", "b"}) {
		t.Errorf("admitted %v, want the group", admitted)
	}
}

// TestStagesThatEndBeforeAGroupOvertake: when the group will start is known, although quota is reserved for it already.
func TestStagesThatEndBeforeAGroupOvertake(t *testing.T) {
	limit := func(seconds int32) func(*kueue.Workload) {
		return func(wl *kueue.Workload) { wl.Spec.MaximumExecutionTimeSeconds = &seconds }
	}
	w := reserving(t, []string{"p", "r"}, inCohort("c"))
	w.lone("p", "long", "gpu=4", limit(1800))
	w.lone("r", "r0", "gpu=2", limit(120))
	w.lone("r", "r1", "gpu=2", limit(120))
	w.decide()
	w.lone("p", "a", "gpu=3", together("ab", 2))
	w.lone("p", "b", "gpu=2", together("ab", 2))
	w.decide()
	w.untilDue()
	w.lone("p", "small", "gpu=2", limit(300))
	w.wantAdmitted()
	if admitted := w.ends("r0", "r1"); !slices.Equal(admitted, []string{"small"}) {
		t.Errorf("admitted %v, want what surely ends before the group can start; refusals %v", admitted, w.refusals)
	}
	w.wantRefusal("a", "QuotaFits", waitingForQuota, "up to 5 nvidia.com/gpu of flavor a; it starts by 2026-01-01T00:30:3")
}

// TestStagesBesideADueOneAreWoken: a stage that would delay the due one waits for what is left beside it in their ClusterQueue, also while the due stage goes on
// waiting.
func TestStagesBesideADueOneAreWoken(t *testing.T) {
	w := reserving(t, []string{"p", "r"}, inCohort("c"))
	w.lone("r", "borrower", "gpu=6")
	w.lone("p", "p0", "gpu=1")
	w.decide()
	w.lone("p", "due", "gpu=3")
	w.decide()
	w.untilDue()
	w.lone("p", "small", "gpu=1")
	w.wantAdmitted()
	w.wantRefusal("small", "DelaysNone", waitingForQuota, "would delay")
	if admitted := w.ends("p0"); !slices.Equal(admitted, []string{"small"}) {
		t.Errorf("admitted %v, want what fits beside the due stage", admitted)
	}
}

// TestReservationsShrinkWhenOthersOvertake: what a more important stage takes is no longer reserved, so that others may borrow the rest of the Cohort.
func TestReservationsShrinkWhenOthersOvertake(t *testing.T) {
	w := reserving(t, []string{"r", "s"}, inCohort("c"))
	w.queue("p", "a: gpu=4", inCohort("c"), withLimits(0, -1))
	w.lone("p", "p0", "gpu=2")
	w.lone("r", "r0", "gpu=4")
	w.decide()
	w.lone("p", "due", "gpu=4")
	w.decide()
	w.untilDue()
	w.decide()
	w.important("p", "urgent", "gpu=2", 1)
	w.wantAdmitted("urgent")
	w.lone("r", "borrower", "gpu=4")
	w.wantAdmitted("borrower")
}

// TestGangsTakeFlavorsThatDelayNone: of two due groups, the later one borrows with the first flavors with which its gangs fit together, and would delay the earlier
// one, which in turn must not borrow from it. With other flavors it borrows nothing.
func TestGangsTakeFlavorsThatDelayNone(t *testing.T) {
	w := reserving(t, nil)
	shared := func(q *kueue.ClusterQueue) { q.Spec.CohortName = "c" }
	w.queue("q", "a: gpu=4; b: gpu=3", shared)
	w.queue("p", "a: gpu=2; b: gpu=0", shared)
	busy := []string{"busy-p", "busy-a", "busy-b"}
	w.lone("p", "busy-p", "gpu=2")
	w.lone("q", "busy-a", "gpu=4")
	w.lone("q", "busy-b", "gpu=3")
	w.decide()
	w.lone("p", "early0", "gpu=2", together("early", 2))
	w.lone("p", "early1", "gpu=3", together("early", 2))
	w.clock++
	w.lone("q", "late0", "gpu=3", together("late", 2))
	w.lone("q", "late1", "gpu=3", together("late", 2))
	w.wantAdmitted()
	w.untilDue()
	w.wantAdmitted()
	if admitted := w.ends(busy...); !slices.Equal(admitted, []string{"late0", "late1"}) {
		t.Errorf("admitted %v, want the later group: the earlier one needs what is reserved for it; refusals %v", admitted, w.refusals)
	}
	if admitted := w.ends("late0", "late1"); !slices.Equal(admitted, []string{"early0", "early1"}) {
		t.Errorf("admitted %v, want the earlier group; refusals %v", admitted, w.refusals)
	}
}
