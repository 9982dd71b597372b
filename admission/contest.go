package admission

import (
	"cmp"
	"container/heap"

	"github.com/tranche-dev/tranche/admission/fairshare"
	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/queue"
)

// A contender is a nominee: a head that has passed all checks.
type contender struct {
	*look
	// asOf is how often quota had been taken before the checks.
	asOf  uint64
	index int
}

// A contest holds at most one nominee of each ClusterQueue.
type contest interface {
	enter(*contender)
	// withdraw removes the nominee of a ClusterQueue, if there is one.
	withdraw(*clusterQueue)
	// winner removes the best nominee. It is nil if there is none.
	winner() *contender
	// charged must be called after the charges of a ClusterQueue have changed.
	charged(*clusterQueue)
}

// A ranking is the contest without fair sharing: the nominee that borrows from less far up wins, then the one with the higher priority, then the
// one that has waited longer. It implements heap.Interface.
type ranking struct {
	contenders []*contender
	in         map[*clusterQueue]*contender
}

func (n *contender) compare(other *contender) int {
	return cmp.Or(cmp.Compare(n.level, other.level), n.position().Compare(other.position()))
}

// position returns the queue position of a candidate. A co-admission group has that of its last member.
func (l *look) position() queue.Position {
	if l.trial != nil {
		return l.trial.position
	}
	return l.s.element.Position
}

func (r *ranking) enter(n *contender) {
	r.in[n.q] = n
	heap.Push(r, n)
}

func (r *ranking) withdraw(q *clusterQueue) {
	if n := r.in[q]; n != nil {
		heap.Remove(r, n.index)
		delete(r.in, q)
	}
}

func (r *ranking) winner() *contender {
	if len(r.contenders) == 0 {
		return nil
	}
	n := r.contenders[0]
	r.withdraw(n.q)
	return n
}

func (*ranking) charged(*clusterQueue) {}

func (r *ranking) Len() int           { return len(r.contenders) }
func (r *ranking) Less(i, j int) bool { return r.contenders[i].compare(r.contenders[j]) < 0 }

func (r *ranking) Swap(i, j int) {
	r.contenders[i], r.contenders[j] = r.contenders[j], r.contenders[i]
	r.contenders[i].index, r.contenders[j].index = i, j
}

func (r *ranking) Push(x any) {
	if n, ok := x.(*contender); ok {
		n.index = len(r.contenders)
		r.contenders = append(r.contenders, n)
	}
}

func (r *ranking) Pop() any {
	last := len(r.contenders) - 1
	n := r.contenders[last]
	r.contenders = r.contenders[:last]
	return n
}

// A tournament is the contest with fair sharing. It compares the shares that ClusterQueues will have when all evicted stages have left and all
// preemptors have the quota that is reserved for them.
type tournament struct {
	quota *quota.Tree
	tree  *fairshare.Tournament
	root  *quota.Node
	in    map[*quota.Node]*contender
}

func (t *tournament) enter(n *contender) {
	t.in[n.q.node] = n
	p, usage := n.position(), n.usage.Clone()
	for s := range n.q.pledged {
		// Its own reservation is charged already, and those behind it would yield. It asks for that quota all the same, and may borrow it.
		if s == n.s || s.element != nil && !s.element.Precedes(n.s.element) {
			for i, c := range usage {
				usage[i].Amount = max(0, c.Amount.Minus(s.pledge.Of(c.ID)))
			}
		}
	}
	t.later(func() {
		t.tree.Enter(n.q.node, fairshare.Head{
			UID: p.UID, Since: p.Since, Usage: usage,
			// Among equal priorities, a JobSet that continues comes first.
			Priority: int64(p.Priority)<<1 | int64(p.Standing),
		})
	})
}

func (t *tournament) later(f func()) {
	t.quota.WhatIfEvicted(func() bool {
		f()
		return true
	})
}

func (t *tournament) withdraw(q *clusterQueue) {
	if t.in[q.node] != nil {
		t.later(func() { t.tree.Leave(q.node) })
		delete(t.in, q.node)
	}
}

func (t *tournament) winner() *contender {
	var node *quota.Node
	t.later(func() { node, _ = t.tree.First(t.root) })
	if node == nil {
		return nil
	}
	n := t.in[node]
	t.withdraw(n.q)
	return n
}

func (t *tournament) charged(q *clusterQueue) { t.later(func() { t.tree.Charged(q.node) }) }
