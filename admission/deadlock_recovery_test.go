package admission_test

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
)

// halves submits a JobSet whose first stage holds 2, and whose second stage needs more beside it.
func (w *world) halves(queue, name, more string) {
	w.t.Helper()
	w.submit(queue, name, twoStages("gpu=2", "Ready", more)...)
}

// decideUntilCalm lets all victims leave, until nothing is decided, and returns the evicted and the admitted stages.
func (w *world) decideUntilCalm() (evicted, admitted []string) {
	w.t.Helper()
	for range 50 {
		before := len(w.evictions)
		now := w.decide()
		admitted = append(admitted, now...)
		for _, line := range w.evictions[before:] {
			name := strings.TrimPrefix(strings.Fields(line)[1], "ns/")
			evicted = append(evicted, name)
			w.leave(name)
			w.change(name, func(wl *kueue.Workload) { setCondition(wl, kueue.WorkloadEvicted, metav1.ConditionTrue) })
		}
		if len(now) == 0 && len(w.evictions) == before {
			return evicted, admitted
		}
	}
	w.t.Fatalf("no end: evicted %q, admitted %q", evicted, admitted)
	return nil, nil
}

func (w *world) wantCalm(wantEvicted, wantAdmitted []string) {
	w.t.Helper()
	evicted, admitted := w.decideUntilCalm()
	slices.Sort(admitted)
	if !slices.Equal(evicted, wantEvicted) || !slices.Equal(admitted, wantAdmitted) {
		w.t.Fatalf("evicted %q and admitted %q, want %q and %q; refusals %v", evicted, admitted, wantEvicted, wantAdmitted, w.refusals)
	}
}

func stopped(policy kueue.StopPolicy) func(*kueue.ClusterQueue) {
	return func(q *kueue.ClusterQueue) { q.Spec.StopPolicy = &policy }
}

// TestRelief removes quota from JobSets that hold it. Each world is safe before.
func TestRelief(t *testing.T) {
	for name, tc := range map[string]struct {
		setUp, cut  func(*world)
		policy      string
		want        []string
		wantMessage string
	}{
		"quota lowered, one of two has to go: the later one": {
			setUp: func(w *world) {
				w.queue("q", "a100: gpu=11")
				w.halves("q", "one", "gpu=6")
				w.halves("q", "two", "gpu=6")
			},
			cut:  func(w *world) { w.queue("q", "a100: gpu=9") },
			want: []string{"two-first"}, wantMessage: "up to 6 nvidia.com/gpu of flavor a100 more at once, and the holders of that quota cannot progress either",
		},
		"quota lowered, only the larger one cannot finish": {
			setUp: func(w *world) {
				w.queue("q", "a100: gpu=20")
				w.halves("q", "large", "gpu=16")
				w.halves("q", "small", "gpu=1")
			},
			cut:  func(w *world) { w.queue("q", "a100: gpu=10") },
			want: []string{"large-first"}, wantMessage: "stage second could never be admitted",
		},
		"quota lowered, and all can still finish": {
			setUp: func(w *world) {
				w.queue("q", "a100: gpu=20")
				w.halves("q", "one", "gpu=6")
				w.halves("q", "two", "gpu=6")
			},
			cut: func(w *world) { w.queue("q", "a100: gpu=10") },
		},
		"quota lowered below what is held by who needs nothing more": {
			setUp: func(w *world) {
				w.queue("q", "a100: gpu=20")
				w.submit("q", "last", twoStages("gpu=2", "Complete", "gpu=6")...)
				w.decide()
				w.reach("last", "first", stageplan.Succeeded)
				w.lone("q", "lone", "gpu=4")
			},
			cut: func(w *world) { w.queue("q", "a100: gpu=1") },
		},
		"flavor taken out of the ClusterQueue": {
			setUp: func(w *world) {
				w.queue("q", "a100: gpu=4; h100: gpu=8")
				w.halves("q", "one", "gpu=6")
			},
			cut:  func(w *world) { w.queue("q", "a100: gpu=4") },
			want: []string{"one-first"}, wantMessage: "needs 6 nvidia.com/gpu of flavor a100, but the quota is 4",
		},
		"flavor removed that the ClusterQueue still names: all of it stands still": {
			setUp: func(w *world) { w.queue("q", "a100: gpu=4; h100: gpu=8"); w.halves("q", "one", "gpu=6") },
			cut:   func(w *world) { w.engine.Apply(admission.FlavorGone{Name: "h100"}) },
		},
		"queue stopped while no other JobSet needs its quota": {
			setUp: func(w *world) { w.queue("q", "a100: gpu=9"); w.halves("q", "one", "gpu=6") },
			cut:   func(w *world) { w.queue("q", "a100: gpu=9", stopped(kueue.Hold)) },
		},
		"queue stopped while another in its cohort needs what it holds": {
			setUp: func(w *world) {
				w.queue("q", "a100: gpu=6", inCohort("c"))
				w.queue("p", "a100: gpu=6", inCohort("c"))
				w.submit("q", "one", twoStages("gpu=1", "Ready", "gpu=1")...)
				w.halves("p", "two", "gpu=10")
			},
			cut:  func(w *world) { w.queue("q", "a100: gpu=6", inCohort("c"), stopped(kueue.Hold)) },
			want: []string{"one-first"}, wantMessage: "deadlock recovery: the JobSet cannot progress in ClusterQueue q, and other JobSets need its quota",
		},
		"queue drained": {
			setUp: func(w *world) { w.queue("q", "a100: gpu=9"); w.halves("q", "one", "gpu=6") },
			cut:   func(w *world) { w.queue("q", "a100: gpu=9", stopped(kueue.HoldAndDrain)) },
			want:  []string{"one-first"}, wantMessage: "The ClusterQueue is stopped",
		},
		"cohort left": {
			setUp: func(w *world) {
				w.queue("q", "a100: gpu=2", inCohort("c"))
				w.queue("p", "a100: gpu=6", inCohort("c"))
				w.halves("q", "one", "gpu=6")
			},
			cut:  func(w *world) { w.queue("q", "a100: gpu=2") },
			want: []string{"one-first"}, wantMessage: "stage second could never be admitted",
		},
		"cohort put under another one, which lends less": {
			setUp: func(w *world) {
				w.queue("q", "a100: gpu=2", inCohort("c"))
				w.cohort("d", "", 6)
				w.cohort("c", "d", 0)
				w.halves("q", "one", "gpu=6")
			},
			cut:  func(w *world) { w.cohort("c", "e", 0); w.cohort("e", "", 5) },
			want: []string{"one-first"}, wantMessage: "but the quota is 7",
		},
		"Greedy: no JobSet is protected": {
			policy: admission.Greedy,
			setUp: func(w *world) {
				w.queue("q", "a100: gpu=11")
				w.halves("q", "one", "gpu=6")
				w.halves("q", "two", "gpu=6")
			},
			cut: func(w *world) { w.queue("q", "a100: gpu=9") },
		},
		"Reserve: the peak can no longer be reserved": {
			policy: admission.Reserve,
			setUp: func(w *world) {
				w.queue("q", "a100: gpu=16")
				w.halves("q", "one", "gpu=6")
				w.halves("q", "two", "gpu=6")
			},
			cut:  func(w *world) { w.queue("q", "a100: gpu=9") },
			want: []string{"two-first"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, admission.Config{StageAdmission: tc.policy})
			tc.setUp(w)
			w.wantCalm(nil, w.everybodyOpen())
			w.clock += 60
			tc.cut(w)
			evicted, admitted := w.decideUntilCalm()
			if !slices.Equal(evicted, tc.want) || !strings.Contains(w.evictedFor, tc.wantMessage) {
				t.Fatalf("evicted %q: %q, want %q: %q", evicted, w.evictedFor, tc.want, tc.wantMessage)
			}
			wantDeadlocks := len(tc.want)
			if !strings.HasPrefix(w.evictedFor, "deadlock recovery: ") {
				wantDeadlocks = 0
			}
			if w.deadlockEvictions != wantDeadlocks {
				t.Fatalf("%d evictions resolve a deadlock, want %d: %q", w.deadlockEvictions, wantDeadlocks, w.evictedFor)
			}
			if len(admitted) > 0 {
				t.Fatalf("admitted %q after the cut", admitted)
			}
			// Whatever else is observed, no stage is evicted again for the same cut.
			for key, wl := range w.workloads {
				w.put(wl)
				if again, _ := w.decideUntilCalm(); len(again) > 0 {
					t.Fatalf("%s is observed, and %q are evicted", key, again)
				}
			}
		})
	}
}

