package admission_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/apis/visibility"
)

// told formats an explanation, one line for each shortage; alternatives have numbers.
func told(x *visibility.Explanation) []string {
	lines := []string{x.Check}
	if x.Behind != nil {
		lines = append(lines, "behind "+x.Behind.String())
	}
	for i, a := range x.Alternatives {
		for _, s := range a.Shortages {
			c := s.Constraint
			line := fmt.Sprintf("%d %s needs %s, %s free, %s missing: %s of %s %s is %s", i, s.Flavor, s.Needed.String(), s.Free.String(), s.Missing.String(),
				c.Limit, c.Kind, c.Name, c.Amount.String())
			for _, h := range s.Holders {
				line += fmt.Sprintf("; %s %s in %s %s", h.Kind, h.Reference, h.ClusterQueue, h.Amount.String())
				if h.Kept {
					line += " kept"
				}
				if h.Leaving {
					line += " leaving"
				}
				if h.RunsUntil != nil {
					line += " runs until " + h.RunsUntil.Format(time.TimeOnly)
				}
			}
			if s.MoreHolders > 0 {
				line += fmt.Sprintf("; %d more", s.MoreHolders)
			}
			if s.Unreleasable != nil {
				line += "; unreleasable " + s.Unreleasable.String()
			}
			lines = append(lines, line)
		}
	}
	return lines
}

func policy(name string) func(*kueue.ClusterQueue) {
	return func(q *kueue.ClusterQueue) { q.Annotations = map[string]string{apis.StageAdmissionAnnotation: name} }
}

