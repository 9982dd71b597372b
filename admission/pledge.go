package admission

import (
	"slices"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quota"
)

// A preemptor's usage is reserved in its ClusterQueue until all its victims have left (quota.Node.Reserve), so that no other stage takes what
// they give back. A reservation counts in the state in which all evicted stages have left. Until then other stages may use idle quota if that
// state has enough for all reservations: two preemptors do not wait for each other's victims.

// pledge reserves a usage for a stage, in place of what was reserved for it.
func (e *Engine) pledge(s *stage, q *clusterQueue, usage quota.Usage) {
	before, from := s.pledge, s.pledgedIn
	top := e.unpledge(s)
	s.pledge, s.pledgedIn = usage, q
	q.node.Reserve(usage)
	e.takings++
	e.repledged = append(e.repledged, q)
	q.pledged[s] = struct{}{}
	q.group.pledging[q] = struct{}{}
	if rest := before.Without(usage); len(rest) > 0 {
		s.gaveUp = e.passes
		e.wake(top, rest, from.group)
	}
}

// unpledge gives that up, and returns how far up that gives quota back.
func (e *Engine) unpledge(s *stage) *quota.Node {
	if s.pledgedIn == nil {
		return nil
	}
	q := s.pledgedIn
	top := q.node.Unreserve(s.pledge)
	e.repledged = append(e.repledged, q)
	delete(q.pledged, s)
	if q.group != nil {
		delete(q.group.keepers, s)
		if len(q.pledged) == 0 {
			delete(q.group.pledging, q)
		}
	}
	s.pledge, s.pledgedIn, s.keepsNominal = nil, nil, false
	return top
}

// lose takes a pledge back from a stage that does not wait for it any more, and gives it none for what is on its way out in this pass.
func (e *Engine) lose(s *stage) {
	if s.pledgedIn != nil {
		s.gaveUp = e.passes
	}
	e.giveUp(s)
}

// giveUp takes a pledge back and wakes those who may use it.
func (e *Engine) giveUp(s *stage) {
	q, pledge := s.pledgedIn, s.pledge
	if top := e.unpledge(s); top != nil {
		e.wake(top, pledge, q.group)
		if q.group != nil {
			if _, awaits := q.group.awaitsTurn[q]; awaits && !e.isStale {
				delete(q.group.awaitsTurn, q)
				e.wakeLine(q) // a later stage of the line may wait until the victims of this one have left
			}
		}
	}
}

// pledgedBehind are the other stages whose pledges do not count for a stage: those that come after it in its line, and those that yield to
// it. Who comes last is first.
func (e *Engine) pledgedBehind(l *look) []*stage {
	var behind []*stage
	for s := range l.q.pledged {
		if s != l.s && s.ticket != nil && !s.ticket.Precedes(l.s.ticket) {
			behind = append(behind, s)
		}
	}
	slices.SortFunc(behind, comparePledged)
	for _, s := range l.yielding {
		if s.pledgedIn != nil {
			behind = append(behind, s)
		}
	}
	return behind
}

// comparePledged puts who comes last in line in front.
func comparePledged(a, b *stage) int { return b.ticket.Compare(a.ticket.Position) }

// borrowedPledges are the stages in other lines that wait to borrow from what a stage may take back, if it stays within the quota of its
// own ClusterQueue: who only waits has no more right to that than who holds it. Who comes last is first.
//
// In each line they are those up to the first whose pledge is not of more than its ClusterQueue has, and than each Cohort above it has, up to
// the one that both have a part in, when those before it have given theirs up.
func (e *Engine) borrowedPledges(l *look) []*stage {
	policy := l.q.preemption.ReclaimWithinCohort
	if !allowsPreemption(policy) {
		return nil
	}
	var borrowed []*stage
	keeps := map[*clusterQueue]struct{}{l.q: {}}
	e.tree.Later(func() bool {
		// All lines together: what one gives up may leave another within what a Cohort above both has.
		for _, s := range l.q.group.pledgers() {
			q := s.pledgedIn
			if _, ok := keeps[q]; ok {
				continue
			}
			if !slices.ContainsFunc(s.pledge, func(c quota.Charge) bool { return borrows(q.node, l.q.node, c.ID) }) {
				keeps[q] = struct{}{}
				continue
			}
			q.node.Release(s.pledge)
			if policy == kueue.PreemptionPolicyAny || s.priority < l.s.priority {
				borrowed = append(borrowed, s)
			}
		}
		return true
	})
	return borrowed
}

// pledgers are all in line who have a pledge. Who comes last is first.
func (g *group) pledgers() []*stage {
	var all []*stage
	for q := range g.pledging {
		for s := range q.pledged {
			if s.ticket != nil {
				all = append(all, s)
			}
		}
	}
	slices.SortFunc(all, comparePledged)
	return all
}

func borrows(n, from *quota.Node, id quota.ID) bool {
	for ; n != nil && !n.IsAbove(from); n = n.Parent() {
		if n.Excess(id, 0) <= 0 {
			return false
		}
	}
	return true
}

// wouldBorrow tells whether a stage takes more than the quota of its own ClusterQueue once all have left that have to.
func (e *Engine) wouldBorrow(l *look) bool {
	borrows := false
	e.tree.Later(func() bool {
		for _, v := range l.victims {
			tenureOf(v.Holder).queue.node.Release(v.Holder.Usage)
		}
		borrows = l.q.node.BorrowsAny(l.usage)
		return true
	})
	return borrows
}

// dropPledges takes back what is pledged to stages, if somebody else has got part of it. They are looked at again, and get no new pledge in
// this pass unless they evict somebody: so a pass comes to its end.
func (e *Engine) dropPledges(behind []*stage) {
	for _, s := range behind {
		if s.pledgedIn != nil && !e.canStillHave(s) {
			q := s.pledgedIn
			e.lose(s)
			e.wakeLine(q)
		}
	}
}

// canStillHave tells whether there will be quota for a pledge when all have left that are on their way out.
func (e *Engine) canStillHave(s *stage) bool {
	return e.tree.Later(func() bool {
		s.pledgedIn.node.Release(s.pledge)
		return s.pledgedIn.node.Fits(s.pledge)
	})
}
