package preempt

import (
	"cmp"
	"maps"
	"math"
	"slices"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quota"
)

// A candidateStream yields, in order, the Holders of one Queue that use missing quota and that a policy lets the request preempt.
type candidateStream struct {
	queue   *Queue
	policy  kueue.PreemptionPolicy
	cursors []cursor
	// ordered are the remaining Holders if each search sorts them.
	isSorted bool
	ordered  []*Holder
	// head is the next Holder, or nil.
	head *Holder
	// shared is the lowest common node of the Queue and the request, and rank the order in classic preemption.
	shared *quota.Node
	rank   rank
	// index is for package ranking.
	index int
}

// A cursor is a position in a list.
type cursor struct {
	list  *list
	chunk int
	at    int
}

// open returns a stream. Its head is nil if no Holder may be preempted.
func (s *search) open(q *Queue, policy kueue.PreemptionPolicy) candidateStream {
	st := candidateStream{queue: q, policy: policy}
	if policy == kueue.PreemptionPolicyNever || policy == "" {
		return st
	}
	first := len(s.cursors)
	for _, c := range s.short {
		if int(c.ID) < len(q.lists) && len(q.lists[c.ID].chunks) > 0 {
			s.cursors = append(s.cursors, cursor{list: &q.lists[c.ID]})
		}
	}
	st.cursors = s.cursors[first:len(s.cursors):len(s.cursors)]
	if st.isSorted = q.Level != nil || s.LeastWork; st.isSorted {
		st.ordered = st.sorted(s)
	}
	st.settle(s)
	return st
}

// sorted returns all Holders of a Queue in the order in which they are preempted, if that depends on levels or on the work that is lost. These
// change constantly, so the order is not cached.
func (st *candidateStream) sorted(s *search) []*Holder {
	levels := map[*Holder]float64{}
	for i := range st.cursors {
		for _, c := range st.cursors[i].list.chunks {
			for _, h := range c.holders {
				if !s.mayPreempt(st.policy, h) {
					continue
				}
				levels[h] = 0
				if st.queue.Level != nil {
					levels[h] = st.queue.Level(h)
				}
				if s.LeastWork {
					h.lostNow = h.lost(s.request.Now)
				}
			}
		}
	}
	return slices.SortedFunc(maps.Keys(levels), func(a, b *Holder) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(levels[b], levels[a]), a.compareNow(b))
	})
}

// next advances to the next Holder.
func (st *candidateStream) next(s *search) {
	if st.isSorted {
		st.ordered = st.ordered[1:]
		st.settle(s)
		return
	}
	for i := range st.cursors {
		if c := &st.cursors[i]; c.holder() == st.head {
			c.at++
		}
	}
	st.settle(s)
}

// settle sets the head after the cursors have moved.
func (st *candidateStream) settle(s *search) {
	st.head = nil
	if st.isSorted {
		if len(st.ordered) > 0 {
			st.head = st.ordered[0]
		}
		return
	}
	for i := range st.cursors {
		c := &st.cursors[i]
		c.settle(st.policy, s)
		if h := c.holder(); h != nil && (st.head == nil || h.compare(st.head) < 0) {
			st.head = h
		}
	}
}

func (c *cursor) holder() *Holder {
	if c.chunk >= len(c.list.chunks) {
		return nil
	}
	if in := c.list.chunks[c.chunk].holders; c.at < len(in) {
		return in[c.at]
	}
	return nil
}

// settle advances to the next Holder that may be preempted. It skips the rest of a chunk with one check.
func (c *cursor) settle(policy kueue.PreemptionPolicy, s *search) {
	r := &s.request
	for c.chunk < len(c.list.chunks) {
		in := &c.list.chunks[c.chunk]
		switch {
		case c.at >= len(in.holders), policy != kueue.PreemptionPolicyAny && in.lowest >= r.Priority && !in.newest.After(r.Queued):
			c.chunk, c.at = c.chunk+1, 0
		case s.mayPreempt(policy, in.holders[c.at]):
			return
		case in.holders[c.at].IsExempt, r.isAllowed(policy, in.holders[c.at]): // never, or not yet
			c.at++
		case policy == kueue.PreemptionPolicyLowerPriority, in.holders[c.at].Priority > r.Priority:
			c.chunk = len(c.list.chunks)
		case !in.newest.After(r.Queued):
			c.chunk, c.at = c.chunk+1, 0
		default:
			c.at++
		}
	}
}

// enough reports whether the Holders of the streams use as much of each ID as is missing. If not, no choice among them helps: a Holder that
// leaves makes no more available than it uses.
func (s *search) enough(of []candidateStream) bool {
	for _, short := range s.short {
		missing := short.Amount.Minus(s.node.Available(short.ID))
		for i := range of {
			limit := int64(math.MaxInt64)
			if of[i].policy != kueue.PreemptionPolicyAny {
				limit = s.request.Priority
			}
			for _, c := range of[i].cursors {
				if c.list.id == short.ID && missing > 0 {
					missing -= c.list.atMost(limit)
				}
			}
		}
		if missing > 0 {
			return false
		}
	}
	return true
}
