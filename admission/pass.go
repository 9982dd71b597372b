package admission

import (
	"cmp"
	"container/heap"
	"slices"
)

// pass looks at everybody in a group who is awake, until nothing more fits.
//
// The head of each line that passes all checks stands for its ClusterQueue in a contest. Who borrows from less far up wins, then who
// has the higher priority, then who has waited longer. The winner is admitted, if what it has been promised is still there, and the
// next in its line takes its place.
func (e *Engine) pass(g *group, decisions []Decision) []Decision {
	c := &contest{in: map[*clusterQueue]*contender{}}
	for {
		decisions = e.nominateAll(g, c, decisions)
		winner := c.winner()
		if winner == nil {
			return decisions
		}
		if e.stillPasses(winner) {
			decisions = append(decisions, e.admit(winner.look))
		}
		e.rouse(winner.q)
	}
}

// nominateAll lets each line in which somebody may be awake send its first into the contest.
func (e *Engine) nominateAll(g *group, c *contest, decisions []Decision) []Decision {
	for len(g.awake) > 0 {
		awake := g.awake
		g.awake = nil
		slices.SortFunc(awake, compareQueues)
		for _, q := range awake {
			q.isRoused = false
			c.withdraw(q)
			decisions = e.nominate(c, q, decisions)
		}
	}
	return decisions
}

// nominate refuses everybody in a line who passes no check, up to the first who does.
func (e *Engine) nominate(c *contest, q *clusterQueue, decisions []Decision) []Decision {
	for {
		head := q.line.Next()
		if head == nil {
			return decisions
		}
		l := e.look(head.Member)
		if refusal := e.check(l); refusal != nil {
			decisions = e.refuse(l, refusal, decisions)
			continue
		}
		c.enter(&contender{look: l, asOf: e.lastDecision})
		return decisions
	}
}

// stillPasses tells whether nothing that has been decided since the nomination takes away what was found then.
func (e *Engine) stillPasses(n *contender) bool {
	if n.asOf == e.lastDecision {
		return true
	}
	refusal := e.asIfNothingWereKept(n.look, func() *Refusal {
		if !n.q.node.Fits(n.usage) {
			return &Refusal{}
		}
		return e.unsafe(n.look, n.usage)
	})
	return refusal == nil
}

func compareQueues(a, b *clusterQueue) int { return cmp.Compare(a.name, b.name) }

// A contender is a head that has passed all checks.
type contender struct {
	*look
	// asOf is the last decision before the checks.
	asOf  DecisionID
	index int
}

func (n *contender) compare(other *contender) int {
	return cmp.Or(cmp.Compare(n.level, other.level), n.s.ticket.Position.Compare(other.s.ticket.Position))
}

// A contest has at most one contender of each ClusterQueue. It implements heap.Interface.
type contest struct {
	contenders []*contender
	in         map[*clusterQueue]*contender
}

func (c *contest) enter(n *contender) {
	c.in[n.q] = n
	heap.Push(c, n)
}

func (c *contest) withdraw(q *clusterQueue) {
	if n := c.in[q]; n != nil {
		heap.Remove(c, n.index)
		delete(c.in, q)
	}
}

// winner takes the best contender out of the contest. It is nil if there is none.
func (c *contest) winner() *contender {
	if len(c.contenders) == 0 {
		return nil
	}
	n := c.contenders[0]
	c.withdraw(n.q)
	return n
}

func (c *contest) Len() int           { return len(c.contenders) }
func (c *contest) Less(i, j int) bool { return c.contenders[i].compare(c.contenders[j]) < 0 }

func (c *contest) Swap(i, j int) {
	c.contenders[i], c.contenders[j] = c.contenders[j], c.contenders[i]
	c.contenders[i].index, c.contenders[j].index = i, j
}

func (c *contest) Push(x any) {
	if n, ok := x.(*contender); ok {
		n.index = len(c.contenders)
		c.contenders = append(c.contenders, n)
	}
}

func (c *contest) Pop() any {
	last := len(c.contenders) - 1
	n := c.contenders[last]
	c.contenders = c.contenders[:last]
	return n
}
