package queue

import (
	"cmp"
	"iter"
	"slices"
)

// Ordered yields the members of the line, or those of the shapes for which of is true, in the order in which they would be offered if all
// were awake. It visits each shape once, and then only the yielded members and their neighbors in the heap. The line must not change during
// the iteration.
func (l *Line[M, S, T]) Ordered(of func(S) bool) iter.Seq[M] {
	return func(yield func(M) bool) {
		front := &ranking[*spot[M, S, T]]{}
		for shape, c := range l.classes {
			if of == nil || of(shape) {
				front.push(&spot[M, S, T]{class: c})
			}
		}
		for front.size() > 0 {
			next := front.first()
			if !yield(next.ticket().Member) {
				return
			}
			below := 2*next.at + 1
			front.drop(next)
			for i := below; i < min(below+2, next.class.tickets.size()); i++ {
				front.push(&spot[M, S, T]{class: next.class, at: i})
			}
		}
	}
}

// A spot is the position of a walk in the heap of a class.
type spot[M any, S, T comparable] struct {
	class *class[M, S, T]
	at    int
	index int
}

func (s *spot[M, S, T]) ticket() *Ticket[M, S, T] { return s.class.tickets.members[s.at] }

func (s *spot[M, S, T]) compare(other *spot[M, S, T]) int { return s.ticket().order(other.ticket()) }

func (s *spot[M, S, T]) place() *int { return &s.index }

// order is Precedes as a comparison function for sorting.
func (t *Ticket[M, S, T]) order(other *Ticket[M, S, T]) int {
	return cmp.Or(cmp.Compare(t.class.lead, other.class.lead), t.compare(other))
}

// Ranks returns how many stages come before each of some tickets, which must be given in the order of the line. It counts only shapes for
// which of is true, or all if of is nil. It visits each shape once, and the stages that come before the last of the tickets.
func (l *Line[M, S, T]) Ranks(tickets []*Ticket[M, S, T], of func(S) bool) []int {
	ranks := make([]int, len(tickets))
	if len(tickets) == 0 {
		return ranks
	}
	for shape, c := range l.classes {
		if of == nil || of(shape) {
			c.count(0, tickets, ranks)
		}
	}
	for i := 1; i < len(ranks); i++ {
		ranks[i] += ranks[i-1]
	}
	return ranks
}

// count increments the rank of the first ticket that comes after the member at an index of the heap, and continues with the members below
// it.
func (c *class[M, S, T]) count(at int, tickets []*Ticket[M, S, T], ranks []int) {
	if at >= c.tickets.size() {
		return
	}
	t := c.tickets.members[at]
	first, isOneOfThem := slices.BinarySearchFunc(tickets, t, (*Ticket[M, S, T]).order)
	if isOneOfThem {
		first++
	}
	if first == len(tickets) {
		return
	}
	ranks[first]++
	c.count(2*at+1, tickets, ranks)
	c.count(2*at+2, tickets, ranks)
}
