package preempt_test

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/preempt"
	"github.com/tranche-dev/tranche/admission/quota"
)

// TestFindAgainstTwin compares the victims, their reasons, and their order, for several requests in one state.
func TestFindAgainstTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := draw(t, modes(t))
		w.fill(t)
		w.age(t)
		for range 15 {
			r := w.short(t)
			for range rapid.IntRange(0, 4).Draw(t, "granted") {
				w.grant(r.UID, w.finder.Find(r).Victims)
			}
			compare(t, w, r)
		}
	})
}

func compare(t *rapid.T, w *world, r preempt.Request) {
	before := w.tree.Hash()
	got := w.finder.Find(r)
	if w.tree.Hash() != before {
		t.Fatal("the tree has changed")
	}
	want, outcome := (&twin{world: w, r: r}).find()
	if got.Outcome != outcome {
		t.Fatalf("%s, the twin says %s", got.Outcome, outcome)
	}
	if len(got.Victims) != len(want) {
		t.Fatalf("%d victims, the twin has %d", len(got.Victims), len(want))
	}
	for i, v := range got.Victims {
		if v.Holder != want[i].Holder || v.Reason != want[i].reason {
			t.Fatalf("victim %d is %s (%s), the twin says %s (%s)", i, v.Holder.UID, v.Reason, want[i].UID, want[i].reason)
		}
	}
}

// TestRetryAt: unless something else changes, a request without victims has none before that time, or never if there is no such time. Where the order
// of the victims depends on the time, it could.
func TestRetryAt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := draw(t, modes(t))
		w.fill(t)
		w.age(t)
		w.finder.LeastWork = false
		for range 15 {
			r := w.short(t)
			result := w.finder.Find(r)
			if result.Outcome == preempt.Found || result.Outcome == preempt.Fits || result.Outcome == preempt.EvictionsPending {
				if !result.RetryAt.IsZero() {
					t.Fatalf("%s, but is to be tried again", result.Outcome)
				}
				continue
			}
			r.Now = at(1_000_000)
			if !result.RetryAt.IsZero() {
				if !result.RetryAt.After(w.now) {
					t.Fatalf("at %s it is to be tried again at %s", w.now, result.RetryAt)
				}
				r.Now = result.RetryAt.Add(-time.Second)
			}
			if later := w.finder.Find(r); later.Outcome == preempt.Found {
				t.Fatalf("%s; at %s already: %s", result.Outcome, r.Now, said(later))
			}
		}
	})
}

// TestManyHolders come and go in one ClusterQueue.
func TestManyHolders(t *testing.T) {
	for _, policy := range []kueue.PreemptionPolicy{kueue.PreemptionPolicyLowerPriority, kueue.PreemptionPolicyLowerOrNewerEqualPriority} {
		rapid.Check(t, func(t *rapid.T) {
			w := flat(nil, 600)
			q := w.queues[0]
			q.Preemption.WithinClusterQueue = policy
			seed := rapid.IntRange(1, 1000).Draw(t, "seed")
			for i := range 600 {
				r := w.ask(0, types.UID(fmt.Sprint(i)), int64(i*seed%7), i*seed%11, 1)
				w.admit(r)
			}
			for i := range rapid.IntRange(0, 500).Draw(t, "gone") {
				hs := w.held[q]
				w.release(q, hs[i*seed%len(hs)])
			}
			free := quota.Amount(600 - len(w.held[q]))
			amount := free + quota.Amount(rapid.IntRange(1, 12).Draw(t, "amount"))
			compare(t, w, w.ask(0, "p", int64(rapid.IntRange(0, 7).Draw(t, "priority")), 5, amount))
		})
	}
}

// TestEveryVictimIsNeeded: without all of them the request fits; with classic preemption not if any one of them stays, at least not without
// borrowing.
func TestEveryVictimIsNeeded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := draw(t, nil)
		w.fill(t)
		r := w.short(t)
		victims := w.finder.Find(r).Victims
		for spared := -1; spared < len(victims); spared++ {
			fits := w.tree.WhatIf(func() bool {
				for q, hs := range w.held {
					for _, h := range hs {
						if h.IsEvicting() {
							q.Node().Release(h.Usage)
						}
					}
				}
				for i, v := range victims {
					if i != spared {
						v.Holder.Queue().Node().Release(v.Holder.Usage)
					}
				}
				n := r.Queue.Node()
				return n.Fits(r.Usage) && (spared < 0 || !n.BorrowsAny(r.Usage))
			})
			if len(victims) > 0 && fits != (spared < 0) {
				t.Fatalf("fits %v without %d victims, of which %d is spared", fits, len(victims), spared)
			}
		}
	})
}

// TestPreemptionEnds: a fixed set of requests; a waiting request is admitted if it fits, or preempts; a victim waits again.
func TestPreemptionEnds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := draw(t, modes(t))
		var waiting []preempt.Request
		for range rapid.IntRange(1, 10).Draw(t, "requests") {
			waiting = append(waiting, w.request(t, 4))
		}
		requests := map[any]preempt.Request{}
		for _, r := range waiting {
			requests[r.UID] = r
		}
		evictions, n := 0, len(waiting)
		for idle := 0; idle < len(waiting); {
			r := waiting[0]
			waiting = waiting[1:]
			result := w.finder.Find(r)
			if result.Outcome != preempt.Fits && result.Outcome != preempt.Found {
				waiting = append(waiting, r)
				idle++
				continue
			}
			idle = 0
			w.finder.History.Record(r.UID, result.Victims)
			for _, v := range result.Victims {
				evictions++
				w.release(v.Holder.Queue(), v.Holder)
				waiting = append(waiting, requests[v.Holder.UID])
			}
			if !r.Queue.Node().Fits(r.Usage) {
				t.Fatal("does not fit after the preemption")
			}
			w.admit(r)
			if evictions > 4*n*n {
				t.Fatalf("%d evictions of %d requests", evictions, n)
			}
		}
	})
}
