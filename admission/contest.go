package admission

import (
	"cmp"
	"container/heap"

	"github.com/tranche-dev/tranche/admission/fairshare"
	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/queue"
)

// A contender is a head that has passed all checks.
type contender struct {
	*look
	// asOf is how often quota had been taken before the checks.
	asOf  uint64
	index int
}

// A contest has at most one contender of each ClusterQueue.
type contest interface {
	enter(*contender)
	// withdraw takes the contender of a ClusterQueue out, if there is one.
	withdraw(*clusterQueue)
	// winner takes the best contender out. It is nil if there is none.
	winner() *contender
	// charged must be called after what a ClusterQueue is charged has changed.
	charged(*clusterQueue)
}

// A ranking is the contest without fair sharing: who has to borrow from less far up wins, then who has the higher priority, then who has
// waited longer. It implements heap.Interface.
type ranking struct {
	contenders []*contender
	in         map[*clusterQueue]*contender
}

func (n *contender) compare(other *contender) int {
	return cmp.Or(cmp.Compare(n.level, other.level), n.position().Compare(other.position()))
}

// position is where a stage stands. A bundle stands where the last of it does.
func (l *look) position() queue.Position {
	if l.trial != nil {
		return l.trial.position
	}
	return l.s.ticket.Position
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

// Push is for package heap.
func (r *ranking) Push(x any) {
	if n, ok := x.(*contender); ok {
		n.index = len(r.contenders)
		r.contenders = append(r.contenders, n)
	}
}

// Pop is for package heap.
func (r *ranking) Pop() any {
	last := len(r.contenders) - 1
	n := r.contenders[last]
	r.contenders = r.contenders[:last]
	return n
}

// A tournament is the contest with fair sharing. Shares are those that there will be when all evicted stages have left and all preemptors
// have what is reserved for them.
type tournament struct {
	quota *quota.Tree
	tree  *fairshare.Contest
	root  *quota.Node
	in    map[*quota.Node]*contender
}

func (t *tournament) enter(n *contender) {
	t.in[n.q.node] = n
	p, usage := n.position(), n.usage.Clone()
	for s := range n.q.pledged {
		// What is pledged to it is charged already, and those behind it would yield. It asks for that all the same, and may borrow it.
		if s == n.s || s.ticket != nil && !s.ticket.Precedes(n.s.ticket) {
			for i, c := range usage {
				usage[i].Amount = max(0, c.Amount.Minus(s.pledge.Of(c.ID)))
			}
		}
	}
	t.later(func() {
		t.tree.Enter(n.q.node, fairshare.Head{
			UID: p.UID, Since: p.Since, Usage: usage,
			// Among equal priorities, who is under way comes first.
			Priority: int64(p.Priority)<<1 | int64(p.Standing),
		})
	})
}

func (t *tournament) later(f func()) {
	t.quota.Later(func() bool {
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
