package preempt_test

import (
	"maps"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/preempt"
	"github.com/tranche-dev/tranche/admission/quota"
)

var (
	reclaimAny      = kueue.ClusterQueuePreemption{ReclaimWithinCohort: kueue.PreemptionPolicyAny}
	whileBorrowing  = &kueue.BorrowWithinCohort{Policy: kueue.BorrowWithinCohortPolicyLowerPriority}
	allPreemption   = kueue.ClusterQueuePreemption{ReclaimWithinCohort: kueue.PreemptionPolicyAny, BorrowWithinCohort: whileBorrowing, WithinClusterQueue: kueue.PreemptionPolicyLowerPriority}
	reclaimByPrio   = kueue.ClusterQueuePreemption{ReclaimWithinCohort: kueue.PreemptionPolicyLowerPriority, BorrowWithinCohort: whileBorrowing}
	withinAndReturn = kueue.ClusterQueuePreemption{ReclaimWithinCohort: kueue.PreemptionPolicyAny, WithinClusterQueue: kueue.PreemptionPolicyLowerPriority}
)

// flat returns ClusterQueues in one Cohort, each with a nominal quota.
func flat(strategies []preempt.Strategy, nominals ...quota.Amount) *world {
	w := newWorld(strategies...)
	root := w.tree.AddCohort("root")
	for i, a := range nominals {
		n := w.tree.AddClusterQueue(string(rune('a' + i)))
		w.tree.SetParent(n, root)
		w.tree.SetQuotas(n, nominal(a))
		w.queue(n, kueue.ClusterQueuePreemption{})
	}
	return w
}

func (w *world) ask(queue int, uid types.UID, priority int64, queued int, gpus quota.Amount) preempt.Request {
	return preempt.Request{
		Queue: w.queues[queue], UID: uid, Priority: priority, Queued: at(queued), Usage: quota.Usage{{ID: 0, Amount: gpus}},
	}
}

// mostEvictions is more than any of the circles here takes while the History counts.
const mostEvictions = 100

// run serves the first request that can be served, until there is none, or until there are too many evictions. It returns the number of evictions
// and the final holders. The History is lost when forgets is true for the number of evictions, as in a restart.
func (w *world) run(line []preempt.Request, forgets func(evictions int) bool) (evictions int, holds map[types.UID]bool) {
	held := map[types.UID]preempt.Request{}
	for i := 0; i < len(line) && evictions < mostEvictions; {
		r := line[i]
		result := w.finder.Find(r)
		if result.Outcome != preempt.Fits && result.Outcome != preempt.Found {
			i++
			continue
		}
		w.finder.History.Record(r.UID, result.Victims)
		line = append(line[:i:i], line[i+1:]...)
		for _, v := range result.Victims {
			w.release(v.Holder.Queue(), v.Holder)
			line = append(line, held[v.Holder.UID])
			delete(held, v.Holder.UID)
		}
		w.admit(r)
		held[r.UID] = r
		i = 0
		if evictions += len(result.Victims); len(result.Victims) > 0 && forgets(evictions) {
			w.finder.History = preempt.NewHistory()
		}
	}
	holds = map[types.UID]bool{}
	for uid := range held {
		holds[uid] = true
	}
	return evictions, holds
}

func never(int) bool  { return false }
func always(int) bool { return true }

// circleOfReclaimAndPriority: p borrows from b and has the higher priority; it preempts x and y of b, of which x fits into the quota of b and
// reclaims it; then y fits, too, and p may preempt both again. b must win in the end.
func circleOfReclaimAndPriority() (*world, []preempt.Request) {
	w := flat(nil, 5, 2)
	w.queues[0].Preemption, w.queues[1].Preemption = reclaimAny, reclaimByPrio
	return w, []preempt.Request{w.ask(0, "z", 9, 0, 2), w.ask(0, "y", 1, 1, 4), w.ask(0, "x", 0, 2, 1), w.ask(1, "p", 5, 3, 5)}
}

func TestCircleOfReclaimAndPriority(t *testing.T) {
	w, line := circleOfReclaimAndPriority()
	evictions, holds := w.run(line, never)
	if evictions < 4 || evictions >= mostEvictions || !holds["x"] || !holds["y"] || holds["p"] {
		t.Errorf("%d evictions, then %v", evictions, holds)
	}
}

