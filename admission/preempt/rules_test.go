package preempt_test

import (
	"strconv"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/preempt"
	"github.com/tranche-dev/tranche/admission/quota"
)

// TestRules: ClusterQueues a and b have 4 gpus each. The request comes from a, with priority 5, and queued at 10.
func TestRules(t *testing.T) {
	const (
		never = kueue.PreemptionPolicyNever
		lower = kueue.PreemptionPolicyLowerPriority
		newer = kueue.PreemptionPolicyLowerOrNewerEqualPriority
		all   = kueue.PreemptionPolicyAny
	)
	two := int32(2)
	borrow := &kueue.BorrowWithinCohort{Policy: kueue.BorrowWithinCohortPolicyLowerPriority}
	upTo2 := &kueue.BorrowWithinCohort{Policy: kueue.BorrowWithinCohortPolicyLowerPriority, MaxPriorityThreshold: &two}
	type holder struct {
		queue, uid               string
		priority, queued, amount int
	}
	for name, tc := range map[string]struct {
		within, reclaim kueue.PreemptionPolicy
		borrow          *kueue.BorrowWithinCohort
		strategies      []preempt.Strategy
		holders         []holder
		amount          int
		want            string
	}{
		"fits":      {want: "fits", amount: 8},
		"too large": {want: "more than could ever be available", amount: 9},
		"never": {
			within: never, reclaim: never, amount: 4, holders: []holder{{"a", "x", 1, 0, 8}},
			want: "the preemption policy allows no victim that holds the missing quota",
		},
		"lower priority in the own queue": {
			within: lower, amount: 3, holders: []holder{{"a", "x", 4, 0, 4}, {"a", "y", 5, 0, 4}},
			want: "x InClusterQueue",
		},
		"equal and newer": {within: newer, amount: 3, holders: []holder{{"a", "x", 5, 9, 4}, {"a", "y", 5, 11, 4}}, want: "y InClusterQueue"},
		"lowest priority first": {
			within: lower, amount: 2, holders: []holder{{"a", "x", 2, 0, 4}, {"a", "y", 1, 0, 4}},
			want: "y InClusterQueue",
		},
		"newest reservation first": {
			within: lower, amount: 2, holders: []holder{{"a", "x", 1, 0, 4}, {"a", "y", 1, 0, 4}},
			want: "y InClusterQueue",
		},
		"those that can stay, stay": {
			within: lower, amount: 4, holders: []holder{{"a", "x", 1, 0, 1}, {"a", "y", 2, 0, 7}},
			want: "y InClusterQueue",
		},
		"own quota, any priority": {
			reclaim: all, amount: 4, holders: []holder{{"b", "x", 9, 0, 4}, {"b", "y", 8, 0, 4}},
			want: "y InCohortReclamation",
		},
		"own quota, lower priority only": {
			reclaim: lower, amount: 4, holders: []holder{{"b", "x", 9, 0, 4}, {"b", "y", 8, 0, 4}},
			want: "the preemption policy allows no victim that holds the missing quota",
		},
		"not from one that does not borrow": {
			reclaim: all, amount: 4, holders: []holder{{"a", "x", 9, 0, 4}, {"b", "y", 1, 0, 4}},
			want: "the preemption policy allows no victim that holds the missing quota",
		},
		"other queues before the own one": {
			within: lower, reclaim: all, amount: 2, holders: []holder{{"a", "x", 1, 0, 1}, {"b", "y", 2, 0, 7}},
			want: "y InCohortReclamation",
		},
		"more than the quota": {
			reclaim: all, amount: 5, holders: []holder{{"b", "x", 1, 0, 8}},
			want: "more than the ClusterQueue has, and borrowWithinCohort does not allow preemption while borrowing",
		},
		"while borrowing": {
			reclaim: all, borrow: borrow, amount: 5, holders: []holder{{"b", "x", 4, 0, 8}},
			want: "x InCohortReclaimWhileBorrowing",
		},
		"while borrowing, priority too high": {
			reclaim: all, borrow: borrow, amount: 5, holders: []holder{{"b", "x", 5, 0, 8}},
			want: "does not fit even if all allowed victims are preempted",
		},
		"while borrowing, below the threshold": {
			reclaim: all, borrow: upTo2, amount: 5, holders: []holder{{"b", "x", 2, 0, 8}},
			want: "x InCohortReclaimWhileBorrowing",
		},
		"while borrowing, above the threshold": {
			reclaim: all, borrow: upTo2, amount: 5, holders: []holder{{"b", "x", 3, 0, 8}},
			want: "does not fit even if all allowed victims are preempted",
		},
		"not enough": {
			within: lower, amount: 3, holders: []holder{{"a", "x", 1, 0, 2}, {"b", "y", 1, 0, 6}},
			want: "does not fit even if all allowed victims are preempted",
		},
		"only down to its quota": {
			reclaim: all, amount: 4, holders: []holder{{"b", "y", 1, 0, 1}, {"b", "x", 2, 0, 4}, {"c", "z", 3, 0, 3}},
			want: "y InCohortReclamation, z InCohortReclamation",
		},
		"first without borrowing": {
			within: lower, reclaim: all, amount: 2,
			holders: []holder{{"a", "k", 1, 0, 1}, {"a", "l", 2, 0, 2}, {"b", "y", 9, 0, 4}, {"b", "x", 0, 0, 1}},
			want:    "x InCohortReclamation, k InClusterQueue",
		},
		"fair: own quota": {
			reclaim: all, strategies: preempt.DefaultStrategies(), amount: 4, holders: []holder{{"b", "x", 9, 0, 8}},
			want: "x InCohortReclamation",
		},
		"fair: evens out": {
			reclaim: all, strategies: preempt.DefaultStrategies(), amount: 1,
			holders: []holder{{"a", "x", 9, 0, 4}, {"c", "y", 9, 0, 2}, {"c", "z", 9, 0, 2}}, want: "z InCohortFairSharing",
		},
		"fair: not beyond even": {
			reclaim: all, strategies: preempt.DefaultStrategies(), amount: 2,
			holders: []holder{{"a", "x", 9, 0, 5}, {"c", "y", 9, 0, 2}, {"c", "z", 9, 0, 1}},
			want:    "does not fit even if all allowed victims are preempted",
		},
		"fair: second strategy": {
			reclaim: all, strategies: preempt.DefaultStrategies(), amount: 2,
			holders: []holder{{"a", "x", 9, 0, 4}, {"c", "y", 9, 0, 4}}, want: "y InCohortFairSharing",
		},
		"fair: first strategy alone": {
			reclaim: all, strategies: preempt.DefaultStrategies()[:1], amount: 2,
			holders: []holder{{"a", "x", 9, 0, 4}, {"c", "y", 9, 0, 4}}, want: "does not fit even if all allowed victims are preempted",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := flat(tc.strategies, 4, 4, 0)
			w.queues[0].Preemption = kueue.ClusterQueuePreemption{
				WithinClusterQueue: tc.within, ReclaimWithinCohort: tc.reclaim, BorrowWithinCohort: tc.borrow,
			}
			ask := func(h holder) preempt.Request {
				r := w.ask(int(h.queue[0]-'a'), "", int64(h.priority), h.queued, 0)
				r.UID, r.Usage[0].Amount = types.UID(h.uid), quota.Amount(h.amount)
				return r
			}
			for _, h := range tc.holders {
				w.admit(ask(h))
			}
			if got := said(w.finder.Find(ask(holder{"a", "p", 5, 10, tc.amount}))); got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
		})
	}
}