func TestExplanation(t *testing.T) {
	for name, tc := range map[string]struct {
		make func(*world)
		// want is about the quota Workload named asks, if that is set.
		asks string
		want []string
	}{
		"nominal quota": {
			make: func(w *world) {
				w.queue("q", "a100: gpu=8")
				w.lone("q", "two", "gpu=2")
				w.lone("q", "three", "gpu=3")
				w.submit("q", "js", job{name: "only", requests: "gpu=3"})
				w.decide()
				w.lone("q", "asks", "gpu=5")
			},
			want: []string{"QuotaFits", "0 a100 needs 5, 0 free, 5 missing: nominalQuota of ClusterQueue q is 8; JobSet ns/js in q 3; Workload ns/three in q 3"},
		},
		"the smallest that is enough is not looked for": {
			make: func(w *world) {
				w.queue("q", "a100: gpu=8")
				w.lone("q", "one", "gpu=1")
				w.lone("q", "seven", "gpu=7")
				w.decide()
				w.lone("q", "asks", "gpu=1")
			},
			want: []string{"QuotaFits", "0 a100 needs 1, 0 free, 1 missing: nominalQuota of ClusterQueue q is 8; Workload ns/seven in q 7"},
		},
		"nominal quota that is kept from others only": {
			make: func(w *world) {
				w.queue("q", "a100: gpu=4", inCohort("c"), reclaiming(kueue.PreemptionPolicyLowerPriority), func(q *kueue.ClusterQueue) {
					q.Spec.QueueingStrategy = kueue.StrictFIFO
				})
				w.submit("q", "js", job{name: "ps", requests: "gpu=1"}, job{name: "train", requests: "gpu=3", after: []string{"ps Ready"}})
				w.lone("q", "own", "gpu=1")
				w.decide()
				w.important("q", "head", "gpu=4", 9)
				w.decide()
				w.reach("js", "ps", stageplan.Ready)
			},
			asks: "js-train",
			want: []string{"QuotaFits", "0 a100 needs 3, 2 free, 1 missing: sharedQuota of Cohort c is 4; Workload ns/own in q 1"},
		},
		"borrowing limit": {
			make: func(w *world) {
				w.queue("p", "a100: gpu=8", inCohort("c"))
				w.queue("q", "a100: gpu=2", inCohort("c"), withLimits(3, -1))
				w.lone("p", "stranger", "gpu=1")
				w.lone("q", "own", "gpu=4")
				w.decide()
				w.lone("q", "asks", "gpu=2")
			},
			want: []string{"QuotaFits", "0 a100 needs 2, 1 free, 1 missing: borrowingLimit of ClusterQueue q is 3; Workload ns/own in q 4"},
		},
		"quota that a cohort shares": {
			make: func(w *world) {
				w.cohort("root", "", 2)
				w.cohort("left", "root", 0)
				w.queue("p", "a100: gpu=4", inCohort("root"))
				w.queue("q", "a100: gpu=2", inCohort("left"))
				w.lone("p", "stranger", "gpu=5")
				w.lone("q", "own", "gpu=1")
				w.decide()
				w.lone("q", "asks", "gpu=3")
			},
			want: []string{"QuotaFits", "0 a100 needs 3, 2 free, 1 missing: sharedQuota of Cohort root is 8; Workload ns/stranger in p 5"},
		},
		"quota that no other ClusterQueue can use does not count": {
			make: func(w *world) {
				w.queue("p", "a100: gpu=6", inCohort("c"), withLimits(-1, 1))
				w.queue("q", "a100: gpu=4", inCohort("c"))
				w.lone("p", "keeps", "gpu=5")
				w.lone("q", "own", "gpu=4")
				w.decide()
				w.lone("q", "asks", "gpu=2")
			},
			want: []string{"QuotaFits", "0 a100 needs 2, 1 free, 1 missing: sharedQuota of Cohort c is 5; Workload ns/own in q 4"},
		},
		"lending limit of a sibling": {
			make: func(w *world) {
				w.queue("p", "a100: gpu=4", inCohort("c"), withLimits(-1, 1))
				w.queue("q", "a100: gpu=4", inCohort("c"))
				w.lone("q", "own", "gpu=4")
				w.decide()
				w.lone("q", "asks", "gpu=2")
			},
			want: []string{"QuotaFits", "0 a100 needs 2, 1 free, 1 missing: lendingLimit of ClusterQueue p is 1; Workload ns/own in q 4"},
		},
		"more is used than there is": {
			make: func(w *world) {
				w.queue("q", "a100: gpu=8")
				w.lone("q", "big", "gpu=8")
				w.decide()
				w.queue("q", "a100: gpu=2")
				w.lone("q", "asks", "gpu=1")
			},
			want: []string{"QuotaFits", "0 a100 needs 1, 0 free, 7 missing: nominalQuota of ClusterQueue q is 2; Workload ns/big in q 8"},
		},
		"many holders": {
			make: func(w *world) {
				w.queue("q", "a100: gpu=8")
				for _, name := range []string{"g", "f", "e", "d", "c", "b", "a"} {
					w.lone("q", name, "gpu=1")
				}
				w.decide()
				w.lone("q", "asks", "gpu=8")
			},
			want: []string{"QuotaFits", "0 a100 needs 8, 1 free, 7 missing: nominalQuota of ClusterQueue q is 8; " +
				"Workload ns/a in q 1; Workload ns/b in q 1; Workload ns/c in q 1; Workload ns/d in q 1; Workload ns/e in q 1; 2 more"},
		},
		"two flavors": {
			make: func(w *world) {
				w.queue("q", "a100: gpu=2 cpu=4; h100: gpu=3 cpu=4")
				w.lone("q", "on-a100", "gpu=1")
				w.lone("q", "on-h100", "gpu=3 cpu=4")
				w.decide()
				w.lone("q", "asks", "gpu=2 cpu=1")
			},
			want: []string{
				"QuotaFits",
				"0 a100 needs 2, 1 free, 1 missing: nominalQuota of ClusterQueue q is 2; Workload ns/on-a100 in q 1",
				"1 h100 needs 1, 0 free, 1 missing: nominalQuota of ClusterQueue q is 4; Workload ns/on-h100 in q 4",
				"1 h100 needs 2, 0 free, 2 missing: nominalQuota of ClusterQueue q is 3; Workload ns/on-h100 in q 3",
			},
		},
		"what its own JobSet holds is not given back": {
			make: func(w *world) {
				w.queue("q", "a100: gpu=8", policy(admission.Greedy))
				w.submit("q", "js", twoStages("gpu=6", "Ready", "gpu=4")...)
				w.lone("q", "other", "gpu=1")
				w.decide()
				w.reach("js", "first", stageplan.Ready)
			},
			asks: "js-second",
			want: []string{"QuotaFits", "0 a100 needs 4, 1 free, 3 missing: nominalQuota of ClusterQueue q is 8; Workload ns/other in q 1; unreleasable 2"},
		},
		"an impossible request": {
			make: func(w *world) {
				w.queue("p", "a100: gpu=4", inCohort("c"), withLimits(-1, 1))
				w.queue("q", "a100: gpu=2", inCohort("c"), withLimits(0, -1))
				w.lone("q", "asks", "gpu=3")
			},
			want: []string{"WithinLimits", "0 a100 needs 3, 2 free, 1 missing: borrowingLimit of ClusterQueue q is 0"},
		},
		"an impossible peak": {
			make: func(w *world) {
				w.queue("q", "a100: gpu=8")
				w.submit("q", "js", twoStages("gpu=4", "Ready", "gpu=5")...)
			},
			asks: "js-first",
			want: []string{"PeakWithinLimits", "0 a100 needs 9, 8 free, 1 missing: nominalQuota of ClusterQueue q is 8"},
		},
		"policy Reserve": {
			make: func(w *world) {
				w.queue("q", "a100: gpu=11", policy(admission.Reserve))
				w.submit("q", "a", twoStages("gpu=2", "Ready", "gpu=6")...)
				w.decide()
				w.submit("q", "b", twoStages("gpu=2", "Ready", "gpu=6")...)
			},
			asks: "b-first",
			want: []string{"PeakFits", "0 a100 needs 8, 3 free, 5 missing: nominalQuota of ClusterQueue q is 11; JobSet ns/a in q 8 kept"},
		},
		"policy Safe": {
			make: func(w *world) {
				w.queue("q", "a100: gpu=9", policy(admission.Safe))
				w.submit("q", "a", twoStages("gpu=2", "Ready", "gpu=6")...)
				w.decide()
				w.submit("q", "b", twoStages("gpu=2", "Ready", "gpu=6")...)
			},
			asks: "b-first",
			want: []string{"StageUnsafe", "0 a100 needs 6, 5 free, 1 missing: nominalQuota of ClusterQueue q is 9; JobSet ns/a in q 2"},
		},
		"StrictFIFO": {
			make: func(w *world) {
				w.queue("q", "a100: gpu=4", func(q *kueue.ClusterQueue) { q.Spec.QueueingStrategy = kueue.StrictFIFO })
				w.lone("q", "runs", "gpu=2")
				w.decide()
				w.lone("q", "first", "gpu=4")
				w.lone("q", "asks", "gpu=1")
			},
			want: []string{"StrictFIFO", "behind ns/first"},
		},
		"preemption": {
			make: func(w *world) {
				w.queue("q", "a100: gpu=4", preempting(kueue.PreemptionPolicyLowerPriority))
				w.lone("q", "low", "gpu=2")
				w.important("q", "high", "gpu=2", 9)
				w.decide()
				w.important("q", "asks", "gpu=1", 5)
			},
			want: []string{"RoomIsMade", "0 a100 needs 1, 0 free, 1 missing: nominalQuota of ClusterQueue q is 4; Workload ns/low in q 2 leaving"},
		},
		"a preemption with notice": {
			make: func(w *world) {
				w.queue("q", "a100: gpu=4", preempting(kueue.PreemptionPolicyLowerPriority), func(q *kueue.ClusterQueue) {
					metav1.SetMetaDataAnnotation(&q.ObjectMeta, apis.PreemptionNoticeAnnotation, "5m")
				})
				w.lone("q", "low", "gpu=4")
				w.decide()
				w.important("q", "asks", "gpu=2", 9)
			},
			want: []string{"RoomIsMade", "0 a100 needs 2, 0 free, 2 missing: nominalQuota of ClusterQueue q is 4; Workload ns/low in q 4 runs until 00:05:02"},
		},
		"a preemption reservation": {
			make: func(w *world) {
				w.queue("q", "a100: gpu=4", preempting(kueue.PreemptionPolicyLowerPriority))
				w.lone("q", "low", "gpu=4")
				w.decide()
				w.important("q", "high", "gpu=3", 9)
				w.decide()
				w.lone("q", "asks", "gpu=2")
			},
			want: []string{"QuotaFits", "0 a100 needs 2, 0 free, 5 missing: nominalQuota of ClusterQueue q is 4; " +
				"Workload ns/low in q 4 leaving; Workload ns/high in q 3 kept"},
		},
		"a gate": {
			make: func(w *world) {
				w.queue("q", "a100: gpu=4")
				w.submit("q", "js", twoStages("gpu=1", "Ready", "gpu=1")...)
			},
			asks: "js-second",
			want: []string{"IsOpen"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, admission.Config{})
			tc.make(w)
			w.decide()
			if tc.asks == "" {
				tc.asks = "asks"
			}
			x, ok := w.engine.Explanation(keyOf(tc.asks))
			if !ok {
				t.Fatalf("no explanation of %s", tc.asks)
			}
			if diff := cmp.Diff(tc.want, told(&x)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if again, _ := w.engine.Explanation(keyOf(tc.asks)); !cmp.Equal(told(&x), told(&again)) {
				t.Errorf("asked again: %s", told(&again))
			}
			if refusals := w.engine.Explain(keyOf(tc.asks)); len(refusals) > 0 && x.Message != refusals[0].Message {
				t.Errorf("the message is %q, that of the refusal %q", x.Message, refusals[0].Message)
			}
		})
	}
}