// circleOfThree: r reclaims from p; s is more important than r in their ClusterQueue, but borrows; p has the highest priority.
func circleOfThree() (*world, []preempt.Request) {
	w := flat(nil, 5, 5)
	w.queues[0].Preemption, w.queues[1].Preemption = withinAndReturn, allPreemption
	w.queues[0].Preemption.BorrowWithinCohort = whileBorrowing
	return w, []preempt.Request{w.ask(1, "p", 9, 0, 8), w.ask(1, "v", 1, 1, 3), w.ask(0, "r", 1, 2, 3), w.ask(0, "s", 5, 3, 7)}
}

func TestCircleOfThree(t *testing.T) {
	w, line := circleOfThree()
	if evictions, _ := w.run(line, never); evictions < 3 || evictions >= mostEvictions {
		t.Errorf("%d evictions: no circle, or no end", evictions)
	}
}

// TestCirclesEndAfterRestart loses the History after any number of evictions: the circle begins again, and ends with the same Holders. Without a
// History it would not end.
func TestCirclesEndAfterRestart(t *testing.T) {
	for name, circle := range map[string]func() (*world, []preempt.Request){"two": circleOfReclaimAndPriority, "three": circleOfThree} {
		t.Run(name, func(t *testing.T) {
			w, line := circle()
			whole, want := w.run(line, never)
			for at := 1; at <= whole; at++ {
				w, line := circle()
				evictions, holds := w.run(line, func(evictions int) bool { return evictions == at })
				if evictions >= mostEvictions || !maps.Equal(holds, want) {
					t.Errorf("restart after %d evictions: %d evictions, then %v, want %v", at, evictions, holds, want)
				}
			}
			w, line = circle()
			if evictions, _ := w.run(line, always); evictions < mostEvictions {
				t.Errorf("ends after %d evictions without a History", evictions)
			}
		})
	}
}

// TestCirclesStayEnded loses the History of a circle that has ended, and restores what the victims report: it does not begin again.
func TestCirclesStayEnded(t *testing.T) {
	w, line := circleOfReclaimAndPriority()
	if evictions, _ := w.run(line, never); evictions == 0 {
		t.Fatal("no circle")
	}
	p := w.ask(1, "p", 5, 3, 5)
	w.finder.History = preempt.NewHistory()
	w.finder.History.Restore("p", "x", 2)
	if got := w.finder.Find(p); got.Outcome != preempt.Found {
		t.Errorf("after two preemptions: %s, want victims", said(got))
	}
	w.finder.History.Restore("p", "x", 3)
	w.finder.History.Restore("p", "x", 1) // another quota Workload of the same JobSet
	if got := w.finder.Find(p); got.Outcome != preempt.NotEnough {
		t.Errorf("after three preemptions: %s, want %s", said(got), preempt.NotEnough)
	}
	w.finder.History.Forget("x")
	if got := w.finder.History.Len(); got != 0 {
		t.Errorf("%d pairs after the victim is forgotten", got)
	}
}

func TestHistoryForgets(t *testing.T) {
	x := preempt.NewHistory()
	victims := []preempt.Victim{{Holder: &preempt.Holder{UID: "v"}}, {Holder: &preempt.Holder{UID: "w"}}}
	x.Record("p", victims)
	x.Record("q", victims[:1])
	x.Record("v", victims[1:])
	for _, step := range []struct {
		forget types.UID
		want   int
	}{{"other", 4}, {"v", 1}, {"p", 0}, {"q", 0}} {
		if x.Forget(step.forget); x.Len() != step.want {
			t.Errorf("%d pairs without %s, want %d", x.Len(), step.forget, step.want)
		}
	}
}

// TestSparedOnlyIfStillFair: without o of its own ClusterQueue, the request has a share low enough to preempt v. To spare o afterwards would make
// that unfair.
func TestSparedOnlyIfStillFair(t *testing.T) {
	w := flat([]preempt.Strategy{preempt.LessThanInitialShare}, 0, 0, 10)
	w.queues[0].Preemption = withinAndReturn
	for _, h := range []preempt.Request{w.ask(0, "o", 0, 0, 3), w.ask(1, "v", 9, 0, 6), w.ask(2, "n", 9, 0, 1)} {
		w.admit(h)
	}
	got := w.finder.Find(w.ask(0, "p", 5, 1, 4))
	if want := "o InClusterQueue, v InCohortFairSharing"; said(got) != want {
		t.Errorf("%s, want %s", said(got), want)
	}
}

// said formats a result.
func said(r preempt.Result) string {
	if len(r.Victims) == 0 {
		return r.Outcome.String()
	}
	var all []string
	for _, v := range r.Victims {
		all = append(all, string(v.Holder.UID)+" "+v.Reason)
	}
	return strings.Join(all, ", ")
}
