package admission_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/apis"
)

// together makes a quota Workload a member of a co-admission group.
func together(id string, size int) func(*kueue.Workload) {
	return func(wl *kueue.Workload) {
		wl.Labels = map[string]string{apis.AdmitTogetherLabel: id}
		wl.Annotations = map[string]string{apis.AdmitTogetherCountAnnotation: strconv.Itoa(size)}
	}
}

func strictFIFO(q *kueue.ClusterQueue) { q.Spec.QueueingStrategy = kueue.StrictFIFO }

// twoQueues has a ClusterQueue for each of two roles, which share nothing.
func twoQueues(t *testing.T, change ...func(*kueue.ClusterQueue)) *world {
	t.Helper()
	w := newWorld(t, admission.Config{})
	w.queue("p", "a: gpu=4", change...)
	w.queue("q", "b: gpu=4", change...)
	return w
}

func TestGangsAreAdmittedTogetherOrNotAtAll(t *testing.T) {
	w := twoQueues(t)
	w.lone("q", "busy", "gpu=2")
	w.wantAdmitted("busy")
	w.lone("p", "a", "gpu=4", together("ab", 2))
	w.wantAdmitted()
	w.wantRefusal("a", "GangsAreThere", kueue.WorkloadQuotaReservedReasonPendingEvaluation, "waits until all 2 gangs")
	w.lone("q", "b", "gpu=4", together("ab", 2))
	w.wantAdmitted()
	w.wantRefusal("a", "GangsPassTogether", kueue.WorkloadQuotaReservedReasonWaitingForQuota, "waits for gang b, which is admitted together with it and waits for quota in ClusterQueue q")
	w.wantRefusal("b", "QuotaFits", kueue.WorkloadQuotaReservedReasonWaitingForQuota, "needs 4 nvidia.com/gpu of flavor b: 2 of 4 free")
	if used := w.used("p"); used != "a/nvidia.com/gpu=0" {
		t.Errorf("%s is held for a gang that does not fit whole", used)
	}
	w.lone("p", "small", "gpu=1")
	w.wantAdmitted("small")
	w.change("busy", finish)
	w.wantAdmitted()
	w.change("small", finish)
	w.wantAdmitted("a", "b")
	if decisions := w.engine.Decide(w.now()); len(decisions) > 0 {
		t.Errorf("still decides %v", decisions)
	}
}

// TestGangsShareQuota: each of two fits, also with the first choice of flavors, and both only with another choice of the first.
func TestGangsShareQuota(t *testing.T) {
	w := newWorld(t, admission.Config{})
	w.queue("q", "a: gpu=4; b: gpu=4")
	onlyA := func(wl *kueue.Workload) {
		wl.Spec.PodSets[0].Template.Spec.NodeSelector = map[string]string{"flavor": "a"}
	}
	w.lone("q", "any", "gpu=4", together("x", 2))
	w.lone("q", "picky", "gpu=4", together("x", 2), onlyA)
	w.wantAdmitted("any", "picky")
	w.change("any", finish)
	w.change("picky", finish)
	w.lone("q", "one", "gpu=4", together("y", 2), onlyA)
	w.lone("q", "other", "gpu=4", together("y", 2), onlyA)
	w.wantAdmitted()
	for _, name := range []string{"one", "other"} {
		w.wantRefusal(name, "WithinLimits", kueue.WorkloadQuotaReservedReasonExceedsMaxQuota, "can never fit: the 2 gangs that are admitted together need more quota at the same time")
	}
}

// TestGangsThatFitOnlyAloneWakeTogether: each would fit alone, and released quota makes room for both.
func TestGangsThatFitOnlyAloneWakeTogether(t *testing.T) {
	w := newWorld(t, admission.Config{})
	w.queue("p", "a: gpu=2", inCohort("c"))
	w.queue("q", "a: gpu=2", inCohort("c"))
	w.lone("p", "busy", "gpu=1")
	w.wantAdmitted("busy")
	w.lone("p", "a", "gpu=2", together("ab", 2))
	w.lone("q", "b", "gpu=2", together("ab", 2))
	w.wantAdmitted()
	w.wantRefusal("b", "GangsPassTogether", kueue.WorkloadQuotaReservedReasonWaitingForQuota, "it fits alone, but not together with the other gang that is admitted with it")
	w.change("busy", finish)
	w.wantAdmitted("a", "b")
}

