package preempt_test

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/preempt"
	"github.com/tranche-dev/tranche/admission/quota"
)

// full returns one Cohort of ClusterQueues that have 100 each, with Holders of one each.
func full(queues int, holders func(queue int) int, p kueue.ClusterQueuePreemption, strategies []preempt.Strategy) *world {
	w := newWorld(strategies...)
	root := w.tree.AddCohort("root")
	for i := range queues {
		n := w.tree.AddClusterQueue(fmt.Sprint(i))
		w.tree.SetParent(n, root)
		w.tree.SetQuotas(n, nominal(100))
		w.queue(n, p)
	}
	for i, q := range w.queues {
		for k := range holders(i) {
			w.admit(preempt.Request{
				Queue: q, UID: types.UID(fmt.Sprint(i, "-", k)), Priority: int64(k % 7), Queued: at(k), Usage: quota.Usage{{ID: 0, Amount: 1}},
			})
		}
	}
	return w
}

// serve answers requests one after the other, each in the state after the one before.
func (w *world) serve(b *testing.B, requests []preempt.Request, victims int) {
	b.Helper()
	for _, r := range requests {
		result := w.finder.Find(r)
		if len(result.Victims) != victims {
			b.Fatalf("%s, %d victims", result.Outcome, len(result.Victims))
		}
		for _, v := range result.Victims {
			q := v.Holder.Queue()
			q.Node().Release(v.Holder.Usage)
			q.Remove(v.Holder)
		}
		r.Queue.Node().Charge(r.Usage)
	}
}

func (w *world) requests(of []*preempt.Queue, amount quota.Amount) []preempt.Request {
	var requests []preempt.Request
	for _, q := range of {
		requests = append(requests, preempt.Request{
			Queue: q, UID: types.UID(q.Node().Name), Priority: 100, Queued: at(1000), Usage: quota.Usage{{ID: 0, Amount: amount}},
		})
	}
	return requests
}

var policiesOfBench = kueue.ClusterQueuePreemption{
	WithinClusterQueue: kueue.PreemptionPolicyLowerPriority, ReclaimWithinCohort: kueue.PreemptionPolicyAny,
}

// BenchmarkOwnQueue: each request preempts 20 Holders of its own Queue.
func BenchmarkOwnQueue(b *testing.B) {
	for _, queues := range []int{10, 100, 1000} {
		for mode, strategies := range map[string][]preempt.Strategy{"classic": nil, "fair": preempt.DefaultStrategies()} {
			b.Run(fmt.Sprintf("mode=%s/queues=%d", mode, queues), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					b.StopTimer()
					w := full(queues, func(int) int { return 100 }, policiesOfBench, strategies)
					requests := w.requests(w.queues, 20)
					b.StartTimer()
					w.serve(b, requests, 20)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(queues), "ns/request")
			})
		}
	}
}

// BenchmarkReclaim: half of the ClusterQueues use the quota of the others, which reclaim it.
func BenchmarkReclaim(b *testing.B) {
	for _, queues := range []int{10, 100, 400} {
		for mode, strategies := range map[string][]preempt.Strategy{"classic": nil, "fair": preempt.DefaultStrategies()} {
			b.Run(fmt.Sprintf("mode=%s/queues=%d", mode, queues), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					b.StopTimer()
					w := full(queues, func(q int) int { return 200 * (q % 2) }, policiesOfBench, strategies)
					var idle []*preempt.Queue
					for i := 0; i < queues; i += 2 {
						idle = append(idle, w.queues[i])
					}
					requests := w.requests(idle, 20)
					b.StartTimer()
					w.serve(b, requests, 20)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(queues/2), "ns/request")
			})
		}
	}
}

// BenchmarkLevelling: as BenchmarkReclaim, but without quota of their own, so that the strategies decide.
func BenchmarkLevelling(b *testing.B) {
	const queues = 400
	for b.Loop() {
		b.StopTimer()
		w := full(queues, func(q int) int { return 200 * (q % 2) }, policiesOfBench, preempt.DefaultStrategies())
		root := w.queues[0].Node().Parent()
		w.tree.SetQuotas(root, nominal(100*queues))
		for _, q := range w.queues {
			w.tree.SetQuotas(q.Node(), nominal(0))
		}
		var idle []*preempt.Queue
		for i := 0; i < queues; i += 2 {
			idle = append(idle, w.queues[i])
		}
		requests := w.requests(idle, 20)
		b.StartTimer()
		w.serve(b, requests, 20)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(queues/2), "ns/request")
}

// BenchmarkNothingToTake: a request that waits in a full Queue of 100,000 with the same priority, all of them older.
func BenchmarkNothingToTake(b *testing.B) {
	p := policiesOfBench
	p.WithinClusterQueue = kueue.PreemptionPolicyLowerOrNewerEqualPriority
	w := newWorld()
	n := w.tree.AddClusterQueue("q")
	w.tree.SetQuotas(n, nominal(100_000))
	q := w.queue(n, p)
	for k := range 100_000 {
		h := &preempt.Holder{UID: types.UID(fmt.Sprint(k)), Queued: at(k), Reserved: at(k), Usage: quota.Usage{{ID: 0, Amount: 1}}}
		n.Charge(h.Usage)
		q.Add(h)
	}
	r := preempt.Request{Queue: q, UID: "r", Queued: at(100_000), Usage: quota.Usage{{ID: 0, Amount: 1}}}
	b.Run("find", func(b *testing.B) {
		for b.Loop() {
			if w.finder.Find(r).Outcome != preempt.NoCandidates {
				b.Fatal("found victims")
			}
		}
	})
	b.Run("add-remove", func(b *testing.B) {
		h := &preempt.Holder{UID: "h", Queued: at(5), Reserved: at(50_000), Usage: quota.Usage{{ID: 0, Amount: 1}}}
		for b.Loop() {
			q.Add(h)
			q.Remove(h)
		}
	})
}
