package cycle

import (
	"cmp"
	"container/heap"

	"github.com/tranche-dev/tranche/admission/fairshare"
	"github.com/tranche-dev/tranche/admission/internal/check"
	"github.com/tranche-dev/tranche/admission/internal/model"
	"github.com/tranche-dev/tranche/admission/quota"
)

// A nominee is a nominee: a head that has passed all checks.
type nominee struct {
	*check.Candidate
	// asOf is how often quota had been taken before the checks.
	asOf  uint64
	index int
}

// A nominees holds at most one nominee of each ClusterQueue.
type nominees interface {
	enter(*nominee)
	// withdraw removes the nominee of a ClusterQueue, if there is one.
	withdraw(*model.ClusterQueue)
	// winner removes the best nominee. It is nil if there is none.
	winner() *nominee
	// charged must be called after the charges of a ClusterQueue have changed.
	charged(*model.ClusterQueue)
}

// nomineeHeap orders the nominees without fair sharing: the nominee that borrows from less far up wins, then the one with the higher priority, then the
// one that has waited longer. It implements heap.Interface.
type nomineeHeap struct {
	nominees []*nominee
	in       map[*model.ClusterQueue]*nominee
}

func (n *nominee) compare(other *nominee) int {
	return cmp.Or(cmp.Compare(n.Level, other.Level), n.Position().Compare(other.Position()))
}

func (r *nomineeHeap) enter(n *nominee) {
	r.in[n.Queue] = n
	heap.Push(r, n)
}

func (r *nomineeHeap) withdraw(q *model.ClusterQueue) {
	if n := r.in[q]; n != nil {
		heap.Remove(r, n.index)
		delete(r.in, q)
	}
}

func (r *nomineeHeap) winner() *nominee {
	if len(r.nominees) == 0 {
		return nil
	}
	n := r.nominees[0]
	r.withdraw(n.Queue)
	return n
}

func (*nomineeHeap) charged(*model.ClusterQueue) {}

func (r *nomineeHeap) Len() int { return len(r.nominees) }

func (r *nomineeHeap) Less(i, j int) bool { return r.nominees[i].compare(r.nominees[j]) < 0 }

func (r *nomineeHeap) Swap(i, j int) {
	r.nominees[i], r.nominees[j] = r.nominees[j], r.nominees[i]
	r.nominees[i].index, r.nominees[j].index = i, j
}

func (r *nomineeHeap) Push(x any) {
	if n, ok := x.(*nominee); ok {
		n.index = len(r.nominees)
		r.nominees = append(r.nominees, n)
	}
}

func (r *nomineeHeap) Pop() any {
	last := len(r.nominees) - 1
	n := r.nominees[last]
	r.nominees = r.nominees[:last]
	return n
}

// fairNominees orders the nominees with fair sharing. It compares the shares that ClusterQueues will have when all evicted stages have left and all
// preemptors have the quota that is reserved for them.
type fairNominees struct {
	quota *quota.Tree
	tree  *fairshare.Tournament
	root  *quota.Node
	in    map[*quota.Node]*nominee
}

func (t *fairNominees) enter(n *nominee) {
	t.in[n.Queue.Node] = n
	p, usage := n.Position(), n.Usage.Clone()
	for s := range n.Queue.Preemptors {
		// Its own reservation is charged already, and those behind it would yield. It asks for that quota all the same, and may borrow it.
		if s == n.Stage || s.Element != nil && !s.Element.Precedes(n.Stage.Element) {
			for i, c := range usage {
				usage[i].Amount = max(0, c.Amount.Minus(s.PreemptReserved.Of(c.ID)))
			}
		}
	}
	t.later(func() {
		t.tree.Enter(n.Queue.Node, fairshare.Head{
			UID: p.UID, Since: p.Since, Usage: usage,
			// Among equal priorities, a JobSet that continues comes first.
			Priority: int64(p.Priority)<<1 | int64(p.Standing),
		})
	})
}

func (t *fairNominees) later(f func()) {
	t.quota.WhatIfEvicted(func() bool {
		f()
		return true
	})
}

func (t *fairNominees) withdraw(q *model.ClusterQueue) {
	if t.in[q.Node] != nil {
		t.later(func() { t.tree.Leave(q.Node) })
		delete(t.in, q.Node)
	}
}

func (t *fairNominees) winner() *nominee {
	var node *quota.Node
	t.later(func() { node, _ = t.tree.First(t.root) })
	if node == nil {
		return nil
	}
	n := t.in[node]
	t.withdraw(n.Queue)
	return n
}

func (t *fairNominees) charged(q *model.ClusterQueue) { t.later(func() { t.tree.Charged(q.Node) }) }