// TestEvictingCountsAsGone: no matter how high its priority is.
func TestEvictingCountsAsGone(t *testing.T) {
	w := flat(nil, 4, 4)
	w.queues[0].Preemption = withinAndReturn
	x, y := w.admit(w.ask(1, "x", 9, 0, 4)), w.admit(w.ask(1, "y", 1, 0, 4))
	w.queues[1].Evict(x)
	if got := w.finder.Find(w.ask(0, "p", 5, 0, 4)).Outcome; got != preempt.EvictionsPending || !x.IsEvicting() || y.IsEvicting() {
		t.Errorf("%s", got)
	}
	w.queues[1].Evict(y)
	w.release(w.queues[1], x)
	w.release(w.queues[1], y)
	if got := w.finder.Find(w.ask(0, "p", 5, 0, 8)).Outcome; got != preempt.Fits {
		t.Errorf("%s after all are gone", got)
	}
}

// TestHierarchy: m and n have 4 each for the ClusterQueues below, which have nothing. n uses 5 of x and y, and has to yield although o in m uses
// more than it has, too: only a is closer.
func TestHierarchy(t *testing.T) {
	w := newWorld()
	root, m, n := w.tree.AddCohort("root"), w.tree.AddCohort("m"), w.tree.AddCohort("n")
	for _, c := range []struct {
		name   string
		parent int
	}{{"a", 0}, {"o", 0}, {"b", 1}} {
		q := w.tree.AddClusterQueue(c.name)
		w.tree.SetParent(q, []*quota.Node{m, n}[c.parent])
		w.queue(q, reclaimAny)
	}
	w.tree.SetParent(m, root)
	w.tree.SetParent(n, root)
	w.tree.SetQuotas(m, nominal(4))
	w.tree.SetQuotas(n, nominal(4))
	w.admit(w.ask(1, "o", 0, 0, 2))
	w.admit(w.ask(2, "x", 9, 0, 4))
	w.admit(w.ask(2, "y", 8, 0, 2))
	if got, want := said(w.finder.Find(w.ask(0, "p", 5, 0, 2))), "y InCohortReclamation"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	// With 3 more, m would use more than it has.
	if got, want := said(w.finder.Find(w.ask(0, "p", 5, 0, 3))), preempt.NeedsBorrowing.String(); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestLevels: in one ClusterQueue, priority comes before past usage, and past usage before the time of the reservation.
func TestLevels(t *testing.T) {
	levels := map[types.UID]float64{"idle": 1, "heavy": 7, "light": 2, "urgent": 9}
	for _, strategies := range [][]preempt.Strategy{nil, preempt.DefaultStrategies()} {
		w := flat(strategies, 6)
		w.queues[0].Preemption = kueue.ClusterQueuePreemption{WithinClusterQueue: kueue.PreemptionPolicyLowerPriority}
		w.queues[0].Level = func(h *preempt.Holder) float64 { return levels[h.UID] }
		w.admit(w.ask(0, "heavy", 1, 0, 2))
		w.admit(w.ask(0, "urgent", 2, 0, 2))
		w.admit(w.ask(0, "light", 1, 0, 2))
		for amount, want := range map[quota.Amount]string{
			1: "heavy InClusterQueue", 3: "heavy InClusterQueue, light InClusterQueue",
			5: "heavy InClusterQueue, light InClusterQueue, urgent InClusterQueue",
		} {
			if got := said(w.finder.Find(w.ask(0, "p", 5, 10, amount))); got != want {
				t.Errorf("for %d: %s, want %s", amount, got, want)
			}
		}
	}
}

// TestMinimumRuntime: b has borrowed from a with x, which started at 100; y of a started at 150. Each runs for 60 s before it may be preempted, unless a
// request only takes the quota of its own ClusterQueue back, and has waited for 60 s.
func TestMinimumRuntime(t *testing.T) {
	for name, tc := range map[string]struct {
		priority         int64
		amount           quota.Amount
		queued, now      int
		want, wantsRetry string
	}{
		"too early":                {0, 2, 110, 159, "the preemption policy allows no victim that holds the missing quota", "160"},
		"has run long enough":      {0, 2, 110, 160, "x InCohortReclamation", ""},
		"has waited long enough":   {0, 2, 90, 150, "x InCohortReclamation", ""},
		"has not waited for that":  {0, 2, 91, 150, "the preemption policy allows no victim that holds the missing quota", "151"},
		"own queue, too early":     {5, 6, 0, 209, "does not fit even if all allowed victims are preempted", "210"},
		"own queue, has waited":    {5, 3, 0, 209, "x InCohortReclamation", ""},
		"own queue, and the other": {5, 8, 0, 210, "x InCohortReclamation, y InClusterQueue", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := flat(nil, 8, 0)
			w.queues[0].Preemption = withinAndReturn
			x, y := w.admit(w.ask(1, "x", 9, 0, 5)), w.admit(w.ask(0, "y", 1, 0, 3))
			x.Started, y.Started = at(100), at(150)
			for _, q := range w.queues {
				q.MinimumRuntime = time.Minute
			}
			r := w.ask(0, "p", tc.priority, tc.queued, tc.amount)
			r.Now = at(tc.now)
			got := w.finder.Find(r)
			retry := ""
			if !got.RetryAt.IsZero() {
				retry = strconv.FormatInt(got.RetryAt.Unix(), 10)
			}
			if said(got) != tc.want || retry != tc.wantsRetry {
				t.Errorf("%s, retry at %q, want %s, retry at %q", said(got), retry, tc.want, tc.wantsRetry)
			}
		})
	}
}

// TestLeastWork: of equal priority, the victim is the one that loses the fewest seconds of an accelerator, unless the order of Kueue is asked for.
func TestLeastWork(t *testing.T) {
	for leastWork, want := range map[bool]string{true: "small InClusterQueue", false: "saved InClusterQueue"} {
		w := flat(nil, 12)
		w.queues[0].Preemption = withinAndReturn
		w.finder.LeastWork = leastWork
		for _, h := range []struct {
			uid   types.UID
			parts []preempt.Work
		}{
			{"small", []preempt.Work{{Accelerators: 1, Since: at(0)}}},
			{"large", []preempt.Work{{Accelerators: 2, Since: at(0), SavedAt: at(101)}}},
			{"saved", []preempt.Work{{Accelerators: 1, Since: at(0), SavedAt: at(90)}, {Accelerators: 2, Since: at(0), SavedAt: at(50)}}},
		} {
			w.admit(w.ask(0, h.uid, 1, 0, 4)).Work = h.parts
		}
		r := w.ask(0, "p", 5, 0, 4)
		r.Now = at(100)
		if got := said(w.finder.Find(r)); got != want {
			t.Errorf("least work %t: %s, want %s", leastWork, got, want)
		}
	}
}
