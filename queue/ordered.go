package queue

import (
	"cmp"
	"iter"
	"slices"
)

// Ordered yields the members of the queue, or those of the shapes for which of is true, in the order in which they would be offered if all
// were awake. It visits each shape once, and then only the yielded members and their neighbors in the heap. The line must not change during
// the iteration.
func (p *Pending[M, S, T]) Ordered(of func(S) bool) iter.Seq[M] {
	return func(yield func(M) bool) {
		front := &ranking[*spot[M, S, T]]{}
		for shape, c := range p.classes {
			if of == nil || of(shape) {
				front.push(&spot[M, S, T]{equivClass: c})
			}
		}
		for front.size() > 0 {
			next := front.first()
			if !yield(next.element().Member) {
				return
			}
			below := 2*next.at + 1
			front.drop(next)
			for i := below; i < min(below+2, next.equivClass.elements.size()); i++ {
				front.push(&spot[M, S, T]{equivClass: next.equivClass, at: i})
			}
		}
	}
}

// A spot is the position of a walk in the heap of a class.
type spot[M any, S, T comparable] struct {
	equivClass *equivClass[M, S, T]
	at         int
	index      int
}

func (s *spot[M, S, T]) element() *Element[M, S, T] { return s.equivClass.elements.members[s.at] }

func (s *spot[M, S, T]) compare(other *spot[M, S, T]) int { return s.element().order(other.element()) }

func (s *spot[M, S, T]) place() *int { return &s.index }

// order is Precedes as a comparison function for sorting.
func (t *Element[M, S, T]) order(other *Element[M, S, T]) int {
	return cmp.Or(cmp.Compare(t.equivClass.lead, other.equivClass.lead), t.compare(other))
}

// Ranks returns how many stages come before each of some elements, which must be given in the order of the queue. It counts only shapes for
// which of is true, or all if of is nil. It visits each shape once, and the stages that come before the last of the elements.
func (p *Pending[M, S, T]) Ranks(elements []*Element[M, S, T], of func(S) bool) []int {
	ranks := make([]int, len(elements))
	if len(elements) == 0 {
		return ranks
	}
	for shape, c := range p.classes {
		if of == nil || of(shape) {
			c.count(0, elements, ranks)
		}
	}
	for i := 1; i < len(ranks); i++ {
		ranks[i] += ranks[i-1]
	}
	return ranks
}

// count increments the rank of the first element that comes after the member at an index of the heap, and continues with the members below
// it.
func (c *equivClass[M, S, T]) count(at int, elements []*Element[M, S, T], ranks []int) {
	if at >= c.elements.size() {
		return
	}
	t := c.elements.members[at]
	first, isOneOfThem := slices.BinarySearchFunc(elements, t, (*Element[M, S, T]).order)
	if isOneOfThem {
		first++
	}
	if first == len(elements) {
		return
	}
	ranks[first]++
	c.count(2*at+1, elements, ranks)
	c.count(2*at+2, elements, ranks)
}