func TestExplanationOfWhoDoesNotWait(t *testing.T) {
	w := newWorld(t, admission.Config{})
	w.queue("q", "a100: gpu=4")
	w.lone("q", "runs", "gpu=1")
	w.lone("q", "next", "gpu=1")
	if x, ok := w.engine.Explanation(keyOf("next")); !ok || x.Check != "" || x.Message != "" {
		t.Errorf("nothing is in the way of next, but: %v, %+v", ok, x)
	}
	w.wantAdmitted("runs", "next")
	for _, name := range []string{"runs", "absent"} {
		if x, ok := w.engine.Explanation(keyOf(name)); ok {
			t.Errorf("%s: %+v", name, x)
		}
	}
}

// immigrate adds a JobSet like an existing one to namespace other.
func (w *world) immigrate(like, name string) {
	w.clock++
	model := w.jobSets[like]
	uid := types.UID("js-" + name)
	w.engine.Apply(admission.PlanObserved{Owner: admission.Owner{Kind: admission.JobSetOwner, Key: types.NamespacedName{Namespace: "other", Name: name}}, UID: uid, Submitted: w.now(), Plan: model.plan})
	for i := range model.plan.Stages {
		stage := model.plan.Stages[i].Name
		wl := w.workloads[keyOf(like+"-"+stage)].DeepCopy()
		wl.Namespace, wl.Name, wl.UID, wl.Status = "other", name+"-"+stage, types.UID("wl-"+name+"-"+stage), kueue.WorkloadStatus{}
		wl.OwnerReferences[0].Name, wl.OwnerReferences[0].UID, wl.CreationTimestamp = name, uid, metav1.NewTime(w.now())
		w.put(wl)
	}
}