func TestWhatIsWrongWithGangs(t *testing.T) {
	closed := func(wl *kueue.Workload) { wl.Spec.Active = new(false) }
	elsewhere := func(wl *kueue.Workload) { wl.Namespace = "other" }
	for name, tt := range map[string]struct {
		first, second []func(*kueue.Workload)
		check, want   string
	}{
		"they disagree": {
			[]func(*kueue.Workload){together("x", 2)},
			[]func(*kueue.Workload){together("x", 3)},
			"GangsAgree", "declares that 2 gangs are admitted together, but at least one of them declares another number",
		},
		"one says nothing": {
			[]func(*kueue.Workload){together("x", 2)}, []func(*kueue.Workload){together("x", 0)}, "GangsAgree", "from 1 to 64 gangs can be admitted together",
		},
		"there are too many": {
			[]func(*kueue.Workload){together("x", 1)}, []func(*kueue.Workload){together("x", 1)}, "GangsAgree", "belongs to a group of 1 gangs that are admitted together, but the group has more",
		},
		"one is of a plan": {
			[]func(*kueue.Workload){together("x", 2)},
			[]func(*kueue.Workload){together("x", 2), func(wl *kueue.Workload) { wl.Labels[apis.PlanUIDLabel] = "js-planned" }},
			"GangsAgree", "one of the gangs that are admitted together belongs to a stage plan",
		},
		"one asks for nothing": {
			[]func(*kueue.Workload){together("x", 2)},
			[]func(*kueue.Workload){together("x", 2), closed},
			"GangsAreThere", "waits until gang second, which is admitted together with it, requests quota: the quota Workload is not active: spec.active is false; set spec.active to true",
		},
		"one names no queue": {
			[]func(*kueue.Workload){together("x", 2)},
			[]func(*kueue.Workload){together("x", 2), func(wl *kueue.Workload) { wl.Spec.QueueName = "none" }},
			"GangsPassTogether", "waits for gang second, which is admitted together with it: there is no LocalQueue none",
		},
		"one is too large": {
			[]func(*kueue.Workload){together("x", 2)},
			[]func(*kueue.Workload){together("x", 2), func(wl *kueue.Workload) { wl.Spec.PodSets[0].Count = 9 }},
			"GangsPassTogether", "waits for gang second, which is admitted together with it: can never fit",
		},
		"one of another namespace asks for nothing": {
			[]func(*kueue.Workload){together("x", 2)},
			[]func(*kueue.Workload){together("x", 2), closed, elsewhere},
			"GangsAreThere", "waits until a gang of another namespace, which is admitted together with it, requests quota",
		},
		"one of another namespace names no queue": {
			[]func(*kueue.Workload){together("x", 2)},
			[]func(*kueue.Workload){together("x", 2), elsewhere},
			"GangsPassTogether", "waits for a gang of another namespace, which is admitted together with it",
		},
	} {
		t.Run(name, func(t *testing.T) {
			// If the gangs do not block their queues, the next one passes.
			w := twoQueues(t, strictFIFO)
			w.lone("p", "first", "gpu=1", tt.first...)
			w.lone("q", "second", "gpu=1", tt.second...)
			w.lone("p", "behind", "gpu=3")
			w.wantAdmitted("behind")
			r := w.refusals[keyOf("first")]
			if r.Check != tt.check || !strings.HasPrefix(r.Message, tt.want) {
				t.Errorf("refused by %s: %s\nwant %s: %s", r.Check, r.Message, tt.check, tt.want)
			}
			if strings.Contains(r.Message, "another namespace") && (strings.Contains(r.Message, "second") || strings.Contains(r.Message, "LocalQueue")) {
				t.Errorf("discloses another namespace: %s", r.Message)
			}
			if explained := w.engine.Explain(keyOf("first")); len(explained) != 1 || explained[0] != r {
				t.Errorf("explained by %v, refused by %v", explained, r)
			}
			if x, ok := w.engine.Explanation(keyOf("first")); !ok || x.Message != r.Message {
				t.Errorf("explanation %v, refused by %v", x, r)
			}
		})
	}
}

