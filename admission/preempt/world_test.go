package preempt_test

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/preempt"
	"github.com/tranche-dev/tranche/admission/quota"
)

const unlimited = quota.MaxAmount

// A world has a tree, its ClusterQueues and their Holders.
type world struct {
	tree       *quota.Tree
	strategies []preempt.Strategy
	finder     *preempt.Finder
	queues     []*preempt.Queue
	held       map[*preempt.Queue][]*preempt.Holder
	// taken counts like a History.
	taken map[[2]types.UID]int
	uids  int
	now   time.Time
}

var names = []quota.FlavorResource{{Flavor: "a", Resource: "gpu"}, {Flavor: "b", Resource: "gpu"}, {Flavor: "a", Resource: "cpu"}}

func newWorld(strategies ...preempt.Strategy) *world {
	tree := quota.NewTree()
	for _, fr := range names {
		tree.Index.ID(fr)
	}
	return &world{
		tree: tree, strategies: strategies, finder: preempt.NewFinder(tree, strategies...),
		held: map[*preempt.Queue][]*preempt.Holder{}, taken: map[[2]types.UID]int{}, now: at(1000),
	}
}

func at(second int) time.Time { return time.Unix(int64(second), 0) }

func (w *world) queue(n *quota.Node, p kueue.ClusterQueuePreemption) *preempt.Queue {
	q := w.finder.Queue(n)
	q.Preemption = p
	w.queues = append(w.queues, q)
	return q
}

func nominal(a quota.Amount) map[quota.ID]quota.Quota {
	return map[quota.ID]quota.Quota{0: {Nominal: a, BorrowingLimit: unlimited, LendingLimit: unlimited}}
}

func (w *world) hold(q *preempt.Queue, h *preempt.Holder) {
	q.Node().Charge(h.Usage)
	q.Add(h)
	w.held[q] = append(w.held[q], h)
}

func (w *world) release(q *preempt.Queue, h *preempt.Holder) {
	q.Node().Release(h.Usage)
	q.Remove(h)
	w.held[q] = slices.DeleteFunc(w.held[q], func(o *preempt.Holder) bool { return o == h })
}

// admit makes a request a Holder of its usage.
func (w *world) admit(r preempt.Request) *preempt.Holder {
	w.now = w.now.Add(time.Second)
	h := &preempt.Holder{UID: r.UID, Priority: r.Priority, Queued: r.Queued, Reserved: w.now, Usage: r.Usage}
	w.hold(r.Queue, h)
	return h
}

// age gives ClusterQueues minimum runtimes, and Holders the times since when they run and since when work would be lost.
func (w *world) age(t *rapid.T) {
	if rapid.Bool().Draw(t, "no minimum runtimes") {
		return
	}
	w.finder.LeastWork = rapid.Bool().Draw(t, "least work")
	for _, q := range w.queues {
		q.MinimumRuntime = time.Duration(rapid.SampledFrom([]int{0, 10, 5, 1, 996, 1100}).Draw(t, "minimum runtime")) * time.Second
		for _, h := range w.held[q] {
			if rapid.IntRange(0, 3).Draw(t, "has started") > 0 {
				h.Started = h.Reserved
			}
			for range rapid.IntRange(0, 2).Draw(t, "parts") {
				ago := func(least int, label string) time.Time {
					return w.now.Add(-time.Duration(rapid.IntRange(least, 20).Draw(t, label)) * time.Second)
				}
				h.Work = append(h.Work, preempt.Work{
					Accelerators: quota.Amount(rapid.IntRange(0, 3).Draw(t, "accelerators")), Since: ago(0, "since"), SavedAt: ago(-3, "saved"),
				})
			}
		}
	}
}

// draw returns a world with Cohorts in one tree, one level or more.
func draw(t *rapid.T, strategies []preempt.Strategy) *world {
	w := newWorld(strategies...)
	var cohorts []*quota.Node
	for i := range rapid.SampledFrom([]int{2, 3, 4, 1}).Draw(t, "cohorts") {
		n := w.tree.AddCohort(fmt.Sprintf("cohort-%d", i))
		if i > 0 {
			w.tree.SetParent(n, cohorts[rapid.IntRange(0, i-1).Draw(t, "parent")])
		}
		n.Weight = rapid.SampledFrom([]float64{1, 1, 2, 0}).Draw(t, "weight")
		w.tree.SetQuotas(n, quotas(t, 2))
		cohorts = append(cohorts, n)
	}
	for i := range rapid.SampledFrom([]int{3, 4, 5, 2, 1}).Draw(t, "queues") {
		n := w.tree.AddClusterQueue(fmt.Sprintf("queue-%d", i))
		if rapid.IntRange(0, 9).Draw(t, "alone") < 9 {
			w.tree.SetParent(n, rapid.SampledFrom(cohorts).Draw(t, "cohort"))
		}
		n.Weight = rapid.SampledFrom([]float64{1, 1, 2, 0}).Draw(t, "weight")
		w.tree.SetQuotas(n, quotas(t, 6))
		w.queue(n, policies(t))
	}
	return w
}