// TestNamesOfOtherNamespacesStayHidden: answers for a LocalQueue do not contain names of objects in other namespaces, and no message does, since messages are
// in the conditions and Events of the waiting stage.
func TestNamesOfOtherNamespacesStayHidden(t *testing.T) {
	isOther := func(wl *kueue.Workload) { wl.Namespace = "other" }
	for name, tc := range map[string]struct {
		make        func(*world)
		asks        string
		wantMessage string
		// wantAll is reported for the ClusterQueue, and want for the LocalQueue.
		wantAll, want []string
	}{
		"holders": {
			make: func(w *world) {
				w.queue("q", "a100: gpu=8")
				w.lone("q", "theirs", "gpu=5")
				w.lone("q", "mine", "gpu=3", isOther)
				w.decide()
				w.lone("q", "asks", "gpu=6", isOther)
			},
			asks:        "asks",
			wantMessage: "waits for quota in ClusterQueue q: needs 6 nvidia.com/gpu of flavor a100: 0 of 8 free",
			wantAll: []string{
				"QuotaFits", "0 a100 needs 6, 0 free, 6 missing: nominalQuota of ClusterQueue q is 8; Workload ns/theirs in q 5; Workload other/mine in q 3",
			},
			want: []string{"QuotaFits", "0 a100 needs 6, 0 free, 6 missing: nominalQuota of ClusterQueue q is 8; Workload  in q 5; Workload other/mine in q 3"},
		},
		"StrictFIFO behind a stranger": {
			make: func(w *world) {
				w.queue("q", "a100: gpu=4", func(q *kueue.ClusterQueue) { q.Spec.QueueingStrategy = kueue.StrictFIFO })
				w.lone("q", "first", "gpu=2")
				w.decide()
				w.lone("q", "second", "gpu=4")
				w.lone("q", "asks", "gpu=1", isOther)
			},
			asks:        "asks",
			wantMessage: "waits behind a quota Workload of another namespace, which comes first in ClusterQueue q (queueingStrategy StrictFIFO)",
			wantAll:     []string{"StrictFIFO", "behind ns/second"},
			want:        []string{"StrictFIFO"},
		},
		"StrictFIFO behind one of its own namespace": {
			make: func(w *world) {
				w.queue("q", "a100: gpu=4", func(q *kueue.ClusterQueue) { q.Spec.QueueingStrategy = kueue.StrictFIFO })
				w.lone("q", "first", "gpu=2")
				w.decide()
				w.lone("q", "second", "gpu=4", isOther)
				w.lone("q", "asks", "gpu=1", isOther)
			},
			asks:        "asks",
			wantMessage: `waits behind quota Workload "second", which comes first in ClusterQueue q (queueingStrategy StrictFIFO)`,
			wantAll:     []string{"StrictFIFO", "behind other/second"},
			want:        []string{"StrictFIFO", "behind other/second"},
		},
		"a stage that is not safe": {
			make: func(w *world) {
				w.queue("q", "a100: gpu=11", policy(admission.Safe))
				w.submit("q", "a", twoStages("gpu=2", "Ready", "gpu=6")...)
				w.immigrate("a", "c")
				w.decide()
				w.immigrate("a", "b")
			},
			asks: "b-first",
			wantMessage: "fits in ClusterQueue q, but admitting it could deadlock this JobSet and other/c, 1 of another namespace on quota for later stages: " +
				"5 of 11 nvidia.com/gpu of flavor a100 would stay free, and up to 6 more may be needed at once",
			wantAll: []string{"StageUnsafe", "0 a100 needs 6, 5 free, 1 missing: nominalQuota of ClusterQueue q is 11; JobSet ns/a in q 2"},
			want:    []string{"StageUnsafe", "0 a100 needs 6, 5 free, 1 missing: nominalQuota of ClusterQueue q is 11; JobSet  in q 2"},
		},
		"a stage that is not safe because of strangers": {
			make: func(w *world) {
				w.queue("q", "a100: gpu=11", policy(admission.Safe))
				w.submit("q", "a", twoStages("gpu=2", "Ready", "gpu=6")...)
				w.submit("q", "d", twoStages("gpu=2", "Ready", "gpu=6")...)
				w.decide()
				w.immigrate("a", "b")
			},
			asks: "b-first",
			wantMessage: "fits in ClusterQueue q, but admitting it could deadlock this JobSet and 2 of other namespaces on quota for later stages: " +
				"5 of 11 nvidia.com/gpu of flavor a100 would stay free, and up to 6 more may be needed at once",
			wantAll: []string{"StageUnsafe", "0 a100 needs 6, 5 free, 1 missing: nominalQuota of ClusterQueue q is 11; JobSet ns/a in q 2"},
			want:    []string{"StageUnsafe", "0 a100 needs 6, 5 free, 1 missing: nominalQuota of ClusterQueue q is 11; JobSet  in q 2"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, admission.Config{})
			w.engine.Apply(admission.NamespaceObserved{Name: "other"})
			w.engine.Apply(admission.LocalQueueObserved{LocalQueue: &kueue.LocalQueue{
				ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "q", UID: "lq-other"}, Spec: kueue.LocalQueueSpec{ClusterQueue: "q"},
			}})
			tc.make(w)
			w.decide()
			key := admission.StageKey{Namespace: "other", Name: tc.asks}
			x, ok := w.engine.Explanation(key)
			if !ok || x.Message != tc.wantMessage {
				t.Errorf("%v, message %q, want %q", ok, x.Message, tc.wantMessage)
			}
			if told := w.refusals[key].Message; told != tc.wantMessage {
				t.Errorf("refused with %q, want %q", told, tc.wantMessage)
			}
			stripped := x.RedactedFor("other")
			if diff := cmp.Diff(tc.want, told(&stripped)); diff != "" {
				t.Errorf("through the LocalQueue (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.wantAll, told(&x)); diff != "" {
				t.Errorf("the explanation itself (-want +got):\n%s", diff)
			}
		})
	}
}