// TestGangsHoldUpTheirLines: if missing quota is the only obstacle, no stage overtakes any of them, and the stages behind them are refused.
func TestGangsHoldUpTheirLines(t *testing.T) {
	w := twoQueues(t, strictFIFO)
	w.lone("q", "busy", "gpu=4")
	w.wantAdmitted("busy")
	w.lone("p", "a", "gpu=1", together("ab", 2))
	w.lone("q", "b", "gpu=1", together("ab", 2))
	w.lone("p", "behind", "gpu=1")
	w.wantAdmitted()
	w.wantRefusal("behind", "StrictFIFO", kueue.WorkloadQuotaReservedReasonWaitingForQuota, `waits behind quota Workload "a"`)
	w.change("busy", finish)
	w.wantAdmitted("a", "b", "behind")
}

// TestGangsInOppositeOrder: each precedes the other in one of two StrictFIFO queues.
func TestGangsInOppositeOrder(t *testing.T) {
	w := twoQueues(t, strictFIFO)
	w.lone("p", "busy-p", "gpu=4")
	w.lone("q", "busy-q", "gpu=4")
	w.wantAdmitted("busy-p", "busy-q")
	w.lone("p", "a1", "gpu=3", together("a", 2))
	w.lone("q", "b1", "gpu=3", together("b", 2))
	w.lone("q", "a2", "gpu=3", together("a", 2))
	w.lone("p", "b2", "gpu=3", together("b", 2))
	w.wantAdmitted()
	w.change("busy-p", finish)
	w.wantAdmitted()
	w.change("busy-q", finish)
	admitted := w.decide()
	if slices.Sort(admitted); !slices.Equal(admitted, []string{"a1", "a2"}) && !slices.Equal(admitted, []string{"b1", "b2"}) {
		t.Fatalf("admitted %v, want one of the two; refusals %v", admitted, w.refusals)
	}
	for _, name := range admitted {
		w.change(name, finish)
	}
	if rest := w.decide(); len(rest) != 2 {
		t.Fatalf("admitted %v after %v; refusals %v", rest, admitted, w.refusals)
	}
}

// TestGangsWaitForEachOthersTurn: of two groups each precedes the other in some queue, and there is quota for both.
func TestGangsWaitForEachOthersTurn(t *testing.T) {
	for name, change := range map[string]func(*kueue.ClusterQueue){"best effort": func(*kueue.ClusterQueue) {}, "strict": strictFIFO, "one cohort": inCohort("c")} {
		t.Run(name, func(t *testing.T) {
			w := twoQueues(t, change)
			w.lone("p", "a1", "gpu=1", together("a", 2))
			w.lone("q", "b1", "gpu=1", together("b", 2))
			w.lone("q", "a2", "gpu=1", together("a", 2))
			w.lone("p", "b2", "gpu=1", together("b", 2))
			admitted := w.decide()
			if slices.Sort(admitted); !slices.Equal(admitted, []string{"a1", "a2", "b1", "b2"}) {
				t.Fatalf("admitted %v; refusals %v", admitted, w.refusals)
			}
		})
	}
}

// TestGroupIsCheckedAgainWhenAMemberIsDeleted: a group that had one member too many is checked again when that is deleted.
func TestGroupIsCheckedAgainWhenAMemberIsDeleted(t *testing.T) {
	w := twoQueues(t)
	for _, name := range []string{"a", "b", "c"} {
		w.lone("p", name, "gpu=1", together("x", 2))
	}
	w.wantAdmitted()
	w.remove("b")
	w.wantAdmitted("a", "c")
}

// TestGangsComeToTheirTurn: the second gang is not admitted before the stages that precede it in its queue, and the stages behind the first do
// not take its place meanwhile.
func TestGangsComeToTheirTurn(t *testing.T) {
	w := twoQueues(t)
	w.lone("p", "a", "gpu=4", together("ab", 2))
	w.lone("p", "behind", "gpu=4")
	w.lone("q", "before", "gpu=2")
	w.lone("q", "b", "gpu=2", together("ab", 2))
	w.wantAdmitted("before", "a", "b")
	w.wantRefusal("behind", "QuotaFits", kueue.WorkloadQuotaReservedReasonWaitingForQuota, "needs 4")

	w = twoQueues(t)
	w.lone("p", "a", "gpu=4", together("ab", 2))
	w.lone("p", "behind", "gpu=4")
	w.lone("q", "before", "gpu=4")
	w.lone("q", "b", "gpu=2", together("ab", 2))
	w.wantAdmitted("before", "behind")
}