func policies(t *rapid.T) kueue.ClusterQueuePreemption {
	p := kueue.ClusterQueuePreemption{
		WithinClusterQueue: rapid.SampledFrom([]kueue.PreemptionPolicy{
			kueue.PreemptionPolicyLowerPriority, kueue.PreemptionPolicyLowerOrNewerEqualPriority, kueue.PreemptionPolicyNever, "",
		}).Draw(t, "within"),
		ReclaimWithinCohort: rapid.SampledFrom([]kueue.PreemptionPolicy{
			kueue.PreemptionPolicyAny, kueue.PreemptionPolicyLowerPriority, kueue.PreemptionPolicyNever,
		}).Draw(t, "reclaim"),
	}
	if rapid.Bool().Draw(t, "borrow") {
		p.BorrowWithinCohort = &kueue.BorrowWithinCohort{Policy: kueue.BorrowWithinCohortPolicyLowerPriority}
		if rapid.Bool().Draw(t, "limited") {
			threshold := int32(rapid.IntRange(0, 2).Draw(t, "threshold"))
			p.BorrowWithinCohort.MaxPriorityThreshold = &threshold
		}
	}
	return p
}

func quotas(t *rapid.T, most int) map[quota.ID]quota.Quota {
	limit := rapid.SampledFrom([]quota.Amount{unlimited, unlimited, unlimited, unlimited, unlimited, unlimited, 1, 3})
	qs := map[quota.ID]quota.Quota{}
	for id := range quota.ID(len(names)) {
		qs[id] = quota.Quota{
			Nominal:        quota.Amount(rapid.SampledFrom([]int{3, 4, 2, 1, 5, 0}).Draw(t, "nominal") * most / 5),
			BorrowingLimit: limit.Draw(t, "borrowing"), LendingLimit: limit.Draw(t, "lending"),
		}
	}
	return qs
}

func (w *world) request(t *rapid.T, most quota.Amount) preempt.Request {
	var u quota.Usage
	for len(u) == 0 {
		for id := range quota.ID(len(names)) {
			u.Add(id, rapid.SampledFrom([]quota.Amount{1, 0, 2, 0, most}).Draw(t, "amount"))
		}
	}
	w.uids++
	return preempt.Request{
		Queue: rapid.SampledFrom(w.queues).Draw(t, "queue"), UID: types.UID(fmt.Sprintf("%03d", w.uids*367%1000)),
		Priority: int64(rapid.IntRange(0, 3).Draw(t, "priority")), Queued: at(rapid.IntRange(0, 5).Draw(t, "queued")), Usage: u, Now: w.now,
	}
}

// fill admits requests that fit, and sometimes others. Some of them are being evicted.
func (w *world) fill(t *rapid.T) {
	for range rapid.SampledFrom([]int{20, 30, 10, 5, 0}).Draw(t, "holders") {
		r := w.request(t, 3)
		if !r.Queue.Node().Fits(r.Usage) && rapid.IntRange(0, 19).Draw(t, "force") < 19 {
			continue
		}
		h := w.admit(r)
		if rapid.IntRange(0, 19).Draw(t, "evict") == 19 {
			r.Queue.Evict(h)
		}
	}
}

// short returns a request that does not fit and could, if a few attempts produce one.
func (w *world) short(t *rapid.T) preempt.Request {
	r := w.request(t, 4)
	for range 8 {
		n := r.Queue.Node()
		if !n.Fits(r.Usage) && !slices.ContainsFunc(r.Usage, func(c quota.Charge) bool { return c.Amount > n.Capacity(c.ID) }) {
			break
		}
		r = w.request(t, 4)
	}
	return r
}

func (w *world) grant(p types.UID, victims []preempt.Victim) {
	w.finder.History.Record(p, victims)
	for _, v := range victims {
		w.taken[[2]types.UID{p, v.Holder.UID}]++
	}
}

func modes(t *rapid.T) []preempt.Strategy {
	return rapid.SampledFrom([][]preempt.Strategy{
		nil, preempt.DefaultStrategies(), {preempt.LessThanOrEqualToFinalShare}, {preempt.LessThanInitialShare},
	}).Draw(t, "mode")
}
