package cycle

import (
	"cmp"

	"github.com/tranche-dev/tranche/admission/fairshare"
	"github.com/tranche-dev/tranche/admission/internal/check"
	"github.com/tranche-dev/tranche/admission/internal/model"
	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/queue/ranking"
)

// A nominee is a head that has passed all checks.
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

// nomineeHeap orders the nominees without fair sharing.
type nomineeHeap struct {
	nominees ranking.Ranking[*nominee]
	in       map[*model.ClusterQueue]*nominee
}

// Precedes orders nominees without fair sharing: the nominee that borrows from less far up wins, then the one with the higher priority, then the one
// that has waited longer.
func (n *nominee) Precedes(other *nominee) bool {
	return cmp.Or(cmp.Compare(n.Level, other.Level), n.Position().Compare(other.Position())) < 0
}

// Place is for package ranking.
func (n *nominee) Place() *int { return &n.index }

func (r *nomineeHeap) enter(n *nominee) {
	r.in[n.Queue] = n
	r.nominees.Push(n)
}

func (r *nomineeHeap) withdraw(q *model.ClusterQueue) {
	if n := r.in[q]; n != nil {
		r.nominees.Drop(n)
		delete(r.in, q)
	}
}

func (r *nomineeHeap) winner() *nominee {
	if r.nominees.Len() == 0 {
		return nil
	}
	n := r.nominees.First()
	r.withdraw(n.Queue)
	return n
}

func (*nomineeHeap) charged(*model.ClusterQueue) {}

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
		if s == n.Stage || !s.IsReservedAgainst(n.Stage) {
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