// decideFailing lets the named writes of the next decisions fail.
func (w *world) decideFailing(fails ...string) {
	w.t.Helper()
	for _, d := range w.engine.Decide(w.now()) {
		admit, ok := d.(admission.Admit)
		if !ok {
			continue
		}
		if slices.Contains(fails, admit.Stage.Name) {
			w.engine.Settle(admit.ID)
			continue
		}
		w.change(admit.Stage.Name, func(wl *kueue.Workload) {
			reserve(wl, &admit.Admission)
			w.date(wl)
		})
		w.engine.Settle(admit.ID)
	}
}

func TestGangsThatWereAdmittedInPart(t *testing.T) {
	t.Run("the rest still fits", func(t *testing.T) {
		w := twoQueues(t)
		w.lone("p", "a", "gpu=4", together("ab", 2))
		w.lone("q", "b", "gpu=4", together("ab", 2))
		w.decideFailing("b")
		w.wantAdmitted("b")
	})
	// A more important stage takes the quota that the rest needs before the next decision.
	inPart := func(t *testing.T, change ...func(*kueue.Workload)) *world {
		t.Helper()
		w := twoQueues(t)
		w.lone("p", "a", "gpu=4", append(change, together("ab", 2))...)
		w.lone("q", "b", "gpu=4", together("ab", 2))
		w.decideFailing("b")
		w.important("q", "vip", "gpu=4", 1)
		return w
	}
	t.Run("the rest no longer fits", func(t *testing.T) {
		w := inPart(t)
		w.wantAdmitted("vip")
		w.wantEvicted("evict ns/a Preempted")
		w.leave("a")
		w.wantAdmitted()
		w.wantRefusal("a", "GangsPassTogether", kueue.WorkloadQuotaReservedReasonWaitingForQuota, "waits for gang b")
		w.change("vip", finish)
		w.wantAdmitted("a", "b")
	})
	t.Run("the rest no longer fits, and one has reserved quota for pods that are not there", func(t *testing.T) {
		w := inPart(t, func(wl *kueue.Workload) { wl.Spec.PodSets[0].Name = apis.ReservedPodSet })
		w.change("a", func(wl *kueue.Workload) { wl.Annotations[apis.PodGroupKey] = "coscheduling.a" })
		w.wantAdmitted("vip")
		w.wantEvicted("evict ns/a Preempted")
	})
	t.Run("the rest no longer asks for quota", func(t *testing.T) {
		w := inPart(t)
		w.change("b", func(wl *kueue.Workload) { wl.Spec.Active = new(false) })
		w.wantAdmitted("vip")
		w.wantEvicted("evict ns/a Preempted")
	})
	t.Run("by an Engine that has not seen it", func(t *testing.T) {
		w := inPart(t)
		w.restart()
		w.wantAdmitted("vip")
		w.wantEvicted("evict ns/a Preempted")
	})
}

// TestAfterTheGangs: once all have been admitted, each is independent.
func TestAfterTheGangs(t *testing.T) {
	admitted := func(t *testing.T) *world {
		t.Helper()
		w := twoQueues(t)
		w.lone("p", "a", "gpu=4", together("ab", 2))
		w.lone("q", "b", "gpu=4", together("ab", 2))
		w.wantAdmitted("a", "b")
		w.clock++
		return w
	}
	evictFor := func(w *world, name, reason string) {
		w.clock++
		w.change(name, func(wl *kueue.Workload) {
			wl.Status = kueue.WorkloadStatus{Conditions: []metav1.Condition{{
				Type: kueue.WorkloadEvicted, Status: metav1.ConditionTrue, Reason: reason, LastTransitionTime: metav1.NewTime(w.now()),
			}}}
		})
	}
	evict := func(w *world, name string) { evictFor(w, name, kueue.WorkloadEvictedByPreemption) }
	for name, tt := range map[string]struct {
		happens func(*world)
		want    []string
	}{
		"one is evicted, and comes back": {func(w *world) { evict(w, "b") }, []string{"b"}},
		"one is evicted while the manager is killed": {func(w *world) {
			evict(w, "b")
			w.restart()
		}, []string{"b"}},
		"one is evicted while the manager is killed, and waits alone": {func(w *world) {
			evict(w, "b")
			w.important("q", "vip", "gpu=4", 1)
			w.restart()
		}, []string{"vip"}},
		"one is evicted by a check, and waits alone": {func(w *world) {
			evictFor(w, "b", kueue.WorkloadEvictedByAdmissionCheck)
			w.important("q", "vip", "gpu=4", 1)
		}, []string{"vip"}},
		"one gang is recreated": {func(w *world) {
			w.remove("b")
			w.lone("q", "b", "gpu=4", together("ab", 2), func(wl *kueue.Workload) { wl.UID = "another" })
			w.important("q", "vip", "gpu=4", 1)
			w.restart()
		}, []string{"vip"}},
		"one has finished, and the other is evicted": {func(w *world) {
			w.change("a", finish)
			evict(w, "b")
			w.restart()
		}, []string{"b"}},
		"both are evicted": {func(w *world) {
			evict(w, "b")
			evict(w, "a")
			w.important("q", "vip", "gpu=4", 1)
		}, []string{"vip"}},
		"the label is taken off": {func(w *world) {
			evict(w, "b")
			w.restart()
			w.change("b", func(wl *kueue.Workload) { wl.Labels = nil })
		}, []string{"b"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := admitted(t)
			tt.happens(w)
			w.wantAdmitted(tt.want...)
			w.wantEvicted()
		})
	}
}