// everybodyOpen lists the stages that are open, hold no quota and have not finished.
func (w *world) everybodyOpen() []string {
	var open []string
	for _, wl := range w.workloads {
		if wl.Annotations[apis.AdmissionGatedByAnnotation] == "" && wl.Status.Admission == nil && !isFinished(wl) {
			open = append(open, wl.Name)
		}
	}
	slices.Sort(open)
	return open
}

// TestReliefTakesWhoLosesLeast: of two that cannot both finish, lost accelerator-time decides first, then priority, then age.
func TestReliefTakesWhoLosesLeast(t *testing.T) {
	type held struct {
		first    string
		priority int32
		minutes  int
	}
	for name, tc := range map[string]struct {
		a, b         held
		second, left string
		want         string
	}{
		"fewer for as long":      {a: held{"gpu=5", 0, 1}, b: held{"gpu=2", 0, 60}, second: "gpu=6", left: "gpu=12", want: "b-first"},
		"fewer for a bit longer": {a: held{"gpu=1", 0, 1}, b: held{"gpu=5", 0, 60}, second: "gpu=6", left: "gpu=11", want: "a-first"},
		"more for much shorter":  {a: held{"gpu=1", 0, 600}, b: held{"gpu=5", 0, 1}, second: "gpu=6", left: "gpu=11", want: "b-first"},
		"lower priority, though it loses more CPU-time": {
			a: held{"cpu=4", 0, 60}, b: held{"cpu=1", 1, 60}, second: "cpu=6", left: "cpu=10", want: "a-first",
		},
		"who has come last": {a: held{"cpu=1", 0, 60}, b: held{"cpu=1", 0, 60}, second: "cpu=6", left: "cpu=7", want: "b-first"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, admission.Config{})
			w.queue("q", "a100: gpu=50 cpu=50")
			w.holdFor("a", tc.a.first, tc.second, tc.a.priority, tc.a.minutes)
			w.holdFor("b", tc.b.first, tc.second, tc.b.priority, tc.b.minutes)
			other := "cpu=50"
			if strings.HasPrefix(tc.left, "cpu") {
				other = "gpu=50"
			}
			w.queue("q", "a100: "+tc.left+" "+other)
			w.wantCalm([]string{tc.want}, []string{})
		})
	}
}

// holdFor submits a JobSet whose first stage is admitted, and lets some time pass.
func (w *world) holdFor(name, first, second string, priority int32, minutes int) {
	w.t.Helper()
	w.submit("q", name, twoStages(first, "Ready", second)...)
	for i := range 2 {
		w.change(w.jobSets[name].workload(i), func(wl *kueue.Workload) { wl.Spec.Priority = &priority })
	}
	w.wantAdmitted(name + "-first")
	w.clock += 60 * minutes
}