// TestGangsWaitForEachOthersChecks: a gang that holds quota and still waits for its AdmissionChecks has not been admitted.
func TestGangsWaitForEachOthersChecks(t *testing.T) {
	w := twoQueues(t)
	w.lone("p", "a", "gpu=4", together("ab", 2))
	w.lone("q", "b", "gpu=4", together("ab", 2))
	for _, d := range w.engine.Decide(w.now()) {
		if admit, ok := d.(admission.Admit); ok {
			w.change(admit.Stage.Name, func(wl *kueue.Workload) {
				reserve(wl, &admit.Admission)
				setCondition(wl, kueue.WorkloadAdmitted, metav1.ConditionFalse)
				w.date(wl)
			})
			w.engine.Settle(admit.ID)
		}
	}
	w.clock++
	w.change("b", func(wl *kueue.Workload) {
		wl.Status = kueue.WorkloadStatus{}
		setCondition(wl, kueue.WorkloadEvicted, metav1.ConditionTrue)
		w.date(wl)
	})
	w.important("q", "vip", "gpu=4", 1)
	w.wantAdmitted("vip")
	w.wantEvicted("evict ns/a Preempted")
}

// TestGangGroupsPreemptNoStage: gangs do not preempt, but may be preempted, each alone.
func TestGangGroupsPreemptNoStage(t *testing.T) {
	w := twoQueues(t, func(q *kueue.ClusterQueue) {
		q.Spec.Preemption = &kueue.ClusterQueuePreemption{WithinClusterQueue: kueue.PreemptionPolicyLowerPriority}
	})
	w.lone("p", "low", "gpu=4")
	w.wantAdmitted("low")
	priority := func(wl *kueue.Workload) { wl.Spec.Priority = new(int32(5)) }
	w.lone("p", "a", "gpu=4", together("ab", 2), priority)
	w.lone("q", "b", "gpu=4", together("ab", 2), priority)
	w.wantAdmitted()
	w.wantEvicted()
	w.wantRefusal("a", "QuotaFits", kueue.WorkloadQuotaReservedReasonWaitingForQuota, "needs 4 nvidia.com/gpu of flavor a: 0 of 4 free")
	w.change("low", finish)
	w.wantAdmitted("a", "b")
	w.important("q", "vip", "gpu=4", 9)
	w.wantAdmitted()
	w.wantEvicted("evict ns/b InClusterQueue for ns/vip")
}

// TestGangsAreNotAdmittedWithFewerPods, though the minimum of each would fit.
func TestGangsAreNotAdmittedWithFewerPods(t *testing.T) {
	w := twoQueues(t)
	fewer := func(wl *kueue.Workload) { wl.Spec.PodSets[0].Count, wl.Spec.PodSets[0].MinCount = 3, new(int32(1)) }
	w.lone("p", "busy", "gpu=2")
	w.wantAdmitted("busy")
	w.lone("p", "a", "gpu=1", together("ab", 2), fewer)
	w.lone("q", "b", "gpu=1", together("ab", 2), fewer)
	w.wantAdmitted()
	w.change("busy", finish)
	w.wantAdmitted("a", "b")
	if used := w.used("p"); used != "a/nvidia.com/gpu=3" {
		t.Errorf("%s is used", used)
	}
}
